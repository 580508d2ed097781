"""A bundle as it lies on disk: a folder, or a zip of one. NumPy only.

``bundle.json`` says what is in it; the graphs are ONNX files; ``example.npz`` holds inputs and outputs to
test another runtime with; ``INTERFACE.md`` tells people what ``bundle.json`` tells programs.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.graph.channels import HISTORY, LANE_MARKS, LANE_POINT
from trajpred.graph.config import FeatureConfig, SceneConfig

MANIFEST, EXAMPLE, INTERFACE = "bundle.json", "example.npz", "INTERFACE.md"
#: The graphs compiled for PyTorch, where the bundle has them.
COMPILED = "forecaster.pt2"
#: Of ``bundle.json``; a reader refuses others.
FORMAT, VERSION = "trajpred-bundle", 1
#: No file in a bundle is larger, unpacked: a damaged or hostile zip must not fill the memory.
LARGEST_FILE = 512 * 1024 * 1024
#: No size in a manifest is larger: memory is taken for as many.
MOST = 10_000


class Bundle:
    """What ``bundle.json`` says, and the files it names.

    Attributes:
        info: the content of ``bundle.json``.
        history, horizon, modes, dim: observed steps T, future steps F, modes K, channels of a token D.
        step_s: seconds between steps.
        features: what of a scene becomes a token.
        sizes: fixed numbers of agents and lanes, None if any number will do.

    Raises: DataError if a file is missing, damaged, or not what it should be.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir() and not is_zipfile(self.path):
            raise DataError("is no bundle: neither a folder nor a zip file", file=self.path)
        try:
            self.info: dict[str, Any] = json.loads(self._bytes(MANIFEST))
            found = (self.info["format"], self.info["version"])
            if found != (FORMAT, VERSION):
                raise DataError(f"is {found[0]} {found[1]}, this reads {FORMAT} {VERSION}", field="version")
            model = self.info["model"]
            self.history, self.horizon = _count(model, "history"), _count(model, "horizon")
            self.modes, self.dim = _count(model, "modes"), _count(model, "dim")
            self.step_s = _number(model, "step_s")
            require(self.step_s > 0, "step_s", "must be positive")
            self.features = _features(self.info["scene"]["features"])
            sizes = self.info["sizes"]
            self.sizes = None if sizes is None else (_count(sizes, "A"), _count(sizes, "L"))
            self._hashes = {str(name): str(one["sha256"]) for name, one in self.info["files"].items()}
        except DataError as error:
            raise error.located(self.path / MANIFEST) from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            kind = type(error).__name__
            raise DataError(f"is no manifest ({kind}: {error})", file=self.path / MANIFEST) from None

    def read(self, name: str) -> bytes:
        """The file ``name``. Raises: DataError if it is missing or not the one that was exported."""
        if name not in self._hashes:
            raise DataError(f"holds no {name}; it holds {', '.join(self._hashes)}", file=self.path)
        content = self._bytes(name)
        if hashlib.sha256(content).hexdigest() != self._hashes[name]:
            raise DataError("is damaged: not the file that was exported", file=self.path / name)
        return content

    def graph(self, name: str) -> bytes:
        """The ONNX file of a graph."""
        return self.read(f"{name}.onnx")

    def example(self) -> dict[str, NDArray[Any]]:
        """Inputs and outputs of every graph, as ``GRAPH/NAME``. Raises: DataError."""
        content = io.BytesIO(self.read(EXAMPLE))
        try:
            with ZipFile(content) as archive:
                unpacked = sum(one.file_size for one in archive.infolist())
            require(unpacked <= LARGEST_FILE, EXAMPLE, "is larger than any bundle's file")
            with np.load(content, allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception as error:  # damaged bytes make NumPy and zipfile raise anything at all
            raise DataError(f"holds no arrays ({error})", file=self.path / EXAMPLE) from None

    def _bytes(self, name: str) -> bytes:
        file = self.path / name
        try:
            if self.path.is_dir():
                require(file.stat().st_size <= LARGEST_FILE, name, "is larger than any bundle's file")
                return file.read_bytes()
            with ZipFile(self.path) as archive:
                size = archive.getinfo(name).file_size
                require(size <= LARGEST_FILE, name, "is larger than any bundle's file")
                return archive.read(name)
        except Exception as error:  # damaged bytes make zipfile raise anything at all
            raise DataError(f"cannot be read ({error})", file=file) from None


def _count(values: dict[str, Any], name: str, least: int = 1) -> int:
    """A whole number that something is as large as."""
    found = values[name]
    require(type(found) is int and least <= found <= MOST, name, f"must be {least} to {MOST}, is {found!r}")
    return int(found)


def _number(values: dict[str, Any], name: str) -> float:
    found = values[name]
    require(isinstance(found, int | float) and 0 <= found < 1e6, name, f"must be 0 to 1e6, is {found!r}")
    return float(found)


def _features(values: dict[str, Any]) -> FeatureConfig:
    config = FeatureConfig(**values)
    for one in fields(FeatureConfig):
        if isinstance(one.default, int):
            _count(vars(config), one.name, least=0)
        else:
            _number(vars(config), one.name)
    return config


def is_bundle(path: str | Path) -> bool:
    """Whether ``path`` looks like a bundle: a folder, or a zip, with a ``bundle.json``."""
    path = Path(path)
    if path.is_dir():
        return (path / MANIFEST).is_file()
    try:
        with ZipFile(path) as archive:
            return MANIFEST in archive.namelist()
    except Exception:  # what is no zip file makes zipfile raise anything at all
        return False


def scene_values(config: SceneConfig) -> dict[str, dict[str, float]]:
    """``config`` as it stands in ``bundle.json``."""
    return {"features": vars(config.features).copy(), "graph": vars(config.graph).copy()}


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
    ("L", "P", len(LANE_POINT)),
    f"per point {LANE_POINT.describe()}; boundaries from the point; own frame",
)
_LANE = (
    _POINTS,
    Port("kind", "int64", ("L",), "0 vehicle, 1 bike, 2 bus lane, 3 crossing"),
    Port("is_intersection", "int64", ("L",), "0 or 1"),
    Port("marks", "int64", ("L", len(LANE_MARKS)), "left and right mark, an index of bundle.json"),
)
_LANE_TOKEN = Port("lane_token", "float32", ("L", "D"), "what a lane segment is by itself")
_AGENT = (
    Port(
        "history",
        "float32",
        ("A", "T", len(HISTORY)),
        f"{HISTORY.describe()}; own frame; zeros at steps without observation",
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
