"""Fixtures of all tests: real scenarios, commands, and a guard against network access."""

from __future__ import annotations

import os
import re
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded: tests run in several processes

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from tests.offline import offline
from tests.without_av2 import skip_its_users
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.sources.argoverse2 import discover, read_scenario

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "datasets" / "argoverse2" / "sample"

skip_its_users()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; children would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("untimed", deadline=None)  # other processes may take the cores
settings.load_profile("untimed")
GUARD = ExitStack()
GUARD.enter_context(offline())  # before pytest imports the test modules, and with them the package


#: Names that NumPy, tables, messages or files would not keep.
INVALID_NAMES = ["7\0", "7\0b", "a\nb", "a\r", "\x1b[2J", "\u2028", "\ud800", "\u202e", "", "x" * 100_000]


def run(command: str | None, *args: object) -> int:
    """Run a command in this process and return its exit code."""
    from trajpred.cli.main import main

    with pytest.raises(SystemExit) as stop:
        main(command, [str(arg) for arg in args])
    return int(stop.value.code or 0)


def output_of(capsys: pytest.CaptureFixture[str], command: str | None, *args: object) -> str:
    """Run a command that must succeed, and return what it prints."""
    capsys.readouterr()
    assert run(command, *args) == 0
    return capsys.readouterr().out


def error_of(capsys: pytest.CaptureFixture[str], command: str | None, *args: object) -> str:
    """Run a command that must end with code 2, and return its one-sentence error."""
    capsys.readouterr()
    assert run(command, *args) == 2
    written = capsys.readouterr().err
    assert "Traceback" not in written
    errors = [line for line in written.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, written
    assert written.endswith(f"{errors[0]}\n"), written
    return errors[0]


def equal(a: Any, b: Any, tolerance: float = 0.0) -> bool:
    """Return whether two records have equal values, floats within ``tolerance``."""
    if is_dataclass(a):
        return all(equal(getattr(a, f.name), getattr(b, f.name), tolerance) for f in fields(a))
    if isinstance(a, np.ndarray) and a.dtype.kind == "f":
        return a.shape == b.shape and bool(np.allclose(a, b, rtol=0, atol=tolerance, equal_nan=True))
    return bool(np.array_equal(a, b))


def rejected(
    read: Callable[[], object], file: str | Path, field: str | None = None, message: str | None = None
) -> DataError:
    """Return the one-sentence error of ``read`` that names a field of a file; ``file``: end of its path."""
    with pytest.raises(DataError, match=message) as caught:
        read()
    error = caught.value
    assert Path(str(error.file)).match(str(file)), error
    assert error.field == field, error
    assert len(str(error).splitlines()) == 1
    assert len(error.message) < 300
    return error


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page that are in this language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


def rejects(match: str, call: Callable[..., object], /, *given: object, **named: object) -> DataError:
    """Require of ``call(*given, **named)`` a DataError of one line that matches, or any; return it."""
    with pytest.raises(DataError, match=match or None) as caught:
        call(*given, **named)
    assert "\n" not in str(caught.value)
    return caught.value


def install_package(folder: Path, package: str, modules: dict[str, str], points: str) -> Path:
    """Create the files of an installed package; its entry points are lines of TOML."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[trajpred.plugins]\n{points}\n".replace('"', ""))
    for name, content in modules.items():
        (folder / f"{name}.py").write_text(content)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture(scope="session")
def shared() -> Path:
    """The team's folder of data and vectors (``TRAJPRED_SHARED``, by default beside the repository)."""
    folder = Path(os.environ.get("TRAJPRED_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"TRAJPRED_SHARED: no folder {folder}")
    return folder


@pytest.fixture(scope="session")
def sample_folders() -> list[Path]:
    """Every scenario folder of the shipped sample."""
    return [one.path for found in discover(SAMPLE).values() for one in found]


@pytest.fixture(scope="session")
def sample_scenarios(sample_folders: list[Path]) -> list[Scenario]:
    return [read_scenario(folder) for folder in sample_folders]


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    import trajpred.integrations.maps
    import trajpred.predictors
    import trajpred.sources  # noqa: F401
    from trajpred.data.registry import REGISTRIES, load_plugins

    load_plugins()  # so that nothing else registers meanwhile
    for registry in REGISTRIES.values():
        monkeypatch.setattr(registry, "data", dict(registry.data))


@pytest.fixture(scope="session")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the sample; must not be modified."""
    from trajpred.store import prepare

    path = tmp_path_factory.mktemp("store")
    prepare("argoverse2", SAMPLE, path, workers=1, progress=False)
    return path
