"""Choice of a training's devices and processes, and reductions over the processes.

Without a distributed run, reductions return their argument.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from timeit import Timer
from typing import Any

import torch
from torch import Tensor, distributed

from trajpred.data.environment import cores, threads_alone
from trajpred.errors import DataError

#: Least number of scenes per step that justifies another process.
SCENES_PER_PROCESS = 4
#: Supported precisions: for others, Lightning converts the model's weights but not the scenes.
PRECISIONS = ("32-true", "16-mixed", "bf16-mixed")
#: Ratio of times below which bfloat16 is worth its rounding.
_FASTER = 0.8
#: Environment variables set if another program has started the processes.
LAUNCHERS = ("TORCHELASTIC_RUN_ID", "SLURM_NTASKS")


def choose_devices(trainer: Any, batch_size: int, scenes: int) -> dict[str, Any]:
    """Return the trainer's ``accelerator``, and ``devices`` unless the user or a launcher decides on them.

    On a CPU, devices are single-threaded processes, which share a step better than threads do: one per core
    if each has several scenes to compute; a single process uses a few threads, which is set here. Lightning
    starts them with this process's command line, which must therefore be the train command.

    Args:
        trainer: the trainer's settings.
        batch_size: scenes per step.
        scenes: number of scenes for training or validation, whichever is less: each process needs one.

    Raises: DataError if there is no GPU to use.
    """
    accelerator = choose_accelerator(trainer.accelerator)
    by_user = trainer.devices != "auto" or trainer.strategy != "auto" or trainer.num_nodes != 1
    by_launcher = any(name in os.environ for name in LAUNCHERS)
    if accelerator != "cpu" or by_user or by_launcher or not _is_train_command():
        return {"accelerator": accelerator}
    processes = max(1, min(cores(), batch_size // SCENES_PER_PROCESS, scenes))
    torch.set_num_threads(1 if processes > 1 else threads_alone())
    return {"accelerator": accelerator, "devices": processes}


def _is_train_command() -> bool:
    """Return whether this process was started as the train command."""
    program = Path(sys.argv[0])
    if program.name == "train.py":
        return True
    return "trajpred" in (program.stem, program.parent.name) and sys.argv[1:2] == ["train"]


def check_precision(name: Any) -> None:
    """Raise :class:`DataError` unless Lightning's precision ``name`` is one of :data:`PRECISIONS`."""
    # Lightning also accepts the part before the dash: 32, 16, bf16.
    short_names = [precision.partition("-")[0] for precision in PRECISIONS]
    if name is not None and str(name) not in (*PRECISIONS, *short_names):
        raise DataError(f"--trainer.precision {name}: must be one of {', '.join(PRECISIONS)}")


def computes_faster_in_bf16(accelerator: Any) -> bool:
    """Return whether the device multiplies matrices clearly faster in bfloat16; measured now on a CPU."""
    if accelerator != "cpu":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    seconds: dict[torch.dtype, float] = {}
    for dtype in (torch.float32, torch.bfloat16):
        rows = torch.ones(2048, 128, dtype=dtype)
        weight = torch.ones(128, 128, dtype=dtype)
        timer = Timer("rows @ weight", globals={"rows": rows, "weight": weight})
        seconds[dtype] = min(timer.repeat(repeat=10, number=4))
    return seconds[torch.bfloat16] < _FASTER * seconds[torch.float32]


def choose_accelerator(name: Any) -> Any:
    """Return the accelerator that ``auto`` stands for. Raises: DataError if it cannot be used."""
    gpu = torch.cuda.is_available()
    missing = "there is no GPU that torch can use (see trajpred doctor): give auto or cpu"
    if name in ("gpu", "cuda") and not gpu:
        raise DataError(f"--trainer.accelerator {name}: {missing}")
    # Unlike Lightning's, our auto never means mps.
    lacks = "Apple's GPUs lack float64, which origins and metric sums need: give auto or cpu"
    if name == "mps":
        raise DataError(f"--trainer.accelerator mps: {lacks}")
    if name != "auto":
        return name
    return "gpu" if gpu else "cpu"


def process_count() -> int:
    """Return the number of processes that train together."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


def sum_over_processes(values: Tensor) -> Tensor:
    """Sum ``values`` of any shape over all processes, which must all call this; detached."""
    values = values.detach()
    if process_count() > 1:
        values = values.clone()
        distributed.all_reduce(values)
    return values


def mean_over_processes(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Average named scalars over all processes in a single exchange; detached."""
    if process_count() == 1:
        return values
    total = sum_over_processes(torch.stack(list(values.values())))
    mean = total / process_count()
    return dict(zip(values, mean, strict=True))


def gather_objects(value: Any) -> list[Any]:
    """Return the objects of all processes, by rank."""
    gathered = [value] * process_count()
    if process_count() > 1:
        distributed.all_gather_object(gathered, value)
    return gathered


def is_lost_connection(error: RuntimeError) -> bool:
    """Return whether ``error`` means that another process no longer responds; gloo has no type for it."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error)
