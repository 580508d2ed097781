"""A simulated accelerator: its tensors claim another device, and compute on the CPU.

As on a GPU, an operation on tensors of two devices is an error, ``is_cuda`` is true, and random numbers come
from a generator of its own. What would make a GPU wait for the host is counted. Unlike on a GPU, autocast
casts nothing. PyTorch cannot forget a device: import this in a process of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from pytorch_lightning.accelerators import AcceleratorRegistry, CPUAccelerator
from torch import Tag, Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "simulated"
#: Operations whose result cannot be queued: the host needs a value, or the size of the result.
WAITING = (Tag.data_dependent_output, Tag.dynamic_output_shape)
#: What makes tensors of the device; everything else is composed of it.
CREATING = (
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.arange.default,
    torch.ops.aten.arange.start,
    torch.ops.aten.arange.start_step,
    torch.ops.aten.eye.default,
    torch.ops.aten.eye.m,
)
#: What made the device wait for the host since :func:`counted` began.
_waits: Counter[str] = Counter()


class SimulatedModule:
    """What PyTorch asks the module of a backend, such as ``torch.cuda``."""

    state = torch.Generator().get_state()

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    def manual_seed_all(self, seed: int) -> None:
        self.state = torch.Generator().manual_seed(seed).get_state()

    def get_rng_state(self, device: torch.device) -> Tensor:
        return self.state

    def set_rng_state(self, state: Tensor, device: torch.device) -> None:
        self.state = state

    @contextmanager
    def generator(self) -> Iterator[None]:
        """Draw from the generator of the device; that of the CPU is left as it is."""
        of_cpu = torch.get_rng_state()
        torch.set_rng_state(self.state)
        yield
        self.state = torch.get_rng_state()
        torch.set_rng_state(of_cpu)


class SimulatedTensor(torch.Tensor):
    """A tensor of the device, around ``host``, which has its values."""

    host: Tensor
    is_cuda = property(lambda self: True)

    @staticmethod
    def __new__(cls, host: Tensor) -> SimulatedTensor:
        layout = {"strides": host.stride(), "storage_offset": host.storage_offset()}
        options = {"dtype": host.dtype, "device": DEVICE}
        with torch.inference_mode(host.is_inference()):  # views of what was made before inference are not
            return torch.Tensor._make_wrapper_subclass(cls, host.shape, **layout, **options)

    def __init__(self, host: Tensor) -> None:
        self.host = host

    def __repr__(self) -> str:  # type: ignore[override]
        return f"SimulatedTensor({self.host})"

    def __reduce_ex__(self, protocol: int) -> Any:
        """Save the values alone: whoever loads them says where to."""
        return self.host.__reduce_ex__(protocol)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(
        cls, operation: OpOverload, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():  # elsewhere autograd has decomposed them
            result = operation.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if operation in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            return _copy(operation, args, kwargs)
        _require_one_device(operation, args, kwargs)
        if _waits_for_host(operation, args, kwargs):
            _waits[operation.name()] += 1
        if Tag.nondeterministic_seeded in operation.tags:
            with MODULE.generator():
                return _compute(operation, args, kwargs)
        return _compute(operation, args, kwargs)


class SimulatedAccelerator(CPUAccelerator):
    """Lightning's accelerator for ``SingleDeviceStrategy(DEVICE)``."""

    def setup_device(self, device: torch.device) -> None:
        assert device == DEVICE


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count by operation how often the device waits for the host."""
    before = _waits.copy()
    counts: Counter[str] = Counter()
    yield counts
    counts.update(_waits - before)


def _compute(operation: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run on the host, and return tensors of the device: the argument itself if it was changed in place."""
    tensors = {id(x.host): x for x in tree_leaves((args, kwargs)) if isinstance(x, SimulatedTensor)}
    result = operation(*tree_map(_on_host, args), **tree_map(_on_host, kwargs))

    def on_device(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        argument = tensors.get(id(x))
        if argument is None:
            return SimulatedTensor(x)
        assert argument.shape == x.shape, (
            f"{operation} has resized a tensor: add what it belongs to to CREATING"
        )
        return argument

    return tree_map(on_device, result)


def _copy(operation: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Copy within the device, to it or from it; only the first does not wait."""
    result = operation(*tree_map(_on_host, args), **tree_map(_on_host, kwargs))
    if operation == torch.ops.aten.copy_.default:
        source = args[1].device
        target = args[0].device
        result = args[0]
    else:
        source = args[0].device
        target = kwargs.get("device") or source
        if target == DEVICE:
            result = SimulatedTensor(result)
    if target != source:
        _waits[f"copy from {source.type} to {target.type}"] += 1
    return result


def _require_one_device(operation: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise RuntimeError if arguments are on another device, unless a GPU would take them."""
    if _is_indexing(operation):  # indices may be on the CPU
        args = (args[0], *args[2:])
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    takes_numbers = Tag.pointwise in operation.tags
    for x in tensors:
        is_number = x.ndim == 0 and takes_numbers
        if not isinstance(x, SimulatedTensor) and not is_number:
            devices = [f"{x.device.type} {tuple(x.shape)}" for x in tensors]
            raise RuntimeError(f"{operation} on tensors of several devices: {', '.join(devices)}")


def _waits_for_host(operation: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    if _is_indexing(operation):  # masks have as many indices as True values; others are copied from the CPU
        indices = [x for x in args[1] if isinstance(x, Tensor)]
        return any(x.dtype == torch.bool or x.device != DEVICE for x in indices)
    if operation == torch.ops.aten.repeat_interleave.Tensor:
        return kwargs.get("output_size") is None
    return any(tag in operation.tags for tag in WAITING)


def _is_indexing(operation: OpOverload) -> bool:
    aten = torch.ops.aten
    return operation.overloadpacket in (aten.index, aten.index_put, aten.index_put_)


def _on_host(x: Any) -> Any:
    if isinstance(x, SimulatedTensor):
        return x.host
    return torch.device("cpu") if isinstance(x, torch.device) else x


def _create(operation: OpOverload, *args: Any, **options: Any) -> Tensor:
    return SimulatedTensor(operation(*args, **options | {"device": "cpu"}))


MODULE = SimulatedModule()
torch._C._set_only_lift_cpu_tensors(True)
_setup_privateuseone_for_python_backend(NAME, backend_module=MODULE)
DEVICE = torch.device(NAME, 0)
_LIBRARY = torch.library.Library("aten", "IMPL")
for _operation in CREATING:
    _LIBRARY.impl(_operation, partial(_create, _operation), "PrivateUse1")
AcceleratorRegistry.register(NAME, SimulatedAccelerator)
