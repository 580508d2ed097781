"""Where results come from: code, machine, data and training, as plain values and in one line."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trajpred import __version__
from trajpred.evaluation.results import Evaluation, listing
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
    """Return the processor's name, if the system reports it."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text("utf-8", "replace").splitlines():
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


def format_origin(seeds: Sequence[Evaluation]) -> str:
    """Describe the origin of a recipe's figures in one line: its trainings, and the code that scored it."""
    training = format_training([result.training for result in seeds])
    code = _code(seeds[0].environment)
    scored = f"scored by {code}" if code else ""
    return listing(training, scored, seeds[0].others, by="; ")


def format_training(training: Sequence[Mapping[str, Any]]) -> str:
    """Describe trainings of one recipe in one line: seeds, data, duration, machine and code."""
    machine = training[0].get("environment") or {}
    seeds = _distinct(training, "seed")
    parts = {
        "seeds" if len(seeds) > 1 else "seed": ", ".join(map(str, seeds)),
        "trained on": _training_data(training[0]),
        "starting with": ", ".join(_distinct(training, "weights")),
        "for": _duration(training),
        "on": _processor(machine),
        "code": _code(machine),
    }
    return listing(*(f"{name} {value}" for name, value in parts.items() if value), by="; ")


def _distinct(training: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """List the distinct values of a fact, without None."""
    values = dict.fromkeys(facts.get(name) for facts in training)
    values.pop(None, None)
    return list(values)


def _training_data(facts: Mapping[str, Any]) -> str:
    """Describe the training scenarios and the store they came from; empty if unknown."""
    store = facts.get("store") or {}
    count = store.get("scenarios", {}).get("train")
    if not count:
        return ""
    data = f"{count:,} scenarios of {store.get('source')} (store {store.get('config')})"
    if facts.get("hold_out"):
        data += f", {facts['hold_out']:.3g} of them held out"
    return data


def _duration(training: Sequence[Mapping[str, Any]]) -> str:
    epochs = [count for count in _distinct(training, "epochs") if count > 0]  # -1: until the steps are done
    minutes = [round(wall_s / 60) for wall_s in _distinct(training, "wall_s")]
    return listing(
        counted(epochs, "epoch"), counted(_distinct(training, "steps"), "step"), counted(minutes, "minute")
    )


def _processor(machine: Mapping[str, Any]) -> str:
    if not machine:
        return ""
    threads = counted([machine.get("threads", 1)], "thread")
    return listing(machine.get("gpu") or "", f"{machine.get('cpu')} ({threads})")


def counted(values: Iterable[int], unit: str) -> str:
    """Return text such as ``1 thread`` or ``79, 80 minutes``; empty without a value."""
    numbers = ", ".join(f"{value:,}" for value in dict.fromkeys(values))
    plural = "" if numbers in ("", "1") else "s"
    return f"{numbers} {unit}{plural}" if numbers else ""


def _code(environment: Mapping[str, Any]) -> str:
    if not environment:
        return ""
    commit = environment.get("commit", "")[:10]
    if environment.get("dirty"):
        commit += " with changes"
    return listing(f"trajpred {environment.get('trajpred')}", commit, f"torch {environment.get('torch')}")
