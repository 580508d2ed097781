"""Detect cores and optional packages; set OpenMP's threads and wait policy."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from trajpred.errors import DataError, require

#: How threads wait: they yield their core after about 50 µs, or at once if OpenMP cannot count.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "0"}
THREADS = "OMP_NUM_THREADS"
#: More threads than this do not speed up tensors of usual size.
MOST_THREADS = 4
#: Root of the repository, if this is a checkout.
ROOT = Path(__file__).parents[2]
_CHOSEN = THREADS in os.environ  # by the user, or by the process that started this one


def cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of cores that this process may use, by affinity and its container's CPU quota.

    Args:
        cgroup: where the control groups of versions 1 and 2 are mounted.
    """
    count = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    version_1 = [cgroup / "cpu/cpu.cfs_quota_us", cgroup / "cpu/cpu.cfs_period_us"]
    version_2 = [cgroup / "cpu.max"]
    for files in (version_2, version_1):
        try:
            text = " ".join(file.read_text() for file in files)
            quota, period = text.split()
            if float(quota) > 0:  # -1 is no limit in version 1
                count = min(count, math.ceil(float(quota) / float(period)))
        except (OSError, ValueError):  # "max" is no limit in version 2
            continue
    return count


def processes(count: int) -> int:
    """Return the number of processes for an option: -1 means all cores, -2 all but one.

    Raises: DataError if it is 0.
    """
    require(count != 0, "workers", "must not be 0: 1 runs in this process, -1 on all cores")
    if count > 0:
        return count
    return max(1, cores() + 1 + count)


def limit_threads(threads: int) -> None:
    """Limit the threads of a command's processes, and let them yield their cores while they wait.

    Busy-waiting threads steal cores on loaded machines: two threads were forty times slower than one. Threads
    that sleep at once wake up late on idle machines and were 20 % slower. OpenMP reads these variables when
    torch is loaded; the user's own values stay.
    """
    if "torch" in sys.modules:
        return
    if not any(name in os.environ for name in WAITING):
        os.environ.update(WAITING)
    if not _CHOSEN:
        os.environ[THREADS] = str(threads)


def threads_alone() -> int:
    """Return the number of threads for a process that computes alone: the user's choice, or a few."""
    choice = os.environ.get(THREADS, "")
    if _CHOSEN and choice.isdigit():
        return int(choice)
    return min(cores(), MOST_THREADS)


def install_command(extra: str) -> str:
    """Return the command that installs an extra's packages, however trajpred was installed."""
    from importlib import metadata  # slower than all other imports of the package

    try:
        wanted = metadata.requires("trajpred") or []
    except metadata.PackageNotFoundError:
        wanted = []
    marked = re.compile(rf"extra == ['\"]{extra}['\"]")
    requirements = [text for text in wanted if marked.search(text)]
    if not requirements:  # not installed, or installed before the extra existed
        return f'pip install -e ".[{extra}]"'
    names = [text.partition(";")[0].strip() for text in requirements]
    return f"pip install {command_words(*names)}"


def command_words(*words: object) -> str:
    """Join words of a command, quoted for the shell of the operating system: POSIX, or those of Windows."""
    texts = [str(word) for word in words]
    if sys.platform != "win32":
        return shlex.join(texts)
    quoted: list[str] = []
    for text in texts:
        is_plain = re.fullmatch(r"[\w.:/\\+=@~-]+", text) is not None
        escaped = text.replace('"', '\\"')
        quoted.append(text if is_plain else f'"{escaped}"')
    return " ".join(quoted)


def in_repository(path: str) -> str:
    """Return a path in the repository, followed by the repository's address outside a checkout."""
    if (ROOT / path).exists():
        return path
    from importlib import metadata

    repository = "trajpred's repository"
    with suppress(metadata.PackageNotFoundError):
        for entry in metadata.metadata("trajpred").get_all("Project-URL") or []:
            name, _, address = entry.partition(", ")
            if name.lower() == "repository":
                repository = address
    return f"{path} in {repository}"


def has_av2() -> bool:
    """Return whether av2 is installed; it has no wheel for Python 3.13 and newer."""
    return find_spec("av2") is not None


def require_av2() -> None:
    """Raise :class:`DataError` if av2 is not installed."""
    if not has_av2():
        advice = "pip install av2"
        if sys.version_info >= (3, 13):
            advice = "it has no wheels for Python 3.13 and newer; use Python 3.11 or 3.12"
        raise DataError(f"needs av2, which is not installed: {advice}")
