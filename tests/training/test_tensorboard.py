"""What TensorBoard receives, read back from its event files."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.model.small import small_model
from tests.training.runs import SMALL_SCENES, trainer
from trajpred.training.data_module import SceneData
from trajpred.training.record import RunLogger


def test_curves_are_logged_and_train_loss_comes_first(store_path: Path, tmp_path: Path) -> None:
    options = {"limit_train_batches": 1, "log_every_n_steps": 1, "enable_checkpointing": False}
    run = trainer(tmp_path, max_epochs=2, logger=RunLogger(str(tmp_path)), **options)
    run.fit(small_model(scene=SMALL_SCENES).train(), SceneData(store_path, batch_size=2))
    logged = EventAccumulator(str(next(tmp_path.rglob("events*")))).Reload().Tags()["scalars"]
    assert {tag.split("/")[0] for tag in logged} == {"train", "update", "val"}
    assert min(logged).startswith("train/"), "where TensorBoard opens"
