"""Explain in one sentence why a model cannot be traced: the module, the operation, the reason."""

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
    names = {id(one): type(one).__name__ for one in module.modules()}
    found = _innermost(cause.__traceback__, names) or _innermost(error.__traceback__, names)
    reason = next((line for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
    return f"{found or type(module).__name__} cannot be traced: {reason.strip().rstrip('.')}"


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
        return f"cannot be converted to ONNX: {messages[-1].splitlines()[0]}"
    for traced in (program, program.run_decompositions()):
        for node in traced.graph.nodes:
            stack = node.meta.get("nn_module_stack")
            if stack and named[1] == str(node.target):
                kind = list(stack.values())[-1][1]
                owner = (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]
                if owner == type(module).__name__:  # a graph, whose first part is the model
                    owner = type(next(module.children(), module)).__name__
                return f"{owner} uses the operation {named[1]}, which ONNX lacks"
    return f"uses the operation {named[1]}, which ONNX lacks"
