"""What a figure needs beside it to be believed and made again: code, machine and data."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from trajpred import __version__
from trajpred.store.reader import read_manifest


def environment() -> dict[str, Any]:
    """Versions and hardware of this process, as plain values.

    ``trajpred`` (version), ``commit`` and ``dirty`` (in a git checkout only), ``torch``, ``cpu``, ``threads``
    and ``gpu`` (None without one).
    """
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    machine = {"cpu": cpu_model(), "threads": torch.get_num_threads(), "gpu": gpu}
    return {"trajpred": __version__, **commit(), "torch": str(torch.__version__), **machine}


def commit(package: Path = Path(__file__).parent) -> dict[str, Any]:
    """``commit``, and whether files of the package differ from it (``dirty``); empty outside a checkout.

    Installed into an environment that lies in somebody's repository, the package is not that repository's:
    it has to be tracked by it. What lies beside the package (results, notes) does not make it dirty.
    """
    if _git(package, "ls-files", "--", "__init__.py") in (None, ""):
        return {}
    changes = _git(package, "status", "--porcelain", "--", ".")
    return {"commit": _git(package, "rev-parse", "HEAD"), "dirty": changes != ""}


def _git(folder: Path, *command: str) -> str | None:
    """What git says, None where it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", folder, *command], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, as far as the system tells."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def store_facts(store: Path) -> dict[str, Any]:
    """``source`` of a store, ``config`` (a hash of how it was made), ``scenarios`` of each split.

    Raises: DataError.
    """
    manifest = read_manifest(store)
    counts = {name: split.get("scenarios") for name, split in manifest["splits"].items()}
    return {"source": manifest.get("source"), "config": manifest.get("config"), "scenarios": counts}
