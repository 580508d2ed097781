"""The origin of results: git, the machine and the store."""

from __future__ import annotations

import inspect
import json
import subprocess
from pathlib import Path

import pytest
import torch

import trajpred
from trajpred import __version__
from trajpred.evaluation.results import commit, cpu_model, environment, store_facts


def git(folder: Path, *command: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    done = subprocess.run(["git", *who, "-C", folder, *command], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_commit_and_changes_of_the_package_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert found["trajpred"] == __version__ and found["threads"] == torch.get_num_threads()
    torch.save(found, tmp_path / "facts.pt")
    assert torch.load(tmp_path / "facts.pt", weights_only=True) == found
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n")
    assert cpu_model(tmp_path / "cpuinfo") == "Some CPU @ 2 GHz"
    assert cpu_model(tmp_path / "none")


def test_store_facts_are_source_config_and_counts(store_path: Path) -> None:
    manifest, found = json.loads((store_path / "manifest.json").read_text()), store_facts(store_path)
    assert found["source"] == "argoverse2" and found["config"] == manifest["config"]
    assert found["scenarios"] == {"train": 10, "val": 5, "test": 1}
