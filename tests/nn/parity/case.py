"""One parity case: its options, arrays and tolerance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Options(dict[str, Any]):
    """Options of a case, which record what was read, so that an unknown option is an error."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.unread = set(values)

    def __getitem__(self, name: str) -> Any:
        self.unread.discard(name)
        return super().__getitem__(name)

    def ignore(self, *names: str) -> None:
        """Mark options that describe how the case was made and do not concern the operator."""
        self.unread -= set(names)


class Case:
    """Arrays as tensors by name: ``case["x"]``, ``"x" in case``."""

    def __init__(self, path: Path) -> None:
        description = json.loads(path.read_text())
        self.path = path
        self.layer = path.parent.name
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
        """Copy array ``name`` into ``parameter``; both must exist, or neither."""
        assert (parameter is None) == (name not in self), f"{name}: the operator and the case disagree"
        if parameter is not None:
            assert parameter.shape == self[name].shape, f"{name}: {parameter.shape} != {self[name].shape}"
            with torch.no_grad():
                parameter.copy_(self[name])

    def load_linear(self, linear: nn.Linear, name: str, prefix: str = "") -> None:
        """Load ``W_name`` and, if there is one, ``b_name``."""
        self.load(linear.weight, f"{prefix}W_{name}")
        self.load(linear.bias, f"{prefix}b_{name}")

    def load_norm(self, norm: nn.Module | None, name: str) -> None:
        """Load a layer or batch normalisation; neither the operator nor the case may have it alone."""
        norm = getattr(norm, "module", norm)  # PyG's BatchNorm holds torch's
        names = {"weight": "gamma", "bias": "beta"} | {x: x for x in ("running_mean", "running_var")}
        for ours, theirs in names.items():
            self.load(getattr(norm, ours, None), f"{name}_{theirs}")

    def close_statistics(self, norm: nn.Module | None, name: str, training: bool) -> None:
        """Compare the running statistics of a batch normalisation after a forward in training."""
        for statistic in ("running_mean", "running_var"):
            assert (f"after_{name}_{statistic}" in self) == (norm is not None and training)
            if norm is not None and training:
                self.close(getattr(norm.module, statistic), f"after_{name}_{statistic}")

    def close(self, actual: Tensor, name: str, rows: Tensor | None = None) -> None:
        """Assert that ``actual`` equals array ``name`` in ``rows``, to the tolerance of the case."""
        expected = self[name] if rows is None else self[name][rows]
        torch.testing.assert_close(
            actual.detach() if rows is None else actual.detach()[rows],
            expected.to(actual.dtype),
            **self.tolerance,
        )
