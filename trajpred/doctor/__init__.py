"""Check an installation: packages, machine, disk, data and shipped models.

Only the standard library is imported before it has been checked: what is broken is reported, not raised.
"""

from __future__ import annotations

import importlib
import platform
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajpred.doctor.machine import Finding, hardware, reason, space
from trajpred.environment import install_command
from trajpred.errors import DataError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

#: What the onboard runtime imports, and what onnxruntime itself needs: a vehicle has no torch.
ONBOARD = ("numpy", "onnxruntime", "packaging")


def doctor(*, store: Path | None = None) -> int:
    """Check this installation, and say what to do about each problem.

    Exits with 1 if there is a problem.

    Args:
        store: Also check this store, a folder written by prepare.
    """
    onboard = is_onboard()
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "versions": versions,
        "optional": extras,
        "machine": lambda: hardware(not onboard),
        "space": lambda: space(store),
    }
    if not onboard:
        checks["data"] = lambda: data(store)
        checks["trained models"] = models
    levels: list[str] = []
    for name, check in checks.items():
        levels += [finding.level for finding in report(name, check)]
    print(f"{levels.count('problem')} problems, {levels.count('note')} notes")
    return int("problem" in levels)


def report(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Print the findings of a check below its name and yield them. A check that fails is a problem itself."""
    print(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for finding in check():
                print(finding, flush=True)
                yield finding
    except Exception as error:  # a broken installation raises anything
        advice = "solve the problems above first; if there are none, install trajpred again"
        failed = Finding("problem", f"cannot be checked ({reason(error)})", advice)
        print(failed, flush=True)
        yield failed


def requirements() -> dict[str, list[Requirement]]:
    """Read what the installed trajpred requires: always (key "") and for each extra."""
    from packaging.requirements import Requirement

    extras = metadata.metadata("trajpred").get_all("Provides-Extra") or []
    groups: dict[str, list[Requirement]] = {name: [] for name in ["", *extras]}
    for line in metadata.requires("trajpred") or ():
        requirement = Requirement(line)
        if requirement.name == "trajpred":  # an extra that consists of others
            continue
        for extra, members in groups.items():
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                members.append(requirement)
                break
    return groups


def installed(name: str) -> str | None:
    """Return the installed version of a distribution, None if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def is_onboard() -> bool:
    """Return whether this is an installation for the onboard runtime alone."""
    return installed("torch") is None and installed("onnxruntime") is not None


def versions() -> Iterator[Finding]:
    """Check Python, trajpred and its required packages: present, of a suitable version, importable."""
    commands = {"trajpred": "pip install -e .", "packaging": "pip install packaging"}
    for name, command in commands.items():
        if installed(name) is None:
            yield Finding("problem", f"{name} is not installed", command)
            return
    yield _python()
    yield Finding("ok", f"trajpred {installed('trajpred')}")
    onboard = is_onboard()
    if onboard:
        yield Finding("note", "torch is not installed", "sufficient for the onboard runtime only")
    for requirement in requirements()[""]:
        name = requirement.name
        if not onboard or installed(name) or name in ONBOARD:
            yield examine(requirement)


def _python() -> Finding:
    """Check the version of Python."""
    from packaging.specifiers import SpecifierSet

    version = platform.python_version()
    wanted = metadata.metadata("trajpred")["Requires-Python"]
    text = f"python {version} ({wanted})"
    if SpecifierSet(wanted).contains(version, prereleases=True):
        return Finding("ok", text)
    return Finding("problem", text, "install another")


def examine(requirement: Requirement) -> Finding:
    """Check the version of a requirement, and import it."""
    name = requirement.name
    wanted = str(requirement.specifier)
    version = installed(name)
    install = f'pip install "{name}{wanted}"'
    if version is None:
        return Finding("problem", f"{name} is not installed", install)
    text = f"{name} {version} ({wanted})"
    broken = [bound for bound in requirement.specifier if not bound.contains(version, prereleases=True)]
    is_newer = any(bound.operator.startswith("<") for bound in broken)
    if broken and not is_newer:
        return Finding("problem", text, f"too old: {install}")
    try:
        importlib.import_module(module(name))
    except Exception as error:  # extensions of another build raise more than ImportError
        again = f"pip install --force-reinstall --no-deps {name}=={version}"
        if is_newer:
            again = install
        return Finding("problem", f"{text} cannot be imported ({reason(error)})", again)
    if is_newer:
        return Finding("note", text, f"newer than the tested versions; if something fails: {install}")
    return Finding("ok", text)


def module(distribution: str) -> str:
    """Return the name that an installed distribution is imported by."""
    packages = set()
    for path in metadata.files(distribution) or ():
        folder = path.parts[0]
        if path.parts[1:] == ("__init__.py",) and not folder.startswith("_"):
            packages.add(folder)
    usual = distribution.replace("-", "_")
    if usual in packages or not packages:
        return usual
    return min(packages)


def extras() -> Iterator[Finding]:
    """Check the optional packages."""
    for extra, members in requirements().items():
        if extra in ("", "dev"):
            continue
        absent = [member.name for member in members if installed(member.name) is None]
        if absent:
            text = f"{extra}: no {', '.join(absent)}"
            yield Finding("note", text, f"if wanted: {install_command(extra)}")
            continue
        for member in members:
            yield examine(member)


def data(store: Path | None = None) -> Iterator[Finding]:
    """Check the sample of the repository, and a store; by default the sample's, if it has been prepared."""
    from trajpred.sources.argoverse2 import discover
    from trajpred.store.sample import SAMPLE_RAW, SAMPLE_STORE

    if SAMPLE_RAW.is_dir():
        splits = discover(SAMPLE_RAW)
        count = sum(len(scenarios) for scenarios in splits.values())
        yield Finding("ok", f"sample: {count} scenarios")
    else:
        yield Finding("note", "no sample", "it is only in the repository: give your own --store")
    if store is not None or SAMPLE_STORE.is_dir():
        yield from check_store(store or SAMPLE_STORE)


def check_store(store: Path) -> Iterator[Finding]:
    """Check each split of a store: checksums of all files, first and last scenario of each shard."""
    from trajpred.store.manifest import prepare_command, read_manifest

    try:
        manifest = read_manifest(store)
    except DataError as error:  # its message says what to do
        yield Finding("problem", str(error))
        return
    yield Finding("ok", f"store of {manifest.get('source')}: {store}")
    for split, facts in manifest["splits"].items():
        try:
            yield _check_split(store, split, facts)
        except (OSError, ValueError) as error:
            yield Finding("problem", f"{split}: {error}", prepare_command(store, manifest))


def _check_split(store: Path, split: str, facts: dict[str, Any]) -> Finding:
    """Check the shards of a split.

    Raises:
        DataError: one is damaged.
    """
    from trajpred.store import ScenarioStore
    from trajpred.store.shards import is_intact, record_of, unsealed

    scenarios = ScenarioStore(store, split)
    start = 0
    read = 0
    for shard in facts["shards"]:
        file = store / split / shard["file"]
        count = shard["scenarios"]
        if count > 0:
            ends = {start, start + count - 1}
            for row in ends:
                scenarios[row]
            read += len(ends)
        if not is_intact(file):
            raise DataError("is damaged (its checksum is wrong); prepare it again", file=file)
        unsealed(record_of(file).read_text())
        start += count
    shards = len(facts["shards"])
    text = f"{split}: {len(scenarios)} scenarios in {shards} shards, {read} of them read"
    skipped = len(facts["skipped"])
    if skipped:
        return Finding("note", text, f"{skipped} were skipped, see {store}")
    return Finding("ok", text)


def models() -> Iterator[Finding]:
    """Check that the shipped weights are present, undamaged and fit the model."""
    from trajpred.model import Forecaster
    from trajpred.model.pretrained import list_models

    if not list_models():
        yield Finding("problem", "no weights ship with this installation", "install trajpred again")
    for name in list_models():
        try:
            model = Forecaster.from_pretrained(name)
            size = sum(parameter.numel() for parameter in model.parameters()) / 1e6
            yield Finding("ok", f"{name}: {size:.1f} M parameters, from {model.history} steps")
        except DataError as error:
            yield Finding("problem", str(error), "install trajpred again")
