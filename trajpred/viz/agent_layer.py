"""Agents at their last observed pose, and their histories."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patheffects import withStroke

from trajpred.data.geometry import direction, norm, to_global, unit_vector
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import EGO_ID, OBJECT_TYPES, TYPICAL_SIZES, TrackCategory
from trajpred.viz.style import Layer, Role
from trajpred.viz.view import View, add_lines, add_polygons

#: Outlines ``[V, 2]`` in a box of length 1 (x, forward) and width 1 (y, left), counter-clockwise.
RECTANGLE = np.array([[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]])
ELLIPSE = 0.5 * unit_vector(np.linspace(0, 2 * np.pi, 20, endpoint=False))
LOZENGE = np.array([[0.5, 0.0], [0.1, 0.5], [-0.5, 0.35], [-0.5, -0.35], [0.1, -0.5]])
DIAMOND = np.array([[0.5, 0.0], [0.0, 0.5], [-0.5, 0.0], [0.0, -0.5]])
CHEVRON = np.array([[0.5, 0.0], [-0.5, 0.5], [-0.2, 0.0], [-0.5, -0.5]])
#: Outline of each object type; all others are static objects, drawn as :data:`DIAMOND`. Road users of unknown
#: type are arrows in their direction of travel, or circles if stationary.
OUTLINES = {
    "vehicle": RECTANGLE,
    "bus": RECTANGLE,
    "pedestrian": ELLIPSE,
    "unknown": CHEVRON,
    "cyclist": LOZENGE,
    "motorcyclist": LOZENGE,
    "riderless_bicycle": LOZENGE,
}
#: ``[10, 2]`` metres, for tracks of unknown size: typical sizes, and for the unknown type a size between a
#: pedestrian's and a car's.
DRAWN_SIZES = TYPICAL_SIZES.copy()
DRAWN_SIZES[OBJECT_TYPES.index("unknown")] = 2.4, 1.8
#: Smallest length and width on paper (points): a pedestrian to scale would be invisible.
MIN_SIZE = 4.6
#: Heading mark of rectangular bodies, in front of their centre.
NOSE = CHEVRON + np.array([0.45, 0.0])
#: Road users of unknown type that moved less than this (metres) in the last second are stationary.
MIN_MOTION_M = 1.0
#: Opacity at the start and at the end of a history.
FADE = (0.04, 0.85)
#: Font size of the time since an agent was last seen (points).
UNSEEN_SIZE = 6.0
#: Line width of histories by role (points).
HISTORY_WIDTHS = np.array([1.2, 1.5, 1.5, 2.4])


def roles(scenario: Scenario) -> np.ndarray:
    """Return the :class:`Role` of each track, ``[A]``."""
    tracks = scenario.tracks
    role = np.where(tracks.category >= TrackCategory.SCORED, int(Role.SCORED), int(Role.OTHER))
    role[tracks.track_id == EGO_ID] = Role.EGO
    role[scenario.focal] = Role.FOCAL
    return role


def is_lost(scenario: Scenario) -> np.ndarray:
    """Return whether each track ``[A]`` was last seen before the last observed step."""
    step = scenario.last_seen
    return (step >= 0) & (step < scenario.num_observed - 1)


def visible_agents(scenario: Scenario, view: View, kept: np.ndarray | None = None) -> np.ndarray:
    """Return the rows of the tracks in view at the last observed step, by ascending role.

    Args:
        kept: ``[R]`` rows of tracks with a future, which are also drawn if they were last seen earlier: the
            future would start from nothing.
    """
    step = scenario.last_seen
    # Other tracks lost before the last observed step are no longer at their last position.
    present = step == scenario.num_observed - 1
    if kept is not None:
        present[kept] = step[kept] >= 0
    position = scenario.tracks.position[np.arange(len(step)), step]
    rows = np.flatnonzero(present & view.contains(position, margin=3.0))
    return rows[np.argsort(roles(scenario)[rows], kind="stable")]


def agent_outlines(
    view: View, scenario: Scenario, rows: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return a body ``[V, 2]`` for each agent of ``rows``, and heading marks for rectangular ones."""
    tracks = scenario.tracks
    step = scenario.last_seen[rows]
    positions = tracks.position[rows, step]
    headings = tracks.heading[rows, step]
    sizes = np.maximum(tracks.box(DRAWN_SIZES)[rows], view.metres(MIN_SIZE))
    bodies: list[np.ndarray] = []
    noses: list[np.ndarray] = []
    for i, code in enumerate(tracks.object_type[rows].tolist()):
        heading = headings[i]
        size = sizes[i]
        outline = OUTLINES.get(OBJECT_TYPES[code], DIAMOND)
        if outline is CHEVRON:
            moved = recent_motion(scenario, int(rows[i]), int(step[i]))
            heading = direction(moved)
            if norm(moved) < MIN_MOTION_M:
                outline = ELLIPSE
                size = np.full(2, size.min())
        bodies.append(to_global(outline * size, positions[i], heading))
        if outline is RECTANGLE:
            nose_size = min(0.62 * float(size.min()), 3.0)
            noses.append(to_global(NOSE * nose_size, positions[i], heading))
    return bodies, noses


def recent_motion(scenario: Scenario, row: int, step: int) -> np.ndarray:
    """Return a track's displacement ``[2]`` in the last second: single steps of standing agents are noise."""
    steps_per_second = round(1 / scenario.step_s)
    window = slice(max(0, step - steps_per_second), step + 1)
    path = scenario.tracks.position[row, window][scenario.tracks.valid[row, window]]
    return path[-1] - path[0]


def draw_agents(axes: Axes, view: View, scenario: Scenario, rows: np.ndarray) -> None:
    """Draw each agent of ``rows`` as the outline of its type at its last observed pose, coloured by role.

    Agents that were last seen before the last observed step are hollow, with the time since then.
    """
    lost = is_lost(scenario)[rows]
    present = rows[~lost]
    is_focal = present == scenario.focal
    # The thicker outline identifies the focal agent without colour.
    _draw_bodies(axes, view, scenario, present[~is_focal], Layer.AGENT, width=0.6, gid="agents")
    _draw_bodies(axes, view, scenario, present[is_focal], Layer.FOCAL_AGENT, width=1.5, gid="focal-agent")
    _draw_lost(axes, view, scenario, rows[lost])


def _draw_bodies(
    axes: Axes, view: View, scenario: Scenario, rows: np.ndarray, layer: Layer, *, width: float, gid: str
) -> None:
    """Draw the outlines of ``rows`` with lines of ``width`` points, and their heading marks."""
    bodies, noses = agent_outlines(view, scenario, rows)
    role = roles(scenario)[rows].tolist()
    add_polygons(
        axes,
        bodies,
        layer,
        linewidths=width,
        gid=gid,
        facecolors=[view.theme.role[code] for code in role],
        edgecolors=[view.theme.role_edge[code] for code in role],
    )
    add_polygons(axes, noses, layer, facecolors=view.theme.nose, edgecolors="none", alpha=0.85)


def _draw_lost(axes: Axes, view: View, scenario: Scenario, rows: np.ndarray) -> None:
    """Draw the outlines of ``rows`` where they were last seen, and the time since then."""
    bodies, _ = agent_outlines(view, scenario, rows)
    colors = [view.theme.role_edge[code] for code in roles(scenario)[rows].tolist()]
    add_polygons(
        axes,
        bodies,
        Layer.AGENT,
        linewidths=1.2,
        gid="lost-agents",
        facecolors="none",
        edgecolors=colors,
    )
    halo = [withStroke(linewidth=1.8, foreground=view.theme.halo)]
    unseen_s = (scenario.num_observed - 1 - scenario.last_seen[rows]) * scenario.step_s
    for seconds, body in zip(unseen_s.tolist(), bodies, strict=True):
        axes.annotate(
            ago(seconds),
            xy=(body[:, 0].mean(), body[:, 1].min()),
            xytext=(0, -2),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=UNSEEN_SIZE,
            color=view.theme.muted,
            zorder=Layer.END,
            gid="unseen",
            path_effects=halo,
        )


def ago(seconds: float) -> str:
    """Describe how long ago a track was last seen."""
    return f"{seconds:.2g} s ago"


def draw_histories(
    axes: Axes, view: View, scenario: Scenario, rows: np.ndarray, steps: int | None = None
) -> None:
    """Draw the observed path of each agent of ``rows``, or its last ``steps`` steps, fading in."""
    now = scenario.num_observed
    first = 0
    if steps is not None:
        first = max(0, now - steps)
    position = scenario.tracks.position[rows, first:now]
    valid = scenario.tracks.valid[rows, first:now]
    segments = np.stack((position[:, :-1], position[:, 1:]), axis=2)
    in_view = view.contains(segments, margin=1.0).any(axis=2)
    drawn = valid[:, :-1] & valid[:, 1:] & in_view
    role = np.broadcast_to(roles(scenario)[rows][:, None], drawn.shape)[drawn]
    opacity = np.linspace(FADE[0], FADE[1], drawn.shape[1])
    alpha = np.broadcast_to(opacity, drawn.shape)[drawn]
    role_colors = np.array([to_rgb(color) for color in view.theme.role])
    add_lines(
        axes,
        segments[drawn],
        Layer.HISTORY,
        colors=np.concatenate((role_colors[role], alpha[:, None]), axis=1),
        linewidths=HISTORY_WIDTHS[role],
        capstyle="butt",
        gid="histories",
    )
