"""The doctor finds every problem, says what to do, and starts in a broken installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from tests.conftest import ROOT, run
from tests.store.scenarios import flip
from trajpred.cli import doctor
from trajpred.cli import doctor as machine
from trajpred.cli.doctor import Finding
from trajpred.model import pretrained
from trajpred.store.shards import sealed, unsealed

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
    code, out, err = call(python, "doctor", "--store", tmp_path)
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
    names = {requirement.name for requirement in doctor.requirements()[""]} - {"packaging"}
    assert len(names) > 10
    for name in names:
        assert f'problem  {name} is not installed: pip install "{name}' in out
    link(python, *doctor.ONBOARD)
    code, out, err = call(python, "doctor")
    assert code == 0
    assert not err
    assert "sufficient for the onboard runtime" in out
    assert "ok       numpy " in out


def test_a_healthy_installation_has_no_problem(store_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run("doctor", "--store", store_path)
    out = capsys.readouterr().out
    assert code == 0, out
    assert f"ok       torch {torch.__version__}" in out
    assert "sample: 16 scenarios" in out
    for name in pretrained.list_models():
        assert f"ok       {name}: " in out
    assert "train: 10 scenarios in" in out


#: A package that cannot be imported.
BROKEN = "raise OSError('no thing.so\\nat all')"


@pytest.mark.parametrize(
    ("version", "code", "level", "words"),
    [
        ("1.9", "", "problem", ["too old", "1.9", 'pip install "']),
        ("2.0", "", "ok", ["2.0 (<4,>=2)"]),
        ("4.0", "", "note", ["newer than the tested versions"]),
        ("4.0", BROKEN, "problem", ["no thing.so)", 'pip install "']),
        ("3", BROKEN, "problem", ["no thing.so)", "--force-reinstall"]),
    ],
)
def test_versions_are_checked_and_packages_imported(
    version: str,
    code: str,
    level: str,
    words: Sequence[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"thing{abs(hash((version, code)))}"
    info = tmp_path / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    finding = doctor.examine(Requirement(f"{name}>=2,<4"))
    assert finding.level == level
    for word in words:
        assert word in str(finding)


def text(check: Iterable[Finding]) -> str:
    return "\n".join(map(str, check))


def shard_of(record: Path) -> Path:
    [shard] = record.parent.glob(f"{record.stem}-*.arrow")
    return shard


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (Path.unlink, "No such file"),
        (lambda record: record.write_text(record.read_text() + " "), "its checksum is wrong"),
        (lambda record: shard_of(record).unlink(), ".arrow: cannot be opened"),
        (lambda record: flip(shard_of(record)), "wrong"),
        (lambda record: flip(next(record.parent.glob("index-*"))), "index-"),
    ],
)
def test_each_damaged_split_is_a_problem_with_its_remedy(
    store_path: Path, tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    copy = shutil.copytree(store_path, tmp_path / "my store")
    for split in ("test", "train"):
        damage(copy / split / "shard-00000.json")
    assert "ok       val: 5 scenarios" in text(doctor.check_store(copy))
    problems = [finding for finding in doctor.check_store(copy) if finding.level == "problem"]
    again = f"trajpred prepare --source argoverse2 --raw RAW_DIR --store '{copy}'"
    for split, problem in zip(("test", "train"), problems, strict=True):
        assert split in problem.what
        assert reason in problem.what
        assert problem.advice == again


def test_skipped_scenarios_and_missing_stores_are_reported(store_path: Path, tmp_path: Path) -> None:
    missing = text(doctor.data(tmp_path / "none"))
    assert "problem" in missing
    assert "trajpred prepare" in missing
    copy = shutil.copytree(store_path, tmp_path / "store")
    manifest = copy / "manifest.json"
    content = unsealed(manifest.read_text())
    content["splits"]["train"]["skipped"] = {"a": "bad"}
    manifest.write_text(sealed(content))
    assert "1 were skipped" in text(doctor.data(copy))


def test_damaged_weights_are_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    assert "no weights" in text(doctor.models())
    (tmp_path / "half.pt").write_bytes(b"PK")
    report = text(doctor.models())
    assert "problem" in report
    assert "half.pt" in report
    assert "install trajpred again" in report


def test_scarce_resources_and_an_unusable_gpu_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "max").write_text("1000000000\n")
    assert machine.memory_gb(tmp_path / "max") == 1.0
    (tmp_path / "max").write_text("max\n")
    assert machine.memory_gb(tmp_path / "max") == machine.memory_gb(tmp_path / "none") != 1.0
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**10, 0, 10**8))
    report = text(machine.space(tmp_path))
    assert report.count("note") == report.count("0.1 GB free") >= 3
    assert "the store" in report
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda _: "nvidia-smi")
    assert "problem  there is an NVIDIA driver" in text(machine.hardware())


def test_a_check_that_fails_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> Iterable[Finding]:
        yield Finding("ok", "first")
        raise RuntimeError("then\nthis")

    first, second = doctor.report("odd", broken)  # type: ignore[arg-type]
    assert first.level == "ok"
    assert second.level == "problem"
    assert "RuntimeError: then)" in second.what
    assert "install trajpred again" in second.advice
    assert capsys.readouterr().out.count("\n") == 3
