"""Say in one sentence which module cannot be traced or converted, and why."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from types import TracebackType

from torch import nn
from torch.export import ExportedProgram


def tracing_failure(error: BaseException, module: nn.Module) -> str:
    """Name the innermost submodule of ``module`` and its line of code that raised while it was traced."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    names = {id(submodule): type(submodule).__name__ for submodule in module.modules()}
    place = _innermost(cause.__traceback__, names) or _innermost(error.__traceback__, names)
    reason = type(cause).__name__
    message = str(cause).lstrip()
    if message:
        reason = message.splitlines()[0]
    if reason.startswith("Constraints violated"):
        reason = "Python's int, range or a comparison fixes a size of the scene"
    return f"{place or model_name(module)} cannot be traced: {reason.strip().rstrip('.')}"


def _innermost(trace: TracebackType | None, names: dict[int, str]) -> str | None:
    """Return the last frame whose ``self`` is one of the modules, with its line of code."""
    place = None
    for frame, line in traceback.walk_tb(trace):
        owner = names.get(id(frame.f_locals.get("self")))
        if owner is not None:
            file = Path(frame.f_code.co_filename).name
            code = traceback.FrameSummary(frame.f_code.co_filename, line, "").line
            place = f"{owner} in {file}, line {line}, `{code}`,"
    return place


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
                _, kind = list(stack.values())[-1]
                if not isinstance(kind, str):
                    kind = kind.__name__
                owner = str(kind).rpartition(".")[2]
                if owner == type(module).__name__:
                    return model_name(module)
                return owner
    return model_name(module)


def model_name(module: nn.Module) -> str:
    """Name the class of ``module``; of a graph of this package, which wraps a model, that of the model."""
    if type(module).__module__.startswith("trajpred.export."):
        module = next(module.children(), module)
    return type(module).__name__
