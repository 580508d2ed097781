"""Bundles on disk: the tensors of each graph, and a reader for the folder or zip file. NumPy only.

A bundle contains ``bundle.json`` (a description of everything else), one ONNX file per graph, ``example.npz``
(inputs and outputs for testing other runtimes), ``INTERFACE.md`` (``bundle.json`` for human readers) and, for
shipped weights, their ``LICENSE``.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray

from trajpred.data.environment import command_words
from trajpred.errors import DataError, quoted, require
from trajpred.features.config import (
    HISTORY,
    LANE_MARKS,
    LANE_POINT,
    MAX_NUMBER,
    MAX_SIZE,
    FeatureConfig,
    GraphConfig,
)
from trajpred.features.lane_futures import MODES

#: The file that describes everything else.
MANIFEST = "bundle.json"
#: The file of inputs and outputs for testing other runtimes.
EXAMPLE = "example.npz"
#: The description for human readers.
INTERFACE = "INTERFACE.md"
#: The licence of the weights, if they ship with trajpred.
LICENCE = "LICENSE"
#: ``format`` and ``version`` in ``bundle.json``; other values are rejected.
FORMAT = "trajpred-bundle"
VERSION = 2
#: Limits on an unpacked file and on the manifest (bytes), against damaged or hostile bundles.
MAX_FILE_BYTES = 2**29
MAX_MANIFEST_BYTES = 2**22


class Port(NamedTuple):
    """An input or output of a graph.

    Attributes:
        name: as in the ONNX file.
        dtype: as in the ONNX file.
        shape: integers are fixed by the model. ``A`` agents, ``L`` lane segments and crossings, and ``B``
            agents to predict depend on the scene, or are the bundle's fixed sizes. Other letters are sizes of
            the model: ``T`` observed steps, ``P`` points per polyline, ``D`` channels per token, ``K`` modes,
            ``F`` future steps, ``S`` steps of the anchors, ``W`` eigenvectors.
        meaning: meaning, with unit and frame.
    """

    name: str
    dtype: str
    shape: tuple[str | int, ...]
    meaning: str


class Signature(NamedTuple):
    """Inputs and outputs of a graph, in order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


_POINTS = f"per point {LANE_POINT.describe()}; boundaries from the point; own frame"
_LANE = (
    Port("points", "float32", ("L", "P", len(LANE_POINT)), _POINTS),
    Port("kind", "int64", ("L",), "0 vehicle, 1 bike, 2 bus lane, 3 crossing"),
    Port("is_intersection", "int64", ("L",), "0 or 1"),
    Port("marks", "int64", ("L", len(LANE_MARKS)), "left and right mark, an index of bundle.json"),
)
_LANE_TOKEN = Port("lane_token", "float32", ("L", "D"), "a lane segment on its own")
_STATES = f"{HISTORY.describe()}; own frame; zeros at steps without observation"
_AGENT = (
    Port("history", "float32", ("A", "T", len(HISTORY)), _STATES),
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
_LINKS = "relation of the column to the row: 1 successor, 2 predecessor, 3 left, 4 right neighbour; 0 none"
_TOPOLOGY = Port("lane_topology", "int64", ("L", "L"), _LINKS)
_SPECTRUM = "eigenvectors of the Laplacian of the lane topology (trajpred.data.geometry); zeros for padding"
_EIGENVECTORS = Port("lane_eigenvectors", "float32", ("L", "W"), _SPECTRUM)
_MOTION = (
    Port("agent_velocity", "float32", ("A", 2), "m/s where last seen, own frame"),
    Port("agent_elapsed_s", "float32", ("A",), "s since last seen"),
)
_PATHS = "m, own frame: futures along the lanes, the most probable first (trajpred.features.lane_futures)"
_START = (*_MOTION, Port("agent_anchors", "float32", ("A", MODES, "S", 2), _PATHS))
_SCENE_HEADING = Port("scene_heading", "float32", (), "rad, of the agent at the scene's origin")
_STEP = Port("step_s", "float32", (), "s between steps")
_TARGET = Port("target", "int64", ("B",), "rows of the agents to predict")
_TOKENS = (
    Port("agent_token", "float32", ("A", "D"), "an agent in its surroundings"),
    Port("lane_context", "float32", ("L", "D"), "a lane segment in its surroundings"),
)
_FUTURES = (
    Port("trajectory", "float32", ("B", "K", "F", 2), "m, own frame: x ahead, y left of where last seen"),
    Port("scale", "float32", ("B", "K", "F", 2), "m, Laplace scales along the same axes"),
    Port("probability", "float32", ("B", "K"), "of each mode; sums to 1"),
)

_CONTEXT = (_EIGENVECTORS, _SCENE_HEADING)

#: By graph, in order of execution: all inputs that a graph may have. It has only those it uses.
SIGNATURES = {
    "lane_encoder": Signature(_LANE, (_LANE_TOKEN,)),
    "encoder": Signature(
        (*_AGENT, *_AGENT_POSE, _LANE_TOKEN, *_LANE_POSE, _TOPOLOGY, *_MOTION, *_CONTEXT, _STEP), _TOKENS
    ),
    "decoder": Signature(
        (*_TOKENS, *_AGENT_POSE, *_START, *_LANE_POSE, _TARGET, _STEP, *_AGENT, _TOPOLOGY, *_CONTEXT),
        _FUTURES,
    ),
    "forecaster": Signature(
        (*_AGENT, *_AGENT_POSE, *_START, *_LANE, *_LANE_POSE, _TOPOLOGY, _TARGET, _STEP, *_CONTEXT),
        (*_FUTURES, *_TOKENS),
    ),
}
#: The graphs of a whole model.
GRAPHS = ("lane_encoder", "encoder", "decoder")
#: The graphs of the encoder alone.
ENCODER_GRAPHS = ("lane_encoder", "encoder")
#: The optional graph that combines all others.
FUSED = "forecaster"


def resolved(port: Port, sizes: Mapping[str, int]) -> list[str | int]:
    """Return the shape of ``port`` with the letters in ``sizes`` replaced by numbers."""
    return [sizes.get(size, size) if isinstance(size, str) else size for size in port.shape]


class Bundle:
    """An opened bundle: its description, and access to its files.

    Example:
        >>> bundle = Bundle("bundle.zip")
        >>> bundle.history, bundle.horizon, bundle.modes, bundle.precision

    Attributes:
        info: content of ``bundle.json``.
        name: name of the model.
        precision: precision of the graphs.
        training: record of its training.
        licence: licence of its weights; empty unless they ship with trajpred.
        graphs: names of the graphs; a bundle of the encoder alone has no decoder.
        history: observed steps T.
        dim: channels per token D.
        horizon: future steps F; 0 without a decoder.
        modes: modes K; 0 without a decoder.
        step_s: seconds between steps.
        features: configuration of the agents and lanes that become tokens.
        eigenvectors: number of eigenvectors of the lane topology that the graphs take.
        sizes: fixed numbers of agents and lanes, or None for any number.

    Raises: DataError if a file is missing, damaged or invalid.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.exists():
            advice = f"make one with trajpred export --out {command_words(path)}"
            raise DataError(f"no such bundle; {advice}", file=self.path)
        if self.path.is_dir() and not is_bundle(self.path):
            raise DataError(f"not a bundle: it has no {MANIFEST}; trajpred export makes one", file=self.path)
        if not self.path.is_dir() and not (self.path.is_file() and is_zipfile(self.path)):
            raise DataError("not a bundle: neither a folder nor a zip file", file=self.path)
        try:
            self.info: dict[str, Any] = json.loads(self._read(MANIFEST, MAX_MANIFEST_BYTES))
            self._parse(self.info)
        except DataError as error:
            raise error.located(self.path / MANIFEST) from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            message = f"not a manifest ({type(error).__name__}: {error})"
            raise DataError(message, file=self.path / MANIFEST) from None

    def __repr__(self) -> str:
        size = ""
        if self.sizes is not None:
            agents, lanes = self.sizes
            size = f", {agents} agents, {lanes} lanes"
        steps = f"encoder of {self.history} steps"
        if self.modes:
            steps = f"{self.modes} modes of {self.horizon} steps from {self.history}"
        return f"Bundle({self.path}: {self.name}, {steps}, {self.precision}{size})"

    def read(self, name: str) -> bytes:
        """Read a file of the bundle. Raises: DataError if it is missing or its SHA-256 differs."""
        if name not in self._sha256:
            raise DataError(f"has no {name}, only {', '.join(self._sha256)}", file=self.path)
        content = self._read(name)
        if hashlib.sha256(content).hexdigest() != self._sha256[name]:
            raise DataError("damaged: differs from the exported file", file=self.path / name)
        return content

    def require_signature(self, graph: str, found: Signature) -> None:
        """Compare a graph's file with its signature and with the sizes in ``bundle.json``.

        Args:
            found: inputs and outputs; a size that is not an integer is dynamic and fits any.

        Raises: DataError that names the file and the field at fault.
        """
        file = self.path / f"{graph}.onnx"
        signature = SIGNATURES[graph]
        inputs = {port.name: port for port in signature.inputs}
        outputs = {port.name: port for port in signature.outputs}
        unknown = [port.name for port in found.inputs if port.name not in inputs]
        if unknown:
            raise DataError(f"contain the unknown {', '.join(unknown)}", file=file, field="inputs")
        names = [port.name for port in found.outputs]
        if names != list(outputs):
            message = f"are {', '.join(names)}, must be {', '.join(outputs)}"
            raise DataError(message, file=file, field="outputs")
        known = inputs | outputs
        for port in (*found.inputs, *found.outputs):
            _require_kind(file, port, known[port.name])
            self._require_sizes(file, port, known[port.name])

    def _require_sizes(self, file: Path, found: Port, expected: Port) -> None:
        """Compare the shape of a port of the graph ``file`` with ``bundle.json``. Raises: DataError."""
        sizes = self._sizes_by_letter()
        for size, letter in zip(found.shape, expected.shape, strict=True):
            if isinstance(size, int) and isinstance(letter, str):
                field, value = sizes[letter]
                if size != value:
                    message = f"is {json.dumps(value)}, but {file.name} has {_described(found)}"
                    raise DataError(message, file=self.path / MANIFEST, field=field)

    def _sizes_by_letter(self) -> dict[str, tuple[str, int | None]]:
        """Return the manifest's field and value of each letter in the shapes of ports; None fits any size."""
        agents, lanes = self.sizes or (None, None)
        return {
            "A": ("sizes", agents),
            "B": ("sizes", agents),
            "L": ("sizes", lanes),
            "T": ("history", self.history),
            "P": ("lane_points", self.features.lane_points),
            "D": ("dim", self.dim),
            "K": ("modes", self.modes),
            "F": ("horizon", self.horizon),
            "S": ("anchor_steps", self.features.anchor_steps),
            "W": ("eigenvectors", self.eigenvectors),
        }

    def example(self) -> dict[str, NDArray[Any]]:
        """Read inputs and outputs of every graph, by ``GRAPH/NAME``. Raises: DataError."""
        content = io.BytesIO(self.read(EXAMPLE))
        try:
            with ZipFile(content) as archive:
                unpacked = sum(file.file_size for file in archive.infolist())
            _require_small(unpacked, EXAMPLE)
            with np.load(content, allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception as error:  # NumPy and zipfile raise many types for damaged bytes
            raise DataError(f"contains no arrays ({error})", file=self.path / EXAMPLE) from None

    def _parse(self, info: dict[str, Any]) -> None:
        """Set the attributes from the content of ``bundle.json``. Raises: DataError naming the field."""
        version = (info["format"], info["version"])
        supported = (FORMAT, VERSION)
        if version != supported:
            raise DataError(f"is {version}, not {supported}: export the bundle again", field="version")
        model = info["model"]
        sizes = info["sizes"]
        self.graphs = tuple(str(name) for name in info["graphs"])
        self.history = _size(model, "history")
        self.dim = _size(model, "dim")
        has_decoder = "decoder" in self.graphs
        self.horizon = _size(model, "horizon") if has_decoder else 0
        self.modes = _size(model, "modes") if has_decoder else 0
        step_s = model["step_s"]
        valid = type(step_s) in (int, float) and 0 < step_s <= MAX_NUMBER
        positive = f"must be a positive number up to {MAX_NUMBER:g}, is {quoted(step_s)}"
        require(valid, "step_s", positive)
        self.step_s = float(step_s)
        self.features = FeatureConfig(**info["scene"]["features"])
        self.eigenvectors = GraphConfig(**info["scene"]["graph"]).eigenvectors
        self.name = str(info["name"])
        self.precision = str(info["precision"])
        self.licence = str(info["licence"])
        self.training: dict[str, Any] = model["training"]
        require(isinstance(self.training, dict), "training", "must be a mapping")
        self.sizes = None if sizes is None else (_size(sizes, "A"), _size(sizes, "L"))
        self._sha256 = {str(name): str(file["sha256"]) for name, file in info["files"].items()}

    def _read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a file in the folder or archive. Raises: DataError."""
        file = self.path / name
        try:
            if self.path.is_dir():
                require(file.is_file() or not file.exists(), name, "is not a regular file")
                _require_small(file.stat().st_size, name, limit)
                return file.read_bytes()
            with ZipFile(self.path) as archive:
                _require_small(archive.getinfo(name).file_size, name, limit)
                return archive.read(name)
        except Exception as error:  # zipfile raises many types for damaged bytes
            raise DataError(f"cannot be read ({error})", file=file) from None


def is_bundle(path: str | Path) -> bool:
    """Return whether ``path`` is a folder or a zip file that contains ``bundle.json``."""
    path = Path(path)
    if not path.is_file():
        return (path / MANIFEST).exists()
    try:
        with ZipFile(path) as archive:
            return MANIFEST in archive.namelist()
    except Exception:  # zipfile raises many types for other files
        return False


def _require_kind(file: Path, found: Port, expected: Port) -> None:
    """Compare type, number of axes and constant sizes of a port of the graph ``file``. Raises: DataError."""
    same = found.dtype == expected.dtype and len(found.shape) == len(expected.shape)
    for size, constant in zip(found.shape, expected.shape, strict=False):
        if isinstance(size, int) and isinstance(constant, int):
            same = same and size == constant
    if not same:
        message = f"has {_described(found)}, must have {_described(expected)}"
        raise DataError(message, file=file, field=found.name)


def _described(port: Port) -> str:
    return f"{port.name} as {port.dtype} [{', '.join(map(str, port.shape))}]"


def _require_small(size: int, name: str, limit: int = MAX_FILE_BYTES) -> None:
    require(size <= limit, name, f"has {size:,} bytes, more than {limit:,}")


def _size(values: dict[str, Any], name: str) -> int:
    value = values[name]
    valid = type(value) is int and 1 <= value <= MAX_SIZE
    require(valid, name, f"must be an integer from 1 to {MAX_SIZE}, is {quoted(value)}")
    return int(value)
