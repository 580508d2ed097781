"""The command trains on several stores, resumes in a run's folder, and locks it."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger

from tests.conftest import rejects
from tests.training.command import tiny
from trajpred.errors import DataError
from trajpred.model.checkpoint import TRAINING
from trajpred.training import record, train
from trajpred.training.record import RunLogger, RunProgress

#: Settings of two steps and a validation of one batch.
SHORT = (
    "--trainer.max_epochs=1 --trainer.limit_train_batches=2 --trainer.accelerator=cpu --pictures.scenes=0 "
    "--trainer.check_val_every_n_epoch=1 --trainer.limit_val_batches=1"
)


@pytest.mark.filterwarnings("ignore")
def test_one_training_at_a_time_writes_to_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trainer(version: str) -> pl.Trainer:
        logger = TensorBoardLogger(tmp_path, name="run", version=version)
        return pl.Trainer(accelerator="cpu", logger=logger, enable_checkpointing=False)

    monkeypatch.setattr(record, "LOCK_S", 0.0)
    first = record.lock_run(trainer("a"))
    in_another_folder = record.lock_run(trainer("b"))
    second = record.lock_run(trainer("a"))
    rejected = pytest.raises(DataError, match=r"run.a: another training is writing here")
    with first, in_another_folder, rejected, second:
        pytest.fail("two trainings hold the lock")
    with record.lock_run(trainer("a")):
        pass


def test_a_run_has_a_folder_of_its_own_whatever_its_loggers(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = [f"--data.store={store_path}", "--data.val_half=null"]
    cli = train.TrainCLI([*data, "--trainer.logger=CSVLogger", "--trainer.logger.save_dir=csv"])
    run_logger, csv_logger = cli.trainer.loggers
    folder = Path(run_logger.log_dir)
    tracker = Path(csv_logger.log_dir)
    assert Path(cli.trainer.log_dir) == folder == Path("runs/forecaster/version_0")
    assert tracker.parts[0] == "csv"


@pytest.mark.parametrize(("terminal", "wanted"), [(True, True), (True, False), (False, True)])
def test_a_bar_is_shown_on_terminals_that_want_one(
    terminal: bool, wanted: bool, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.chdir(tmp_path)  # where the folder of the run is made
    cli = train.TrainCLI([f"--data.store={store_path}", f"--trainer.enable_progress_bar={wanted}"])
    assert (cli.trainer.progress_bar_callback is not None) == (terminal and wanted)
    assert any(isinstance(callback, RunProgress) for callback in cli.trainer.callbacks) == wanted


@pytest.mark.skipif(find_spec("comet_ml") is not None, reason="the package is installed")
def test_the_missing_package_of_a_logger_is_named(store_path: Path) -> None:
    words = [f"--data.store={store_path}", "--trainer.logger=CometLogger"]
    rejects("^these settings need a package: pip install comet-ml$", train.TrainCLI, words)


def test_trainings_that_start_at_once_have_folders_of_their_own(tmp_path: Path) -> None:
    first = RunLogger(str(tmp_path), "run")
    second = RunLogger(str(tmp_path), "run")
    assert first.version == second.version == 0, "both have looked before either has a folder"
    first.create_folder()
    second.create_folder()
    assert (first.version, Path(first.log_dir).name) == (0, "version_0")
    assert (second.version, Path(second.log_dir).name) == (1, "version_1")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"version_0", "version_1"}


@pytest.mark.filterwarnings("ignore")
def test_a_run_resumes_in_its_folder_and_a_copied_checkpoint_starts_a_new_one(
    store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train.train(tiny(store_path, tmp_path, *SHORT.split()))
    run = tmp_path / "forecaster" / "version_0"
    resumed = train.train(["--resume", str(run / "checkpoints"), "--trainer.max_epochs=2"])
    assert resumed is not None
    assert resumed.folder == run
    assert f"store: {store_path}" in (run / "config.yaml").read_text(), "its own config"
    config = (run / "config.yaml").read_bytes()
    capsys.readouterr()
    train.train(["--resume", str(run), "--trainer.max_steps=1"])
    assert "Nothing was trained: " in capsys.readouterr().out, "no results: as if it had been killed before"
    both = ["--resume", str(run), "--weights", "argoverse-nano"]
    rejects("give --resume or --weights, not both", train.train, both)
    assert (run / "config.yaml").read_bytes() == config
    copy = tmp_path / "saved" / "last.ckpt"
    copy.parent.mkdir()
    shutil.copyfile(run / "checkpoints" / "last.ckpt", copy)
    copied = ["--config", str(run / "config.yaml"), "--resume", str(copy), "--trainer.max_epochs=3"]
    branched = train.train(copied)
    assert branched is not None
    assert branched.folder == tmp_path / "forecaster" / "version_1"
    assert [*copy.parent.iterdir()] == [copy]
    logger = ["--resume", str(run), "--trainer.logger=true"]
    rejects("trainer.logger': must be given with its class_path", train.train, logger)
    finished = [*copied[:-1], "--trainer.max_epochs=2"]
    rejects("has already finished training: give more epochs", train.train, finished)
    content = torch.load(copy, weights_only=False)
    for part in ("optimizer_states", "lr_schedulers", "loops", TRAINING):
        torch.save(content | {part: type(content[part])()}, copy)
        rejects("lacks parts of the state of a training: fine-tune its weights", train.train, copied)


@pytest.mark.parametrize("faster", [True, False])
def test_bf16_is_used_where_the_device_is_faster_in_it(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faster: bool
) -> None:
    """The settings that a run saves name its precision, so that it is resumed on another device as it was."""
    monkeypatch.setattr("trajpred.training.train.computes_faster_in_bf16", lambda accelerator: faster)
    cli = train.TrainCLI(tiny(store_path, tmp_path, "--bf16=true"))
    assert cli.config.trainer.precision == ("bf16-mixed" if faster else None)
    assert cli.trainer.precision == ("bf16-mixed" if faster else "32-true")
    assert not cli.config.bf16
