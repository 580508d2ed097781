"""One parity case: options, arrays, tolerance; and how a case is checked."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Options(Mapping[str, Any]):
    """The options of a case; remembers which were read, so that an unknown one cannot pass unnoticed."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values, self.unread = values, set(values)

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        self.unread.discard(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def ignore(self, *names: str) -> None:
        """These describe how the case was made and change nothing in the operator."""
        self.unread -= set(names)


class Case:
    """``case["x"]`` is the array ``x`` as a tensor; ``"x" in case`` tells whether there is one."""

    def __init__(self, path: Path) -> None:
        description = json.loads(path.read_text())
        self.path, self.layer = path, path.parent.name
        self.options = Options(description["options"])
        self.tolerance: dict[str, float] = description["tolerance"]
        with np.load(path.with_suffix(".npz")) as arrays:
            self._arrays = {name: torch.from_numpy(arrays[name]) for name in arrays.files}

    def __getitem__(self, name: str) -> Tensor:
        return self._arrays[name]

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def get(self, name: str) -> Tensor | None:
        return self._arrays.get(name)

    def names(self, prefix: str = "") -> list[str]:
        return [name for name in self._arrays if name.startswith(prefix)]

    def load(self, parameter: Tensor | None, name: str) -> None:
        """Copy array ``name`` into ``parameter``; both must be there, or both be absent."""
        assert (parameter is None) == (name not in self), f"{name}: the operator and the case disagree"
        if parameter is not None:
            assert parameter.shape == self[name].shape, f"{name}: {parameter.shape} != {self[name].shape}"
            with torch.no_grad():
                parameter.copy_(self[name])

    def load_linear(self, linear: nn.Linear, name: str) -> None:
        """``W_name`` and, where there is one, ``b_name``."""
        self.load(linear.weight, f"W_{name}")
        self.load(linear.bias, f"b_{name}")

    def close(self, actual: Tensor, name: str, rows: Tensor | None = None) -> None:
        """Assert that ``actual`` equals array ``name`` (its ``rows`` only) to the case's tolerance."""
        expected = self[name] if rows is None else self[name][rows]
        torch.testing.assert_close(
            actual.detach() if rows is None else actual.detach()[rows],
            expected.to(actual.dtype),
            **self.tolerance,
        )


def cases(root: Path) -> list[Path]:
    """All cases of all layer folders below ``root``."""
    return sorted(root.glob("*/*.json"))


def check(path: Path) -> None:
    """Compare one case with our operator; a layer or an option that the tests do not know is a failure."""
    case = Case(path)
    importlib.import_module(f"tests.nn.parity.{case.layer}").check(case)
    assert not case.options.unread, f"options that the test does not know: {sorted(case.options.unread)}"
