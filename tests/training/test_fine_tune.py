"""Fine-tuning with nothing but weights and a store, whatever the step of its data is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT, rejects
from tests.integrations.recordings import write_ind
from trajpred.cli.training_report import report
from trajpred.evaluation import evaluate, read_results
from trajpred.integrations.table import TableOptions
from trajpred.model.checkpoint import CONFIG, TRAINING, read_checkpoint
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore, prepare
from trajpred.training.settings import ABSENT, differences
from trajpred.training.train import TrainCLI, train

TEACHER = ROOT / "datasets" / "argoverse1" / "trained" / "teacher.pt"
CONFIGS = ROOT / "configs"
RECIPE = [f"--config={CONFIGS / 'recipes/argoverse.yaml'}", f"--config={CONFIGS / 'model/nano.yaml'}"]


@pytest.fixture(scope="module")
def slow_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of steps of 0.4 s."""
    folder = tmp_path_factory.mktemp("slow")
    for number in range(2):
        write_ind(folder / "raw", number, seconds=12.0, tracks=6)
    options = TableOptions(preset="ind", step_s=0.4)
    prepare("table", folder / "raw", folder / "store", workers=1, progress=False, options=options)
    return folder / "store"


@pytest.mark.filterwarnings("ignore")
def test_weights_bring_their_settings_and_the_data_their_step(
    slow_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without learning, the trained model is the one before, and both equal what evaluate says of it."""
    settings = ["--weights", "argoverse-nano", f"--data.store={slow_store}", "--pictures.scenes=0"]
    short = ["--trainer.max_epochs=1", "--trainer.limit_train_batches=1", "--trainer.limit_val_batches=1"]
    still = ["--model.optimizer.learning_rate=1e-12", f"--trainer.logger.init_args.save_dir={tmp_path}"]
    trained = train([*settings, *short, *still])
    assert trained is not None
    report(trained)
    printed = capsys.readouterr().out
    assert printed.startswith("Fine-tunes argoverse-nano; newly initialised: none\ndevice")
    assert f"{slow_store}, resampled from steps of 0.4 s to 0.1 s" in printed
    assert "reads 20 and predicts 60 steps of 0.1 s (2 s and 6 s)" in printed
    ours = read_checkpoint(trained.checkpoint)
    changed = differences(read_checkpoint("argoverse-nano")[CONFIG], ours[CONFIG], "model")
    # Settings that are newer than the weights have their defaults.
    assert [name for name, (before, _) in changed.items() if before is not ABSENT] == [
        "model.optimizer.learning_rate"
    ]
    assert ours[TRAINING]["licence"].startswith("CC BY-NC-SA 4.0")

    results = read_results(tmp_path / "forecaster" / "version_0" / "evaluation.json")
    names = [result.predictor for result in results[1:]]
    assert names == ["argoverse-nano", "lane_following", "constant_velocity"]
    assert len({tuple(result.seconds) for result in results}) == 1
    expected = evaluate(load_predictor("argoverse-nano"), ScenarioStore(slow_store, "val"), progress=False)
    for group in ("focal", "moving"):
        of_group = expected.metrics[group]
        assert results[1].metrics[group] == pytest.approx(of_group, abs=1e-4)
        assert results[0].metrics[group]["minFDE6"] == pytest.approx(of_group["minFDE6"], abs=1e-3)
    assert "| before (argoverse-nano) |" in printed


def config_of(*settings: str) -> TrainCLI:
    return TrainCLI([*settings, "--trainer.logger=false", "--trainer.accelerator=cpu"])


@pytest.mark.filterwarnings("ignore")
def test_what_the_user_sets_wins_as_long_as_all_weights_are_used(
    slow_store: Path, store_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = f"--data.store={store_path}"
    recipe = config_of(*RECIPE, f"--weights={TEACHER}", data)
    assert (recipe.model.forecaster.history, recipe.model.forecaster.horizon) == (20, 60)
    assert recipe.config.model.optimizer.learning_rate == 2e-3, "of the config"
    assert recipe.config.trainer.max_epochs == 72
    printed = capsys.readouterr().out
    assert "newly initialised: decoder.proposal.0.weight, decoder.anchor.0.weight, decoder.joint" in printed
    assert "model.future is 60, theirs 30; " in printed
    own = config_of(f"--data.store={slow_store}").model.forecaster
    assert (own.step_s, own.history) == (0.4, 12), "without weights, the model has the steps of the data"
    for wrong, sentence in {
        "--model.encoder.dim=64 --model.decoder.dim=64": r"\(model.encoder.dim is 64, theirs 48; ",
        "--model.encoder.layers=1": r"14 of its 181 weights .* \(model.encoder.layers is 1, theirs 2\)",
        "--model.step_s=0.4": r"model.step_s is 0.4, theirs 0.1: leave it out, the data are resampled",
    }.items():
        rejects(f"^argoverse-nano: .*{sentence}", config_of, *wrong.split(), "--weights=argoverse-nano", data)


def test_weights_import_nothing(store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser of settings would import a class path."""
    (tmp_path / "hostile_module.py").write_text("from trajpred.model import SceneEncoder as Encoder")
    monkeypatch.syspath_prepend(tmp_path)
    content = read_checkpoint("argoverse-nano")
    content[CONFIG]["encoder"]["class_path"] = "hostile_module.Encoder"
    torch.save(content, tmp_path / "hostile.ckpt")
    words = [f"--weights={tmp_path / 'hostile.ckpt'}", f"--data.store={store_path}"]
    rejects(r"hostile\.ckpt, field 'model\.encoder': .* --import hostile_module", train, words)
    assert "hostile_module" not in sys.modules
