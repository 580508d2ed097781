"""The doctor finds every problem, says what to do, and starts in a broken installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import ROOT, run
from trajpred.cli import doctor
from trajpred.cli.doctor import Finding
from trajpred.model import pretrained

PACKAGES = Path(sysconfig.get_path("purelib"))
UNIX = pytest.mark.skipif(os.name == "nt", reason="environments are laid out differently")


def environment(folder: Path) -> Path:
    """Return the Python of an environment with trajpred and no other distribution."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    (site / "trajpred.pth").write_text(str(ROOT), encoding="utf-8")
    info = site / "trajpred-0.1.0.dist-info"
    info.mkdir()
    described = metadata.distribution("trajpred").read_text("METADATA")
    assert described is not None
    (info / "METADATA").write_text(described, encoding="utf-8")
    return folder / "bin" / "python"


def link(python: Path, *names: str) -> None:
    """Add installed distributions to an environment."""
    [site] = python.parents[1].glob("lib/python*/site-packages")
    for name in names:
        for file in metadata.files(name) or ():
            top = file.parts[0]
            if top != ".." and not (site / top).exists():
                (site / top).symlink_to(PACKAGES / top)


def call(python: Path, *args: object) -> tuple[int, str, str]:
    done = subprocess.run([python, "-I", "-m", "trajpred", *map(str, args)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@UNIX
def test_it_starts_where_packages_are_missing(tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    code, out, err = call(python, "doctor")
    assert code == 1
    assert not err
    assert "GB free" in out
    assert "problem  packaging is not installed: pip install packaging" in out
    code, out, err = call(python, "train")
    assert code == 1
    assert err.count("\n") == 1
    assert "trajpred doctor" in err
    link(python, "packaging")
    code, out, err = call(python, "doctor")
    assert code == 1
    assert not err
    assert "Traceback" not in out
    for name in ("torch", "numpy", "pyarrow", "cyclopts"):
        assert f'problem  {name} is not installed: pip install "{name}' in out
    assert "onnx" not in out, "it belongs to an extra"
    link(python, *doctor.ONBOARD)
    code, out, err = call(python, "doctor")
    assert code == 0
    assert not err
    assert "sufficient for the onboard runtime" in out
    assert "ok       numpy " in out


def test_a_healthy_installation_has_no_problem(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("doctor")
    out = capsys.readouterr().out
    assert code == 0, out
    # Builds for CUDA have +cu130 in one of both.
    release = torch.__version__.partition("+")[0]
    assert f"ok       torch {release}" in out
    for name in pretrained.list_models():
        assert f"ok       {name}: Forecast(scenario: 1 tracks, 6 modes of 60 steps" in out


@pytest.mark.parametrize(
    ("version", "extra", "level", "words"),
    [
        ("1.9", "", "problem", ["too old", "1.9", 'pip install "']),
        ("1.9", "; extra == 'export'", "problem", ["too old"]),
        ("2.0", "", "ok", ["2.0 (<4,>=2)"]),
        ("4.0", "", "note", ["newer than the tested versions"]),
        (None, "", "problem", ["thing is not installed"]),
        (None, "; extra == 'export'", "", []),
    ],
)
def test_versions_are_checked(
    version: str | None, extra: str, level: str, words: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "installed", lambda name: version if name == "thing" else "1")
    findings = list(doctor.examine(f"thing>=2,<4{extra}"))
    assert [found for found, _ in findings] == [level] * bool(level)
    for word in words:
        assert word in findings[0][1]


def broken() -> Iterator[Finding]:
    """A check that fails."""
    yield "ok", "first"
    raise RuntimeError("then\nthis")


def test_what_cannot_be_used_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, a GPU without its driver, folders, and whatever else fails."""

    def problem(check: Any) -> str:
        level, text = list(doctor.guarded(check))[-1]
        assert level == "problem"
        return text

    assert "RuntimeError: then this" in problem(broken)
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    assert "no weights" in problem(doctor.models)
    (tmp_path / "half.pt").write_bytes(b"PK")
    assert "half.pt" in problem(doctor.models)
    assert "install trajpred again" in problem(doctor.models)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda _: "nvidia-smi")
    assert "there is an NVIDIA driver" in problem(doctor.device)

    def full(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert "cannot be written (Read-only file system)" in problem(doctor.folders)
