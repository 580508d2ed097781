"""Explain in one sentence why a model cannot be traced: the module, the operation, the reason."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode


class SizesStayOpen(TorchFunctionMode):
    """Raise where ``len`` of a tensor would fix a size of the scene in the graph."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.__len__ and isinstance(args[0].shape[0], torch.SymInt):
            raise TypeError("len fixes a size of the scene, use x.shape[0]")
        return func(*args, **(kwargs or {}))


def tracing_failure(error: BaseException, module: nn.Module) -> str:
    """Name the innermost submodule of ``module`` and its line of code that raised while it was traced."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    names = {id(one): type(one).__name__ for one in module.modules()}
    found = _innermost(cause.__traceback__, names) or _innermost(error.__traceback__, names)
    reason = next((line for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
    if reason.startswith("Constraints violated"):
        reason = "Python's int, range or a comparison fixes a size of the scene"
    return f"{found or model_name(module)} cannot be traced: {reason.strip().rstrip('.')}"


def _innermost(trace: TracebackType | None, names: dict[int, str]) -> str | None:
    """Return the last frame whose ``self`` is one of the modules, with its line of code."""
    found = None
    for frame, line in traceback.walk_tb(trace):
        owner = names.get(id(frame.f_locals.get("self")))
        if owner is not None:
            file = Path(frame.f_code.co_filename).name
            code = traceback.FrameSummary(frame.f_code.co_filename, line, "").line
            found = f"{owner} in {file}, line {line}, `{code}`,"
    return found


def conversion_failure(error: BaseException, program: ExportedProgram, module: nn.Module) -> str:
    """Name the operation that ONNX lacks, and the submodule of ``module`` that uses it."""
    messages: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        messages.append(str(cause))
        cause = cause.__cause__
    named = re.search(r"target=torch\.ops\.([\w.]+)", "\n".join(messages))
    if named is None:
        return f"{model_name(module)} cannot be converted to ONNX: {messages[-1].splitlines()[0]}"
    return f"{user_of(named[1], program, module)} uses the operation {named[1]}, which ONNX lacks"


def user_of(operation: str, program: ExportedProgram, module: nn.Module) -> str:
    """Name the innermost submodule of ``module`` that uses an operation, ``aten.NAME.OVERLOAD``."""
    for traced in (program, program.run_decompositions()):
        for node in traced.graph.nodes:
            stack = node.meta.get("nn_module_stack")
            if stack and operation == str(node.target):
                kind = list(stack.values())[-1][1]
                owner = (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]
                return model_name(module) if owner == type(module).__name__ else owner
    return model_name(module)


def model_name(module: nn.Module) -> str:
    """Name the class of ``module``; of a graph of this package, which wraps a model, that of the model."""
    if type(module).__module__.startswith("trajpred.export."):
        module = next(module.children(), module)
    return type(module).__name__
