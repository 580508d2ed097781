"""The origin of a result: code, machine and data."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

from trajpred import __version__
from trajpred.store.reader import read_manifest


def environment() -> dict[str, Any]:
    """Describe versions and hardware of this process, as plain values.

    ``trajpred`` (version), ``commit`` and ``dirty`` (in a git checkout only), ``torch``, ``cpu``, ``threads``
    and ``gpu`` (None without one).
    """
    import torch  # results are read without it

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    machine = {"cpu": cpu_model(), "threads": torch.get_num_threads(), "gpu": gpu}
    return {"trajpred": __version__, **commit(), "torch": str(torch.__version__), **machine}


def commit(package: Path = Path(__file__).parents[1]) -> dict[str, Any]:
    """Return ``commit``, and whether the package differs from it (``dirty``); empty outside a checkout.

    The package must be tracked by the repository: an environment may lie inside another project's checkout.
    Files beside the package (results, notes) do not make it dirty.
    """
    if _git(package, "ls-files", "--", "__init__.py") in (None, ""):
        return {}
    changes = _git(package, "status", "--porcelain", "--", ".")
    return {"commit": _git(package, "rev-parse", "HEAD"), "dirty": changes != ""}


def _git(folder: Path, *command: str) -> str | None:
    """Return the output of git; None if it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", folder, *command], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name, as far as the system reports it."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def store_facts(store: Path) -> dict[str, Any]:
    """Return a store's ``source``, ``config`` (a hash of how it was made), and ``scenarios`` of each split.

    Raises: DataError.
    """
    manifest = read_manifest(store)
    counts = {name: split.get("scenarios") for name, split in manifest["splits"].items()}
    return {"source": manifest.get("source"), "config": manifest.get("config"), "scenarios": counts}
