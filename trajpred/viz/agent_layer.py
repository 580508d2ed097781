"""The agents where they were last seen, and how they came there."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from trajpred.scenario import EGO_ID, OBJECT_TYPES, TYPICAL_SIZES, Scenario, TrackCategory
from trajpred.viz.shapes import CHEVRON, DIAMOND, ELLIPSE, LOZENGE, RECTANGLE, Floats, place
from trajpred.viz.style import Layer, Role
from trajpred.viz.view import View

#: Outline of each object type, and whether it shows which way it faces.
OUTLINES: dict[str, tuple[Floats, bool]] = {
    "vehicle": (RECTANGLE, True),
    "bus": (RECTANGLE, True),
    "pedestrian": (ELLIPSE, False),
    "cyclist": (LOZENGE, False),
    "motorcyclist": (LOZENGE, False),
    "riderless_bicycle": (LOZENGE, False),
}
#: For the types that neither drive nor walk: standing objects.
OBJECT_OUTLINE = (DIAMOND, False)
#: Nothing is drawn smaller than this, in points: a pedestrian to scale would be a speck.
SMALLEST = 4.6
#: Points ahead from a little before the middle of the body.
NOSE = CHEVRON + np.array([0.45, 0.0])
#: Opacity at the start and at the end of a trail.
FADE = (0.04, 0.85)


def roles(scenario: Scenario) -> NDArray[np.int64]:
    """``[A]`` :class:`Role` of each track."""
    tracks = scenario.tracks
    role = np.where(tracks.category >= TrackCategory.SCORED, int(Role.SCORED), int(Role.OTHER))
    role[tracks.track_id == EGO_ID] = Role.EGO
    role[scenario.focal] = Role.FOCAL
    return role


def shown_agents(scenario: Scenario, view: View) -> NDArray[np.int64]:
    """Rows of the tracks in view at the last observed step, and the focal one, by rising role."""
    step = scenario.last_seen
    # A track lost before the last observed step is no longer where it was.
    present = step == scenario.num_observed - 1
    present[scenario.focal] = step[scenario.focal] >= 0
    place_now = scenario.tracks.position[np.arange(len(step)), step]
    rows = np.flatnonzero(present & view.holds(place_now, margin=3.0))
    return rows[np.argsort(roles(scenario)[rows], kind="stable")]


def draw_agents(axes: Axes, view: View, scenario: Scenario, rows: NDArray[np.int64]) -> None:
    """Each agent of ``rows`` as the outline of its type at its last observed pose, coloured by role."""
    focal = rows == scenario.focal
    for chosen, layer in ((rows[~focal], Layer.AGENT), (rows[focal], Layer.FOCAL_AGENT)):
        bodies, noses = outlines(view, scenario, chosen)
        role = roles(scenario)[chosen]
        boxes = PolyCollection(
            bodies,
            facecolors=[view.theme.role[Role(r)] for r in role.tolist()],
            edgecolors=[view.theme.role_edge[Role(r)] for r in role.tolist()],
            linewidths=1.5 if layer == Layer.FOCAL_AGENT else 0.6,  # told apart without colours, too
            zorder=layer,
            gid="focal-agent" if layer == Layer.FOCAL_AGENT else "agents",
        )
        axes.add_collection(boxes, autolim=False)
        marks = PolyCollection(noses, facecolors=view.theme.nose, edgecolors="none", alpha=0.85, zorder=layer)
        axes.add_collection(marks, autolim=False)


def outlines(view: View, scenario: Scenario, rows: NDArray[np.int64]) -> tuple[list[Floats], list[Floats]]:
    """Bodies ``[V, 2]`` of the agents ``rows``, and the chevrons on those that show their heading, metres."""
    tracks, step = scenario.tracks, scenario.last_seen[rows]
    position, heading = tracks.position[rows, step], tracks.heading[rows, step]
    size = np.maximum(TYPICAL_SIZES[tracks.object_type[rows]], view.metres(SMALLEST))
    bodies, noses = [], []
    for i, kind in enumerate(tracks.object_type[rows].tolist()):
        outline, faces = OUTLINES.get(OBJECT_TYPES[kind], OBJECT_OUTLINE)
        pose = position[i : i + 1], heading[i : i + 1]
        bodies.append(place(outline, *pose, size[i : i + 1])[0])
        if faces:
            nose = np.minimum(size[i].min() * np.array([[0.62, 0.62]]), 3.0)
            noses.append(place(NOSE, *pose, nose)[0])
    return bodies, noses


def draw_histories(
    axes: Axes, view: View, scenario: Scenario, rows: NDArray[np.int64], steps: int | None = None
) -> None:
    """The observed path of each agent of ``rows``, or its last ``steps`` steps, fading in towards now."""
    now = scenario.num_observed
    seen = slice(0 if steps is None else max(0, now - steps), now)
    position, valid = scenario.tracks.position[rows, seen], scenario.tracks.valid[rows, seen]
    pairs = np.stack((position[:, :-1], position[:, 1:]), axis=2)
    drawn = valid[:, :-1] & valid[:, 1:] & view.holds(pairs, margin=1.0).any(axis=2)
    role = np.broadcast_to(roles(scenario)[rows][:, None], drawn.shape)[drawn]
    fade = np.broadcast_to(np.linspace(*FADE, drawn.shape[1]), drawn.shape)[drawn]
    palette = np.array([to_rgb(view.theme.role[r]) for r in Role])
    trails = LineCollection(
        list(pairs[drawn]),
        colors=np.concatenate((palette[role], fade[:, None]), axis=1),
        linewidths=np.array([1.2, 1.5, 1.5, 2.4])[role],
        capstyle="butt",
        zorder=Layer.HISTORY,
        gid="histories",
    )
    axes.add_collection(trails, autolim=False)
