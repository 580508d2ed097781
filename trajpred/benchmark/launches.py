"""Count the launches, waits and copies of a training step on a GPU, without a GPU."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from trajpred.graph.scene_graph import SceneBatch
from trajpred.training.lit_forecaster import LitForecaster

#: Operations that change no memory on the device, besides views.
_FREE = {"alias", "detach", "empty", "empty_like", "empty_strided", "lift_fresh", "new_empty"}
_FREE |= {"new_empty_strided", "promote_types", "reshape", "_unsafe_view"}
#: Operations that read the device to know a number or the size of their result.
_READING = {"_local_scalar_dense", "_unique2", "bincount", "equal", "masked_select", "nonzero", "unique_dim"}


def step_counts(model: LitForecaster, batch: SceneBatch) -> dict[str, float]:
    """Count operations of a forward and backward pass on the CPU, in the form that runs on a GPU.

    What training and its loader do beside the model (transfer, optimiser, logs) is not counted.

    Returns:
        Numbers of operations, of calls that wait for the device, and of constants copied to it.
    """
    model.train()
    model.losses(batch)["loss"].backward()  # creates what later steps keep
    model.zero_grad()
    with _AsOnGPU() as host, _Operations() as device:
        model.losses(batch)["loss"].backward()
    counts = host.counts + device.counts
    return {name: counts[name] for name in ("operations", "waits", "copies")}


class _AsOnGPU(TorchFunctionMode):
    """Report tensors as being on a GPU, and count those that are read as lists."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return True
        self.counts["waits"] += func in (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu)
        return func(*args, **(kwargs or {}))


class _Operations(TorchDispatchMode):
    """Count operations as a device sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, overload = func.overloadpacket.__name__, func._overloadname
        self.counts["operations"] += not (func.is_view or name in _FREE)
        self.counts["copies"] += name == "lift_fresh"  # a tensor made from numbers of Python
        indices = (
            [x for x in args[1] if x is not None] if name in ("index", "index_put", "index_put_") else []
        )
        by_mask = any(index.dtype in (torch.bool, torch.uint8) for index in indices)
        repeats = name == "repeat_interleave" and overload == "Tensor"
        self.counts["waits"] += name in _READING or by_mask or repeats
        return func(*args, **(kwargs or {}))
