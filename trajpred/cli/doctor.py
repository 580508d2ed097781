"""The doctor command: check the installation and the machine, and suggest repairs."""

from __future__ import annotations

import platform
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

from trajpred.data.environment import cores
from trajpred.errors import DataError

#: "ok", "note" or "problem", and a line of the report; a problem must be fixed, a note need not be.
Finding: TypeAlias = tuple[str, str]
#: What the onboard runtime imports, and what onnxruntime itself needs: a vehicle has no torch.
ONBOARD = ("numpy", "onnxruntime", "packaging")


def doctor() -> int:
    """Check the installation, and suggest a fix for each problem.

    Exits with 1 if there are problems.
    """
    warnings.simplefilter("ignore")
    checks: list[Callable[[], Iterator[Finding]]] = [versions, folders]
    if not is_onboard():
        checks += [device, plugins, models]
    levels: list[str] = []
    for check in checks:
        print(check.__name__)
        for level, text in guarded(check):
            print(f"  {level:8} {text}", flush=True)
            levels.append(level)
    print(f"{levels.count('problem')} problems, {levels.count('note')} notes")
    return int("problem" in levels)


def guarded(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check; a check that fails is itself a problem."""
    try:
        yield from check()
    except DataError as error:
        yield "problem", str(error)
    except Exception as error:  # a broken installation raises anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        yield "problem", f"cannot be checked ({reason}); if no problem is above, install trajpred again"


def installed(name: str) -> str | None:
    """Return the installed version of a distribution, None if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def is_onboard() -> bool:
    """Return whether only the onboard runtime is installed."""
    return installed("torch") is None and installed("onnxruntime") is not None


def versions() -> Iterator[Finding]:
    """Check that trajpred's dependencies are installed, in tested versions."""
    for name, command in {"trajpred": "pip install -e .", "packaging": "pip install packaging"}.items():
        if installed(name) is None:
            yield "problem", f"{name} is not installed: {command}"
            return
    machine = f"Python {platform.python_version()}, {platform.platform()}, {cores()} cores"
    yield "ok", f"trajpred {installed('trajpred')}, {machine}"
    if is_onboard():
        yield "note", "torch is not installed: sufficient for the onboard runtime only"
    for requirement in metadata.requires("trajpred") or ():
        yield from examine(requirement)


def examine(requirement: str) -> Iterator[Finding]:
    """Check a package; packages of extras may be missing, and on a vehicle all but the runtime's."""
    from packaging.requirements import Requirement

    package = Requirement(requirement)
    is_extra = package.marker is not None and not package.marker.evaluate({"extra": ""})
    is_required = package.name in ONBOARD if is_onboard() else not is_extra
    version = installed(package.name)
    wanted = f"{package.name}{package.specifier}"
    if version is None:
        if is_required:
            yield "problem", f'{package.name} is not installed: pip install "{wanted}"'
        return
    text = f"{package.name} {version} ({package.specifier})"
    broken = [bound for bound in package.specifier if not bound.contains(version, prereleases=True)]
    if any(bound.operator.startswith("<") for bound in broken):
        yield "note", f'{text}: newer than the tested versions; if something fails: pip install "{wanted}"'
    elif broken:
        yield "problem", f'{text}: too old: pip install "{wanted}"'
    elif is_required:
        yield "ok", text


def folders() -> Iterator[Finding]:
    """Check that runs and temporary files can be written."""
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        try:
            tempfile.TemporaryFile(dir=folder).close()
            yield "ok", f"{folder}: {shutil.disk_usage(folder).free / 1e9:.1f} GB free"
        except OSError as error:
            yield "problem", f"{folder}: cannot be written ({error.strerror})"


def device() -> Iterator[Finding]:
    """Report torch's device, and check that it computes."""
    import torch

    build = f"torch for CUDA {torch.version.cuda}" if torch.version.cuda else "torch without CUDA"
    for index in range(torch.cuda.device_count()):
        torch.ones(8, device=f"cuda:{index}").sum().item()
        yield "ok", f"GPU {index}: {torch.cuda.get_device_name(index)}, {build}"
    if not torch.cuda.is_available() and shutil.which("nvidia-smi"):
        advice = "install the torch build for its driver: pytorch.org/get-started/locally"
        yield "problem", f"there is an NVIDIA driver, but {build} cannot use its GPU: {advice}"
    elif not torch.cuda.is_available():
        yield "ok", f"{'Apple GPU' if torch.backends.mps.is_available() else 'no GPU'} ({build})"


def plugins() -> Iterator[Finding]:
    """Check that plug-ins of other packages can be imported."""
    from trajpred.data.registry import GROUP, distribution, load_plugin

    for point in metadata.entry_points(group=GROUP):
        try:
            load_plugin(point)
            yield "ok", f"{point.name}, of {distribution(point)}"
        except DataError as error:
            yield "problem", str(error)


def models() -> Iterator[Finding]:
    """Check that the shipped models predict."""
    from trajpred.data.scenario import Scenario
    from trajpred.model.pretrained import list_models
    from trajpred.predictors import load_predictor

    if not list_models():
        yield "problem", "no weights ship with this installation: install trajpred again"
    scenario = Scenario.from_arrays([[[0.1 * step, 0.0] for step in range(50)]], num_observed=50)
    for name in list_models():
        try:
            yield "ok", f"{name}: {load_predictor(name)([scenario])[0]}"
        except DataError as error:
            yield "problem", f"{error}: install trajpred again"
