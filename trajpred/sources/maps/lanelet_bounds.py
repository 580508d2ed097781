"""The bounds of lanelets, and the directions in which they run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from trajpred.errors import DataError
from trajpred.geometry import norm
from trajpred.sources.maps.lanes import Line, mark_type, require_length

Tags = dict[str, str]
#: The two nodes at an end of a lanelet.
Ends = frozenset[str]


@dataclass(frozen=True)
class Way:
    """A way in its own direction or against it: its nodes, their positions ``[P, 2]``, and its tags.

    ``coordinates`` names those of the nodes that the positions come from.
    """

    name: str
    nodes: list[str]
    line: Line
    tags: Tags
    coordinates: str
    forward: bool = True

    def require_positions(self) -> None:
        """Raise DataError naming the first node without a position, and the ``coordinates`` it lacks."""
        unknown = np.flatnonzero(~np.isfinite(self.line).all(-1))
        if len(unknown):
            node = self.nodes[unknown[0]]
            problem = f"node {node} of way {self.name} has no valid {self.coordinates}"
            raise DataError(problem, field="node")

    @property
    def reverse(self) -> Way:
        return replace(self, nodes=self.nodes[::-1], line=self.line[::-1], forward=not self.forward)

    def mark(self, is_left: bool) -> str:
        """Return the mark on one side of a lane; subtypes name the left one of two lines first."""
        if self.tags.get("type") not in ("line_thin", "line_thick"):
            return "NONE"
        name = self.tags.get("subtype", "")
        return mark_type(name, self.tags.get("color"), near_first=is_left != self.forward)


Bounds = tuple[Way, Way]


@dataclass(frozen=True)
class Lanelet:
    """A lanelet: its number, tags and bounds, which may run in any direction until :func:`oriented`.

    Raises: DataError if both bounds have no length.
    """

    number: int
    tags: Tags
    left: Way
    right: Way

    def __post_init__(self) -> None:
        require_length(self.left.line, self.right.line, "bounds")

    @property
    def is_crossing(self) -> bool:
        return self.tags.get("subtype") == "crosswalk"

    @property
    def parallel_ends(self) -> set[Ends]:
        """The pairs of nodes at both ends, if the bounds run in the same direction."""
        return self._ends(self.right.nodes)

    @property
    def opposite_ends(self) -> set[Ends]:
        """The pairs of nodes at both ends, if the bounds run in opposite directions."""
        return self._ends(self.right.nodes[::-1])

    def _ends(self, right: list[str]) -> set[Ends]:
        left = self.left.nodes
        return {frozenset((left[0], right[0])), frozenset((left[-1], right[-1]))}


def oriented(lanelets: list[Lanelet]) -> list[Lanelet]:
    """Turn the bounds of each lanelet into its driving direction: the files have them in any direction."""
    ends: Counter[Ends] = Counter()
    for lanelet in lanelets:
        ends.update(lanelet.parallel_ends | lanelet.opposite_ends)
    oriented = []
    for lanelet in lanelets:
        left = lanelet.left
        right = lanelet.right if _is_parallel(lanelet, ends) else lanelet.right.reverse
        if _is_clockwise(left, right):
            left = left.reverse
            right = right.reverse
        oriented.append(replace(lanelet, left=left, right=right))
    return oriented


def _is_parallel(lanelet: Lanelet, ends: Counter[Ends]) -> bool:
    """Return whether the bounds of a lanelet run in the same direction.

    The ends that it shares with other lanelets decide; then an outline that does not cross itself, which
    tells bounds of sharp turns, whose ends may be nearest crosswise; then the distances of the ends.
    """
    # Each of its ends counts once for the lanelet itself.
    same = sum(ends[pair] - 1 for pair in lanelet.parallel_ends)
    opposite = sum(ends[pair] - 1 for pair in lanelet.opposite_ends)
    if same != opposite:
        return same > opposite
    left = lanelet.left.line
    right = lanelet.right.line
    is_simple = _is_simple(left, right)
    if is_simple != _is_simple(left, right[::-1]):
        return is_simple
    gap = norm(left[[0, -1]] - right[[0, -1]]).sum()
    crosswise = norm(left[[0, -1]] - right[[-1, 0]]).sum()
    return bool(gap <= crosswise)


def _is_simple(left: Line, right: Line) -> bool:
    """Return whether the outline of a lanelet does not cross itself."""
    import shapely

    outline = np.concatenate((left, right[::-1]))
    return bool(shapely.LinearRing(outline).is_simple)


def _is_clockwise(left: Way, right: Way) -> bool:
    """Return whether the outline, along the right bound and back along the left one, runs clockwise."""
    around = np.concatenate((right.line, left.line[::-1])) - left.line[0]
    x, y = around.T
    next_x, next_y = np.roll(around, -1, axis=0).T
    return bool((x * next_y - y * next_x).sum() < 0)
