"""Commands limit their threads, an import changes nothing; quotas of containers limit the cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trajpred.data.environment import THREADS, WAITING, cores


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
        ({"OMP_WAIT_POLICY": "ACTIVE", THREADS: "2"}, ("ACTIVE", None, None)),
        ({"GOMP_SPINCOUNT": "7"}, (None, "7", None)),
    ],
)
def test_commands_set_what_the_user_did_not(given: dict[str, str], waiting: tuple[str | None, ...]) -> None:
    environment = _environment("from trajpred.cli.main import limit_threads; limit_threads(1)", given)
    assert tuple(environment.get(name) for name in WAITING) == waiting
    assert environment[THREADS] == given.get(THREADS, "1")


def test_importing_the_package_changes_nothing_in_the_process() -> None:
    imports = "import trajpred; from trajpred import load_predictor"
    assert not {*WAITING, THREADS} & _environment(imports, {}).keys()


def _environment(statements: str, given: dict[str, str]) -> dict[str, str]:
    """Return the environment of a process without own settings after it has run the statements."""
    clean = {name: value for name, value in os.environ.items() if name not in (*WAITING, THREADS)}
    show = f"import json, os; {statements}; print(json.dumps(dict(os.environ)))"
    done = subprocess.run([sys.executable, "-c", show], env=clean | given, capture_output=True, check=True)
    environment: dict[str, str] = json.loads(done.stdout)
    return environment
