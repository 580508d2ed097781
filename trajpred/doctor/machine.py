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

#: Free space and memory below which a run may fail, GB.
LOW_DISK, LOW_SHARED, LOW_MEMORY = 2.0, 1.0, 4.0


@dataclass(frozen=True)
class Finding:
    """One line of the report; a problem has to be solved, a note may be."""

    level: Literal["ok", "note", "problem"]
    what: str
    advice: str = ""  # what to do about it, or why it matters

    def __str__(self) -> str:
        return f"  {self.level:8} {self.what}" + (f": {self.advice}" if self.advice else "")


def reason(error: Exception) -> str:
    """Return an exception in one line."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def hardware(torch: bool = True) -> Iterator[Finding]:
    """Report processor and memory, and with ``torch`` what it computes on."""
    processor, count = platform.processor() or platform.machine(), cores()
    yield Finding("ok", f"{platform.system()} {platform.release()}, {processor}, {count} available cores")
    memory = memory_gb()
    if memory is not None:
        small = memory < LOW_MEMORY
        advice = "train with --data.memory_gb, and prepare with few --workers" if small else ""
        yield Finding("note" if small else "ok", f"memory {memory:.1f} GB", advice)
    if torch:
        yield from _accelerator(count)


def memory_gb(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> float | None:
    """Return the memory of the machine or container, None where the system does not report it."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    allowed = limit.read_text().strip() if limit.is_file() else ""
    return min(found, int(allowed)) / 1e9 if allowed.isdigit() else found / 1e9


def _accelerator(count: int) -> Iterator[Finding]:
    """Report the GPU, and whether this build of torch can use it."""
    import torch

    yield Finding("ok", f"torch computes with {torch.get_num_threads()} threads on {count} cores")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    if torch.cuda.is_available():
        yield from (_gpu(index, build) for index in range(torch.cuda.device_count()))
    elif shutil.which("nvidia-smi"):
        advice = "install the torch build for its driver: pytorch.org/get-started/locally"
        yield Finding("problem", f"there is an NVIDIA driver, but torch ({build}) cannot use its GPU", advice)
    elif torch.backends.mps.is_available():
        yield Finding("ok", "GPU: Apple (mps)")
    else:
        yield Finding("ok", f"no GPU (torch: {build}); everything runs without one")


def _gpu(index: int, build: str) -> Finding:
    import torch

    one = torch.cuda.get_device_properties(index)
    text = f"GPU {index}: {one.name}, {one.total_memory / 1e9:.0f} GB, sm_{one.major}{one.minor}, {build}"
    try:
        torch.ones(8, device=f"cuda:{index}").sum().item()
    except RuntimeError as error:
        return Finding("problem", f"{text} cannot compute ({reason(error)})", "install a torch build for it")
    return Finding("ok", text)


def space(store: Path | None = None) -> Iterator[Finding]:
    """Report free disk space for runs, temporary files and the store, and free shared memory."""
    places = {"here (runs/)": Path.cwd(), "temporary files": Path(tempfile.gettempdir())}
    if store is not None and store.is_dir():
        places["the store"] = store
    checks = [(f"disk, {name}", place, LOW_DISK, f"free some of {place}") for name, place in places.items()]
    if (shared := Path("/dev/shm")).is_dir():
        advice = "worker processes pass batches there; use --data.workers 0, or docker run --shm-size 4g"
        checks.append(("shared memory", shared, LOW_SHARED, advice))
    for name, place, low, advice in checks:
        free = shutil.disk_usage(place).free / 1e9
        text = f"{name}: {free:.1f} GB free"
        yield Finding("note", text, advice) if free < low else Finding("ok", text)
