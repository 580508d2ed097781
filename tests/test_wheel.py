"""Installed from a wheel, also editable, trajpred works in every folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import ROOT, SAMPLE

pytestmark = pytest.mark.slow
#: What an installation from the checkout computes on the sample.
METRICS = json.loads((ROOT / "tests" / "training" / "sample_metrics.json").read_text("utf-8"))
#: Without what may lead to another trajpred.
CLEAN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def sources(folder: Path) -> Path:
    """Copy what an installation is made from."""
    shutil.copytree(ROOT / "trajpred", folder / "trajpred", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, folder / name)
    return folder


def build(source: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--no-build-isolation", "-w", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    [wheel] = out.glob("*.whl")
    return wheel


def installed(tmp_path: Path, *what: object) -> Path:
    """Install ``what`` in a clean environment with the dependencies of this one; return its scripts."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    scripts = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    show = [scripts / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(show, check=True, capture_output=True, text=True).stdout.strip())
    # A plain path does not follow the editable installation among these packages.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    install = ["pip", "--python", scripts / "python", "install", "--no-deps", "--no-index"]
    install += ["--no-build-isolation", *what]
    subprocess.run([sys.executable, "-m", *install], env=CLEAN, check=True, capture_output=True)
    return scripts


def test_the_installed_command_works_outside_the_repository(tmp_path: Path) -> None:
    source = sources(tmp_path / "source")
    scripts, here = installed(tmp_path, build(source, tmp_path / "dist")), tmp_path / "elsewhere"
    shutil.rmtree(source)
    here.mkdir()

    def run(command: str, *args: object, code: int = 0) -> str:
        line = [scripts / command, *map(str, args)]
        done = subprocess.run(line, cwd=here, env=CLEAN, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    assert str(tmp_path) in run("python", "-c", "import trajpred; print(trajpred.__file__)")
    printed = run("trajpred", "doctor")
    assert "ok       argoverse-nano" in printed
    assert "0 problems" in printed
    options = {"prepare": "--raw", "evaluate": "--store", "train": "--data.store"}
    for command, option in options.items():
        said = run("trajpred", command, code=2).splitlines()[-1]
        assert said.startswith("error: the sample is in trajpred's repository only")
        assert f"give your own data with {option}" in said
    prepared = run("trajpred", "prepare", "--raw", SAMPLE, "--store", here / "store", "--workers", 1)
    assert "val: 5 scenarios" in prepared
    saved = here / "results.json"
    run("trajpred", "evaluate", "--checkpoint", "argoverse-nano", "--store", here / "store", "--out", saved)
    focal = json.loads(saved.read_text("utf-8"))["metrics"]["focal"]
    assert focal == pytest.approx(METRICS["argoverse-nano"]["focal"], abs=0.02)


def test_an_editable_installation_works_beside_the_checkout(tmp_path: Path) -> None:
    """In the folder above it, a checkout named trajpred looks like a namespace package."""
    checkout = sources(tmp_path / "trajpred")
    scripts = installed(tmp_path, "--editable", checkout)
    show = [scripts / "python", "-c", "import trajpred; print(trajpred.Scenario, trajpred.__file__)"]
    for folder in (tmp_path, checkout, tmp_path / "venv"):
        done = subprocess.run(show, cwd=folder, env=CLEAN, capture_output=True, text=True, check=True)
        assert str(checkout / "trajpred" / "__init__.py") in done.stdout
