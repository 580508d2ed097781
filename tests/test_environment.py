"""Threads wait passively and are no more than the cores of a container; what the user sets stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trajpred.environment import THREADS, WAITING, cores

#: Prints the environment, and the number of threads that torch takes, after an import of the package.
SHOW = "import json, os, trajpred, torch; print(json.dumps([dict(os.environ), torch.get_num_threads()]))"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "nonsense"}, None),
    ],
)
def test_a_quota_limits_the_cores(
    files: dict[str, str], expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    (tmp_path / "cpu").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert cores(tmp_path) == (expected or 8)


@pytest.mark.parametrize(
    ("given", "waiting"),
    [
        ({}, tuple(WAITING.values())),
        ({"OMP_WAIT_POLICY": "ACTIVE", THREADS: "1"}, ("ACTIVE", None, None)),
        ({"GOMP_SPINCOUNT": "7"}, (None, "7", None)),
    ],
)
def test_the_package_sets_what_the_user_did_not(
    given: dict[str, str], waiting: tuple[str | None, ...]
) -> None:
    clean = {name: value for name, value in os.environ.items() if name not in (*WAITING, THREADS)}
    done = subprocess.run([sys.executable, "-c", SHOW], env=clean | given, capture_output=True, check=True)
    environment, threads = json.loads(done.stdout)
    assert tuple(environment.get(name) for name in WAITING) == waiting
    assert threads <= cores() and (THREADS not in given or threads == int(given[THREADS]))
