"""Python, trajpred and the packages that it needs."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Iterator
from importlib import metadata

from trajpred.doctor.finding import Finding, reason
from trajpred.doctor.requirements import Requirement, extras, requirements

#: All that the onboard runtime imports: a vehicle needs neither torch nor readers of data sets.
ONBOARD = ("numpy", "onnxruntime")


def versions() -> Iterator[Finding]:
    """Python, trajpred and what it always needs: present, within the bounds, and importable."""
    try:
        own = metadata.metadata("trajpred")
    except metadata.PackageNotFoundError:
        yield Finding("problem", "trajpred is not installed", "pip install -e .")
        return
    asked = str(own["Requires-Python"])
    told = f"python {platform.python_version()} ({asked})"
    fits = not Requirement("python", (asked,)).unmet(platform.python_version())
    yield Finding("ok", told) if fits else Finding("problem", told, "install another Python")
    yield Finding("ok", f"trajpred {own['Version']}")
    needed = [one for one in requirements() if not one.extra]
    runtime = onboard()
    if runtime:
        yield Finding("note", "torch is not installed", "enough for the onboard runtime, and for it alone")
    for one in needed:
        missing = one.installed() is None
        if not (runtime and missing and one.name not in ONBOARD):
            yield _examined(one)


def onboard() -> bool:
    """Whether this is an installation for the onboard runtime alone."""
    return Requirement("torch").installed() is None and Requirement("onnxruntime").installed() is not None


def _examined(one: Requirement) -> Finding:
    version, install = one.installed(), f'pip install "{one}"'
    if version is None:
        return Finding("problem", f"{one.name} is not installed", install)
    told = f"{one.name} {version} ({','.join(one.bounds)})"
    broken = one.unmet(version)
    if any(bound.startswith("<") for bound in broken):
        return Finding("note", told, f"newer than what is tested; if something fails: {install}")
    if broken:
        return Finding("problem", told, f"too old: {install}")
    try:
        importlib.import_module(one.module())
    except Exception as error:  # extensions that do not fit raise more than ImportError
        again = f"pip install --force-reinstall --no-deps {one.name}=={version}"
        return Finding("problem", f"{told} cannot be imported ({reason(error)})", again)
    return Finding("ok", told)


def optional() -> Iterator[Finding]:
    """The extras, ffmpeg and the writer of TensorBoard's curves."""
    for name, wanted in extras(requirements()).items():
        if name == "dev":
            continue
        absent = [one.name for one in wanted if one.installed() is None]
        if absent:
            advice = f'if wanted: pip install "trajpred[{name}]"'
            yield Finding("note", f"{name}: no {', '.join(absent)}", advice)
        else:
            yield from map(_examined, wanted)
    if onboard():
        return
    from trajpred.errors import DataError
    from trajpred.viz.film_files import encoder

    try:
        yield Finding("ok", f"films: {encoder()}")
    except DataError as error:
        yield Finding("note", f"films: {error.message}")
    importlib.import_module("torch.utils.tensorboard")
    yield Finding("ok", "TensorBoard curves can be written")
