"""The tensors that the graphs of a bundle take and give: names, shapes, units. Plain values, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Port(NamedTuple):
    """An input or output of a graph.

    Attributes:
        shape: numbers are fixed by the model; ``A`` agents, ``L`` lane segments and crossings and ``B``
            agents to predict are those of the scene, or the bundle's fixed sizes. Other letters stand for
            numbers of the model: ``T`` observed steps, ``P`` points of a polyline, ``D`` channels of a token,
            ``K`` modes, ``F`` future steps.
        meaning: with its unit and frame.
    """

    name: str
    dtype: str
    shape: tuple[str | int, ...]
    meaning: str


class Signature(NamedTuple):
    """What a graph takes and gives, in order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


#: Sizes that differ from scene to scene.
SCENE_SIZES = ("A", "L", "B")

_POINTS = Port(
    "points",
    "float32",
    ("L", "P", 8),
    "per point x, y (10 m), direction x, y, left and right boundary from the point x, y (m); own frame",
)
_LANE = (
    _POINTS,
    Port("kind", "int64", ("L",), "0 vehicle, 1 bike, 2 bus lane, 3 crossing"),
    Port("is_intersection", "int64", ("L",), "0 or 1"),
    Port("marks", "int64", ("L", 2), "left and right mark, an index of bundle.json"),
)
_LANE_TOKEN = Port("lane_token", "float32", ("L", "D"), "what a lane segment is by itself")
_AGENT = (
    Port(
        "history",
        "float32",
        ("A", "T", 7),
        "x, y (10 m), vx, vy (10 m/s), cosine and sine of the heading, 1; own frame; zeros where not seen",
    ),
    Port("object_type", "int64", ("A",), "an index of bundle.json"),
)
_AGENT_POSE = (
    Port("agent_position", "float32", ("A", 2), "m, where last seen, from the scene's origin"),
    Port("agent_heading", "float32", ("A",), "rad, counter-clockwise from the x axis"),
    Port("agent_valid", "bool", ("A",), "False for padding"),
)
_LANE_POSE = (
    Port("lane_position", "float32", ("L", 2), "m, midpoint from the scene's origin"),
    Port("lane_heading", "float32", ("L",), "rad, direction at the midpoint"),
    Port("lane_valid", "bool", ("L",), "False for padding"),
)
_TOPOLOGY = Port(
    "lane_topology",
    "int64",
    ("L", "L"),
    "column is row's: 1 successor, 2 predecessor, 3 left, 4 right neighbour; 0 nothing",
)
_MOTION = (
    Port("agent_velocity", "float32", ("A", 2), "m/s where last seen, own frame"),
    Port("agent_elapsed_s", "float32", ("A",), "s since last seen"),
)
_ASKED = (
    Port("target", "int64", ("B",), "rows of the agents to predict"),
    Port("step_s", "float32", (), "s between steps"),
)
_TOKENS = (
    Port("agent_token", "float32", ("A", "D"), "what an agent does among its surroundings"),
    Port("lane_context", "float32", ("L", "D"), "what a lane segment is among its surroundings"),
)
_FUTURES = (
    Port("trajectory", "float32", ("B", "K", "F", 2), "m, own frame: x ahead, y left of where last seen"),
    Port("scale", "float32", ("B", "K", "F", 2), "m, Laplace scales along the same axes"),
    Port("probability", "float32", ("B", "K"), "of each mode; sums to 1"),
)

#: By graph, in the order in which they run.
SIGNATURES = {
    "lane_encoder": Signature(_LANE, (_LANE_TOKEN,)),
    "encoder": Signature((*_AGENT, *_AGENT_POSE, _LANE_TOKEN, *_LANE_POSE, _TOPOLOGY), _TOKENS),
    "decoder": Signature((*_TOKENS, *_AGENT_POSE, *_MOTION, *_LANE_POSE, *_ASKED), _FUTURES),
    "forecaster": Signature(
        (*_AGENT, *_AGENT_POSE, *_MOTION, *_LANE, *_LANE_POSE, _TOPOLOGY, *_ASKED), (*_FUTURES, *_TOKENS)
    ),
}
#: Those that a bundle always holds; the other one is all of them in one.
GRAPHS, FUSED = ("lane_encoder", "encoder", "decoder"), "forecaster"


def resolved(port: Port, sizes: Mapping[str, int]) -> list[str | int]:
    """The shape of ``port`` with the letters that ``sizes`` knows replaced by numbers."""
    return [sizes.get(size, size) if isinstance(size, str) else size for size in port.shape]
