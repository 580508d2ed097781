"""A bundle as it lies on disk: a folder, or a zip of one. NumPy only.

``bundle.json`` says what is in it; the graphs are ONNX files; ``example.npz`` holds inputs and outputs to
test another runtime with; ``INTERFACE.md`` tells people what ``bundle.json`` tells programs.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import fields
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.graph.config import FeatureConfig, SceneConfig

MANIFEST, EXAMPLE, INTERFACE = "bundle.json", "example.npz", "INTERFACE.md"
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
