"""The doctor command: check the installation, the machine and a store, and name what repairs them."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trajpred.data.environment import cores, install_command
from trajpred.errors import DataError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

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
        checks["plugins"] = plugins
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
    from trajpred.store.shards import prepare_command, read_manifest

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


def plugins() -> Iterator[Finding]:
    """Check that the plugins and sources of other packages can be imported."""
    from trajpred import sources
    from trajpred.data.registry import GROUP, distribution, load_plugin

    for group in (GROUP, sources.GROUP):
        for point in metadata.entry_points(group=group):
            try:
                if group == GROUP:
                    load_plugin(point)
                else:
                    sources.find_source(point.name)
                yield Finding("ok", f"{point.name}, of {distribution(point)}")
            except DataError as error:
                yield Finding("problem", str(error))
