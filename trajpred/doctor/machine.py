"""Processor, memory, GPU and space."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trajpred.doctor.finding import Finding, reason
from trajpred.doctor.installation import onboard

#: Free space below which a run may not end well, and memory below which it needs care, GB.
LOW_DISK, LOW_SHARED, LOW_MEMORY = 2.0, 1.0, 4.0


def hardware() -> Iterator[Finding]:
    """Processor, memory and what torch computes on."""
    yield Finding("ok", f"{platform.system()} {platform.release()}, {_processor()}, {_cores()} cores to use")
    memory = _memory_gb()
    if memory is not None:
        small = memory < LOW_MEMORY
        advice = "train with --data.memory_gb, and prepare with few --workers" if small else ""
        yield Finding("note" if small else "ok", f"memory {memory:.1f} GB", advice)
    if not onboard():
        yield from _accelerator()


def _processor() -> str:
    try:
        from trajpred.evaluation.provenance import cpu_model
    except Exception:  # it needs what may be missing
        return platform.processor() or platform.machine()
    return cpu_model()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_gb(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> float | None:
    """Memory of the machine, or of the container; None where the system does not tell."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    allowed = limit.read_text().strip() if limit.is_file() else ""
    return min(found, int(allowed)) / 1e9 if allowed.isdigit() else found / 1e9


def _accelerator() -> Iterator[Finding]:
    """The GPU, and whether torch's build fits it."""
    import torch

    threads, cores = torch.get_num_threads(), _cores()
    few = threads < cores
    yield Finding("ok", f"torch computes with {threads} threads" + (f" of {cores}" if few else ""))
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
        yield Finding("ok", f"no GPU (torch: {build}); everything runs without")


def _gpu(index: int, build: str) -> Finding:
    import torch

    one = torch.cuda.get_device_properties(index)
    told = f"GPU {index}: {one.name}, {one.total_memory / 1e9:.0f} GB, sm_{one.major}{one.minor}, {build}"
    try:
        torch.ones(8, device=f"cuda:{index}").sum().item()
    except RuntimeError as error:
        return Finding("problem", f"{told} cannot compute ({reason(error)})", "install a torch build for it")
    return Finding("ok", told)


def space(store: Path | None = None) -> Iterator[Finding]:
    """Disk where runs, temporary files and the store are, and the memory that processes share."""
    places = {"here (runs/)": Path.cwd(), "temporary files": Path(tempfile.gettempdir())}
    if store is not None and store.is_dir():
        places["the store"] = store
    for name, place in places.items():
        yield _free(f"disk, {name}", place, LOW_DISK, f"free some of {place}")
    if (shared := Path("/dev/shm")).is_dir():
        advice = "loading processes share batches there; --data.workers 0, or docker run --shm-size 4g"
        yield _free("shared memory", shared, LOW_SHARED, advice)


def _free(name: str, place: Path, low: float, advice: str) -> Finding:
    free = shutil.disk_usage(place).free / 1e9
    scarce = free < low
    return Finding("note" if scarce else "ok", f"{name}: {free:.1f} GB free", advice if scarce else "")
