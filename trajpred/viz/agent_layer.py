"""Agents at their last observed pose, and their histories."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from trajpred.geometry import direction, norm, to_global, unit_vector
from trajpred.scenario import Scenario
from trajpred.tracks import EGO_ID, OBJECT_TYPES, TYPICAL_SIZES, TrackCategory
from trajpred.viz.style import Layer, Role
from trajpred.viz.view import View, add_lines, add_polygons

#: Outlines ``[V, 2]`` in a box of length 1 (x, forward) and width 1 (y, left), counter-clockwise.
RECTANGLE = np.array([[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]])
ELLIPSE = 0.5 * unit_vector(np.linspace(0, 2 * np.pi, 20, endpoint=False))
LOZENGE = np.array([[0.5, 0.0], [0.1, 0.5], [-0.5, 0.35], [-0.5, -0.35], [0.1, -0.5]])
DIAMOND = np.array([[0.5, 0.0], [0.0, 0.5], [-0.5, 0.0], [0.0, -0.5]])
CHEVRON = np.array([[0.5, 0.0], [-0.5, 0.5], [-0.2, 0.0], [-0.5, -0.5]])
#: Outline of each object type; all others are static objects, drawn as :data:`DIAMOND`. Road users of unknown
#: type are arrows in their direction of travel, and circles while they stand.
OUTLINES = {"vehicle": RECTANGLE, "bus": RECTANGLE, "pedestrian": ELLIPSE, "unknown": CHEVRON}
OUTLINES |= dict.fromkeys(("cyclist", "motorcyclist", "riderless_bicycle"), LOZENGE)
#: ``[10, 2]`` metres: typical sizes, but of an unknown type between those of a pedestrian and a car.
DRAWN_SIZES = TYPICAL_SIZES.copy()
DRAWN_SIZES[OBJECT_TYPES.index("unknown")] = 2.4, 1.8
#: Smallest length and width on paper (points): a pedestrian to scale would be invisible.
MIN_SIZE = 4.6
#: Heading mark of rectangular bodies, in front of their centre.
NOSE = CHEVRON + np.array([0.45, 0.0])
#: Road users of unknown type that moved less than this in the last second stand (metres).
MIN_MOTION_M = 1.0
#: Opacity at the start and at the end of a history; line width by role (points).
FADE = (0.04, 0.85)
HISTORY_WIDTHS = np.array([1.2, 1.5, 1.5, 2.4])


def roles(scenario: Scenario) -> np.ndarray:
    """Return the :class:`Role` of each track, ``[A]``."""
    tracks = scenario.tracks
    role = np.where(tracks.category >= TrackCategory.SCORED, int(Role.SCORED), int(Role.OTHER))
    role[tracks.track_id == EGO_ID] = Role.EGO
    role[scenario.focal] = Role.FOCAL
    return role


def visible_agents(scenario: Scenario, view: View) -> np.ndarray:
    """Return the rows of the focal track and of those in view at the last observed step, by rising role."""
    step = scenario.last_seen
    # A track lost before the last observed step is no longer at its last position.
    present = step == scenario.num_observed - 1
    present[scenario.focal] = step[scenario.focal] >= 0
    position = scenario.tracks.position[np.arange(len(step)), step]
    rows = np.flatnonzero(present & view.contains(position, margin=3.0))
    return rows[np.argsort(roles(scenario)[rows], kind="stable")]


def place(outline: np.ndarray, position: np.ndarray, heading: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Place an outline ``[V, 2]`` at each pose with each size (length, width), ``[A, V, 2]`` metres."""
    return to_global(outline * size[:, None], position[:, None], heading[:, None])


def agent_outlines(
    view: View, scenario: Scenario, rows: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the body ``[V, 2]`` of each agent of ``rows`` and the heading marks of rectangular ones."""
    tracks, step = scenario.tracks, scenario.last_seen[rows]
    position, heading = tracks.position[rows, step], tracks.heading[rows, step]
    size = np.maximum(DRAWN_SIZES[tracks.object_type[rows]], view.metres(MIN_SIZE))
    bodies, noses = [], []
    for i, code in enumerate(tracks.object_type[rows].tolist()):
        outline = OUTLINES.get(OBJECT_TYPES[code], DIAMOND)
        if outline is CHEVRON:
            moved = recent_motion(scenario, int(rows[i]), int(step[i]))
            heading[i] = direction(moved)
            if norm(moved) < MIN_MOTION_M:
                outline, size[i] = ELLIPSE, size[i].min()
        pose = position[i : i + 1], heading[i : i + 1]
        bodies.append(place(outline, *pose, size[i : i + 1])[0])
        if outline is RECTANGLE:
            nose = np.minimum(size[i].min() * np.array([[0.62, 0.62]]), 3.0)
            noses.append(place(NOSE, *pose, nose)[0])
    return bodies, noses


def recent_motion(scenario: Scenario, row: int, step: int) -> np.ndarray:
    """Return how far ``[2]`` a track moved in the last second: single steps of standing agents are noise."""
    window = slice(max(0, step - round(1 / scenario.step_s)), step + 1)
    path = scenario.tracks.position[row, window][scenario.tracks.valid[row, window]]
    return path[-1] - path[0]


def draw_agents(axes: Axes, view: View, scenario: Scenario, rows: np.ndarray) -> None:
    """Draw each agent of ``rows`` as the outline of its type at its last observed pose, coloured by role."""
    focal = rows == scenario.focal
    # The thicker outline identifies the focal agent without colour.
    for chosen, layer, width, gid in (
        (rows[~focal], Layer.AGENT, 0.6, "agents"),
        (rows[focal], Layer.FOCAL_AGENT, 1.5, "focal-agent"),
    ):
        bodies, noses = agent_outlines(view, scenario, chosen)
        role = [Role(r) for r in roles(scenario)[chosen].tolist()]
        colors = {"facecolors": [view.theme.role[r] for r in role]}
        colors["edgecolors"] = [view.theme.role_edge[r] for r in role]
        add_polygons(axes, bodies, layer, linewidths=width, gid=gid, **colors)
        add_polygons(axes, noses, layer, facecolors=view.theme.nose, edgecolors="none", alpha=0.85)


def draw_histories(
    axes: Axes, view: View, scenario: Scenario, rows: np.ndarray, steps: int | None = None
) -> None:
    """Draw the observed path of each agent of ``rows``, or its last ``steps`` steps, fading in."""
    now = scenario.num_observed
    window = slice(0 if steps is None else max(0, now - steps), now)
    position, valid = scenario.tracks.position[rows, window], scenario.tracks.valid[rows, window]
    pairs = np.stack((position[:, :-1], position[:, 1:]), axis=2)
    drawn = valid[:, :-1] & valid[:, 1:] & view.contains(pairs, margin=1.0).any(axis=2)
    role = np.broadcast_to(roles(scenario)[rows][:, None], drawn.shape)[drawn]
    fade = np.broadcast_to(np.linspace(*FADE, drawn.shape[1]), drawn.shape)[drawn]
    rgb = np.array([to_rgb(view.theme.role[r]) for r in Role])[role]
    look = {"colors": np.concatenate((rgb, fade[:, None]), axis=1), "linewidths": HISTORY_WIDTHS[role]}
    add_lines(axes, pairs[drawn], Layer.HISTORY, capstyle="butt", gid="histories", **look)
