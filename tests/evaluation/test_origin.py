"""What results record of their code, machine and training, and the line that says it."""

from __future__ import annotations

import inspect
import subprocess
from pathlib import Path

import pytest
import torch

import trajpred
from tests.evaluation.made_results import MACHINE, STORE, result, seeds
from trajpred import __version__
from trajpred.evaluation.origin import commit, cpu_model, environment, format_origin


def git(folder: Path, *command: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    done = subprocess.run(["git", *who, "-C", folder, *command], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_commit_and_changes_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert commit(package) == {}, "no repository"
    git(tmp_path, "init")
    assert commit(package) == {}, "another repository"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "results.json").write_text("{}")
    assert commit(package) == {"commit": head, "dirty": False}
    (package / "new.py").write_text("")
    assert commit(package) == {"commit": head, "dirty": True}
    default = inspect.signature(commit).parameters["package"].default
    assert default == Path(trajpred.__file__).parent, "the whole package by default"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(package) == {}, "no git"


def test_environment_is_plain_values(tmp_path: Path) -> None:
    found = environment()
    assert found["trajpred"] == __version__
    assert found["threads"] == torch.get_num_threads()
    torch.save(found, tmp_path / "facts.pt")
    assert torch.load(tmp_path / "facts.pt", weights_only=True) == found
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n")
    assert cpu_model(tmp_path / "cpuinfo") == "Some CPU @ 2 GHz"
    assert cpu_model(tmp_path / "none")


def test_origin_names_seeds_data_machine_and_code() -> None:
    origin = format_origin(seeds())
    parts = (
        "seeds 0, 1, 2;",
        "7,377 scenarios of argoverse1",
        "for 3 epochs, 100 steps, 2 minutes;",
        "on H200, Xeon (2 threads)",
    )
    assert all(part in origin for part in parts)
    assert STORE["source"] in origin
    assert "code trajpred 0.1.0, aaaaaaaaaa with changes, torch 2.13" in origin
    untrained = f"scored by trajpred {MACHINE['trajpred']}, aaaaaaaaaa, torch 2.13"
    assert format_origin([result("base", (4.0, 6.0))]) == untrained
