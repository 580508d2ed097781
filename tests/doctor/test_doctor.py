"""The doctor finds what is wrong, says what to do, and never falls over it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement as Reference
from trajpred.doctor.finding import Finding
from trajpred.doctor.requirements import Requirement, requirements, satisfies

from tests.conftest import ROOT, run
from tests.graph.conftest import store_path  # noqa: F401
from trajpred.doctor import contents, installation, machine, report
from trajpred.model import pretrained as weights

PACKAGES = Path(sysconfig.get_path("purelib"))
CORE = [one for one in requirements() if not one.extra]
UNIX = pytest.mark.skipif(os.name == "nt", reason="environments are laid out differently")


def bare(folder: Path, *kept: str) -> Path:
    """The Python of an environment that knows trajpred, and else only the distributions ``kept``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    (site / "trajpred.pth").write_text(str(ROOT), encoding="utf-8")
    (site / "trajpred-0.1.0.dist-info").mkdir()
    told = metadata.distribution("trajpred").metadata.as_string()
    (site / "trajpred-0.1.0.dist-info" / "METADATA").write_text(told, encoding="utf-8")
    for name in kept:
        for path in {Path(file.parts[0]) for file in metadata.files(name) or () if file.parts[0] != ".."}:
            (site / path).symlink_to(PACKAGES / path)
    return folder / "bin" / "python"


def doctor(python: Path, folder: Path, *args: object) -> tuple[int, str]:
    """Exit code and report; nothing may be raised."""
    command = [python, "-I", "-m", "trajpred", "doctor", *map(str, args)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


@UNIX
def test_where_nothing_is_installed_it_says_so(tmp_path: Path) -> None:
    code, told = doctor(bare(tmp_path / "venv"), tmp_path)
    assert code == 1 and len(CORE) > 10
    for one in CORE:
        assert f'problem  {one.name} is not installed: pip install "{one}"' in told
    assert "GB free" in told and "Traceback" not in told


@UNIX
def test_a_vehicle_needs_numpy_and_onnxruntime_alone(tmp_path: Path) -> None:
    python = bare(tmp_path / "venv", *installation.ONBOARD)
    code, told = doctor(python, tmp_path)
    assert code == 0 and "enough for the onboard runtime" in told and "ok       numpy " in told
    assert not any(f"{one.name} is" in told for one in CORE if one.name != "torch")
    subprocess.run([python, "-I", "-c", "import trajpred.onboard.stream"], check=True, capture_output=True)


@UNIX
def test_another_tool_tells_what_it_lacks_in_one_line(tmp_path: Path) -> None:
    python = bare(tmp_path / "venv")
    done = subprocess.run([python, "-m", "trajpred", "train"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "No module named" in done.stderr and "trajpred doctor" in done.stderr


def test_a_healthy_installation_has_no_problem(
    store_path: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run("doctor", "--store", store_path)
    told = capsys.readouterr().out
    assert code == 0, told
    assert f"ok       torch {torch.__version__}" in told and "sample: 16 scenarios" in told
    assert all(f"ok       {name}: " in told for name in weights.list_models())
    assert "train: 9 scenarios in" in told or "train: 10 scenarios in" in told


def install(folder: Path, version: str, code: str = "") -> Requirement:
    """A distribution of one package, ``folder``'s name, on the path; a requirement of at least 2."""
    name = folder.name
    (folder / f"{name}-{version}.dist-info").mkdir(parents=True)
    (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(code)
    return Requirement(name, (">=2", "<4"))


@pytest.mark.parametrize(
    ("version", "code", "level", "words"),
    [
        ("1.9", "", "problem", ["too old", "1.9", 'pip install "']),
        ("2.0", "", "ok", ["2.0 (>=2,<4)"]),
        ("3.9.1+cpu", "", "ok", ["3.9.1+cpu"]),
        ("4.0", "", "note", ["newer than what is tested"]),
        (
            "3",
            "raise OSError('no libthing.so\\nat all')",
            "problem",
            ["OSError: no libthing.so)", "--force-reinstall"],
        ),
        ("3", "import thing_that_is_not_there", "problem", ["cannot be imported", "thing_that_is_not_there"]),
    ],
)
def test_old_new_and_broken_packages(
    version: str, code: str, level: str, words: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / f"thing{abs(hash((version, code)))}"
    asked = install(folder, version, code)
    monkeypatch.syspath_prepend(folder)
    found = installation._examined(asked)
    assert found.level == level and all(word in str(found) for word in words), found


def test_a_package_is_imported_by_its_own_name() -> None:
    imported = {"pillow": "PIL", "PyYAML": "yaml", "pytorch-lightning": "pytorch_lightning", "numpy": "numpy"}
    assert {name: Requirement(name).module() for name in imported} == imported


def test_requirements_are_read_as_packaging_reads_them() -> None:
    for text in metadata.requires("trajpred") or ():
        ours, theirs = Requirement.parse(text), Reference(text)
        assert (ours.name, set(ours.bounds)) == (theirs.name, set(map(str, theirs.specifier)))
        here = {"extra": ours.extra, "python_version": "3.10"}  # the one that every marker is about
        assert theirs.marker is None or not ours.extra or theirs.marker.evaluate(here)
        for version in ("0.1", "1.23", "2", "2.0.0", "2.13.1+cpu", "2.14", "2026.8.1", "17.0"):
            assert (not ours.unmet(version)) == theirs.specifier.contains(version), (text, version)
    with pytest.raises(ValueError, match="no requirement"):
        Requirement.parse("; nothing")


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "==", "!="])
def test_bounds_are_those_of_packaging(sign: str) -> None:
    for version in ("1.9", "1.10", "1.10.0", "1.10.1", "2"):
        assert satisfies(version, f"{sign}1.10") == Reference(f"x{sign}1.10").specifier.contains(version)


def findings(check: object) -> str:
    return "\n".join(map(str, check))  # type: ignore[call-overload]


def test_a_store_that_is_not_there_or_damaged_is_a_problem(
    store_path: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    assert "problem" in (told := findings(contents.data(tmp_path / "none"))) and "prepare.py" in told
    store = shutil.copytree(store_path, tmp_path / "store")
    assert "problem" not in findings(contents.data(store))
    shard = next((store / "val").glob("shard-*.arrow"))
    whole = shard.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole + b"more"):
        shard.write_bytes(damaged)
        told = findings(contents.data(store))
        assert "problem" in told and str(shard) in told and "prepare it again" in told
    assert run("doctor", "--store", store) == 1


def without_length(record: Path) -> None:
    record.write_text(record.read_text().replace('"bytes"', '"octets"'))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (Path.unlink, "FileNotFoundError"),
        (without_length, "KeyError: 'bytes'"),
        (lambda record: record.write_text("[]"), "TypeError"),
        (lambda record: record.write_bytes(b"\xff"), "UnicodeDecodeError"),
        (lambda record: record.with_suffix(".arrow").unlink(), "shard-00000.arrow: cannot be opened"),
    ],
)
def test_a_damaged_split_is_told_with_what_to_do_and_the_others_are_checked(
    store_path: Path,  # noqa: F811
    tmp_path: Path,
    damage: Callable[[Path], object],
    told: str,
) -> None:
    store = shutil.copytree(store_path, tmp_path / "my store")
    for split in ("test", "train"):
        damage(store / split / "shard-00000.json")
    found = [one for one in contents.stored(store) if one.level == "problem"]
    assert len(found) == 2 and "ok       val: 5 scenarios" in findings(contents.stored(store))
    again = f"prepare it again: python tools/prepare.py --source argoverse2 --raw RAW_DIR --store '{store}'"
    for split, one in zip(("test", "train"), found, strict=True):
        assert split in one.what and told in one.what and one.advice == again
        assert str(one).count("prepare it again") == 1


def test_skipped_scenarios_are_noted(store_path: Path, tmp_path: Path) -> None:  # noqa: F811
    store = shutil.copytree(store_path, tmp_path / "store")
    manifest = store / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"skipped": {}', '"skipped": {"a": "bad"}'))
    assert "1 were skipped" in findings(contents.data(store))


def test_a_store_that_does_not_tell_its_source_is_checked(store_path: Path, tmp_path: Path) -> None:  # noqa: F811
    store = shutil.copytree(store_path, tmp_path / "store")
    manifest = store / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"source"', '"origin"'))
    (store / "val" / "shard-00000.json").unlink()
    told = findings(contents.stored(store))
    assert "--source SOURCE --raw RAW_DIR" in told and "ok       train: " in told


def test_damaged_weights_are_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    assert "no weights" in findings(contents.models())
    (tmp_path / "half.pt").write_bytes(b"PK")
    assert "problem" in (told := findings(contents.models())) and "half.pt" in told and "again" in told


def test_scarce_space_and_memory_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "max").write_text("1000000000\n")
    assert machine._memory_gb(tmp_path / "max") == 1.0
    (tmp_path / "max").write_text("max\n")
    assert machine._memory_gb(tmp_path / "max") == machine._memory_gb(tmp_path / "none") != 1.0
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**10, 0, 10**8))
    told = findings(machine.space(tmp_path))
    assert told.count("note") == told.count("0.1 GB free") >= 3 and "the store" in told


def test_a_gpu_that_torch_cannot_use_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda _: "nvidia-smi")
    assert "problem  there is an NVIDIA driver" in findings(machine.hardware())


def test_a_check_that_fails_is_a_problem_and_the_next_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> object:
        yield Finding("ok", "first")
        raise RuntimeError("then\nthis")

    found = list(report("odd", broken))  # type: ignore[arg-type]
    assert [one.level for one in found] == ["ok", "problem"] and "RuntimeError: then)" in found[1].what
    assert "install trajpred again" in found[1].advice
    assert capsys.readouterr().out.count("\n") == 3
