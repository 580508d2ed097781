"""Findings about the machine: processor, memory, GPU and free space."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trajpred.environment import cores

#: Free disk space below which a run may fail, GB.
LOW_DISK = 2.0
#: Free shared memory below which a run may fail, GB.
LOW_SHARED = 1.0
#: Memory below which a run may fail, GB.
LOW_MEMORY = 4.0


@dataclass(frozen=True)
class Finding:
    """One line of the report; a problem has to be solved, a note may be."""

    level: Literal["ok", "note", "problem"]
    what: str
    advice: str = ""  # what to do about it, or why it matters

    def __str__(self) -> str:
        text = f"  {self.level:8} {self.what}"
        return f"{text}: {self.advice}" if self.advice else text


def reason(error: Exception) -> str:
    """Return an exception in one line."""
    name = type(error).__name__
    lines = str(error).strip().splitlines()
    return f"{name}: {lines[0]}" if lines else name


def hardware(torch: bool = True) -> Iterator[Finding]:
    """Report processor and memory, and with ``torch`` what it computes on."""
    processor = platform.processor() or platform.machine()
    count = cores()
    system = f"{platform.system()} {platform.release()}"
    yield Finding("ok", f"{system}, {processor}, {count} available cores")
    memory = memory_gb()
    if memory is not None:
        text = f"memory {memory:.1f} GB"
        if memory < LOW_MEMORY:
            advice = "train with --data.memory_gb, and prepare with few --workers"
            yield Finding("note", text, advice)
        else:
            yield Finding("ok", text)
    if torch:
        yield from _accelerator(count)


def memory_gb(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> float | None:
    """Return the memory of the machine or container, None where the system does not report it."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    allowed = limit.read_text().strip() if limit.is_file() else ""
    if allowed.isdigit():
        return min(physical, int(allowed)) / 1e9
    return physical / 1e9


def _accelerator(count: int) -> Iterator[Finding]:
    """Report the GPU, and whether this build of torch can use it."""
    import torch

    yield Finding("ok", f"torch computes with {torch.get_num_threads()} threads on {count} cores")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            yield _gpu(index, build)
    elif shutil.which("nvidia-smi"):
        advice = "install the torch build for its driver: pytorch.org/get-started/locally"
        yield Finding("problem", f"there is an NVIDIA driver, but torch ({build}) cannot use its GPU", advice)
    elif torch.backends.mps.is_available():
        yield Finding("ok", "GPU: Apple (mps)")
    else:
        yield Finding("ok", f"no GPU (torch: {build}); everything runs without one")


def _gpu(index: int, build: str) -> Finding:
    """Report a GPU, and whether it computes."""
    import torch

    device = torch.cuda.get_device_properties(index)
    memory = f"{device.total_memory / 1e9:.0f} GB"
    text = f"GPU {index}: {device.name}, {memory}, sm_{device.major}{device.minor}, {build}"
    try:
        torch.ones(8, device=f"cuda:{index}").sum().item()
    except RuntimeError as error:
        return Finding("problem", f"{text} cannot compute ({reason(error)})", "install a torch build for it")
    return Finding("ok", text)


def space(store: Path | None = None) -> Iterator[Finding]:
    """Report free disk space for runs, temporary files and the store, and free shared memory."""
    here = Path.cwd()
    temporary = Path(tempfile.gettempdir())
    yield _free("disk, here (runs/)", here, LOW_DISK, f"free some of {here}")
    yield _free("disk, temporary files", temporary, LOW_DISK, f"free some of {temporary}")
    if store is not None and store.is_dir():
        yield _free("disk, the store", store, LOW_DISK, f"free some of {store}")
    shared = Path("/dev/shm")
    if shared.is_dir():
        advice = "worker processes pass batches there; use --data.workers 0, or docker run --shm-size 4g"
        yield _free("shared memory", shared, LOW_SHARED, advice)


def _free(name: str, place: Path, low_gb: float, advice: str) -> Finding:
    """Report the free space of a file system, with advice if it is less than ``low_gb``."""
    free_gb = shutil.disk_usage(place).free / 1e9
    text = f"{name}: {free_gb:.1f} GB free"
    if free_gb < low_gb:
        return Finding("note", text, advice)
    return Finding("ok", text)
