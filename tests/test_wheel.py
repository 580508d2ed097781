"""A wheel builds to the same bytes everywhere, and the installed command works outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import ROOT, SAMPLE

pytestmark = pytest.mark.slow


def copied(folder: Path) -> Path:
    """Copy what a wheel is built from, with tiny weights."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pt")
    shutil.copytree(ROOT / "trajpred", folder / "trajpred", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, folder / name)
    for name in ("tiny.pt", "tiny.md"):
        (folder / "trajpred" / "model" / "pretrained" / name).write_text(name)
    return folder


def build(source: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--no-build-isolation", "-w", out]
    time = {"SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(
        command, env=os.environ | time, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    [wheel] = out.glob("*.whl")
    return wheel


def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    source = copied(tmp_path / "source")
    # The same files elsewhere, written later and in another order.
    other = tmp_path / "other"
    for path in sorted(source.rglob("*"), reverse=True):
        if path.is_file():
            target = other / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            os.utime(target, (1.8e9, 1.8e9))
    first, second = build(source, tmp_path / "first"), build(other, tmp_path / "second")
    assert first.name == second.name and first.read_bytes() == second.read_bytes()


def installed(tmp_path: Path) -> Path:
    """Install the wheel in a clean environment with the dependencies of this one; return its scripts."""
    source = tmp_path / "source"
    for name in ("trajpred", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        source.mkdir(exist_ok=True)
        copy(ROOT / name, source / name)
    wheel = build(source, tmp_path / "dist")
    shutil.rmtree(source)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    scripts = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    install = ["pip", "--python", scripts / "python", "install", "--no-deps", "--no-index", wheel]
    subprocess.run([sys.executable, "-m", *install], check=True, capture_output=True)
    show = [scripts / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(show, check=True, capture_output=True, text=True).stdout.strip())
    # A plain path does not follow the editable installation among these packages.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return scripts


def test_the_installed_command_works_outside_the_repository(tmp_path: Path) -> None:
    scripts, here = installed(tmp_path), tmp_path / "elsewhere"
    here.mkdir()

    def run(command: str, *args: object) -> str:
        done = subprocess.run(
            [scripts / command, *map(str, args)], cwd=here, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert str(tmp_path) in run("python", "-c", "import trajpred; print(trajpred.__file__)")
    printed = run("trajpred", "doctor")
    assert "no sample" in printed and "ok       argoverse2-demo" in printed and "0 problems" in printed
    prepared = run("trajpred", "prepare", "--raw", SAMPLE, "--store", here / "store", "--workers", 1)
    assert "val: 5 scenarios" in prepared
    printed = run("trajpred", "evaluate", "--checkpoint", "argoverse2-demo", "--store", here / "store")
    assert "2.86" in printed, printed
