"""Plugins: the documented package works in every command, and one that cannot be imported is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "how-to" / "own-model.md"


def install(folder: Path, modules: dict[str, str], points: str) -> dict[str, str]:
    """Create the files of an installed package; return the environment that has it on its path."""
    info = folder / "my_lab-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-lab\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    for name, content in modules.items():
        (folder / f"{name}.py").write_text(content)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


def trajpred(environment: dict[str, str], *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trajpred", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)


@pytest.fixture
def documented(tmp_path: Path) -> dict[str, str]:
    """The package of the page, installed."""
    text = PAGE.read_text("utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    [points] = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    points = points.replace('project.entry-points."trajpred.plugins"', "trajpred.plugins").replace('"', "")
    return install(tmp_path / "site", {"my_model": code}, points)


def test_predictors_and_metrics_of_a_plugin_are_known_to_commands(
    documented: dict[str, str], store_path: Path
) -> None:
    command = ["evaluate", "--store", store_path, "--limit", 2, "--workers", 1]
    done = trajpred(documented, *command, "--checkpoint", "my_predictor")
    assert done.returncode == 0, done.stderr
    assert "maxFDE1" in done.stdout
    assert "my_predictor" in done.stdout
    without = trajpred(dict(os.environ), *command, "--checkpoint", "my_predictor")
    assert without.returncode == 2
    assert "constant_velocity" in without.stderr


def test_a_model_of_a_plugin_is_trained_and_evaluated_by_name(
    documented: dict[str, str], store_path: Path, tmp_path: Path
) -> None:
    [yaml] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "my_model.yaml").write_text(yaml)
    words = ["--config", tmp_path / "my_model.yaml", "--data.store", store_path, "--trainer.max_epochs", 1]
    words += ["--trainer.limit_train_batches", 1, "--trainer.devices", 1, "--pictures.scenes", 0]
    words += ["--trainer.check_val_every_n_epoch", 1, "--trainer.logger.init_args.save_dir", tmp_path]
    done = trajpred(documented, "train", *words)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "forecaster" / "version_0"
    done = trajpred(documented, "evaluate", "--checkpoint", run, "--store", store_path, "--limit", 1)
    assert done.returncode == 0, done.stderr
    assert "minFDE6" in done.stdout, done.stderr


def test_a_plugin_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    points = "[trajpred.plugins]\nbroken-one = absent_module\n"
    environment = install(tmp_path / "site", {}, points)
    done = trajpred(environment, "info", "argoverse-nano")
    assert done.returncode == 2
    assert "broken-one" in done.stderr
    assert "absent_module" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "broken-one" not in trajpred(environment, "doctor").stderr
