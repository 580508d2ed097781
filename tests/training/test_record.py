"""What a checkpoint says of its training, and with which settings it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl

from tests.graph.conftest import store_path  # noqa: F401
from tests.model.small import small_model
from trajpred.errors import DataError
from trajpred.graph.data_module import SceneData
from trajpred.model.checkpoint import TRAINING, read_checkpoint
from trajpred.training.record import TrainingRecord, batch_order


def train(store: Path, folder: Path, steps: int, resume: Path | None = None, **data: Any) -> Path:
    """A checkpoint after so many steps; an epoch has four of three scenes."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=steps, use_distributed_sampler=False, enable_checkpointing=False,
        callbacks=[TrainingRecord()], limit_val_batches=0, **quiet,
    )  # fmt: skip
    trainer.fit(small_model(), SceneData(store, **{"batch_size": 3, **data}), ckpt_path=resume)
    trainer.save_checkpoint(folder / f"{steps}.ckpt", weights_only=False)
    return folder / f"{steps}.ckpt"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("other", [{"seed": 1}, {"batch_size": 2}, {"memory_gb": 8.0}])
def test_an_epoch_goes_on_with_its_own_batches_alone(
    store_path: Path,  # noqa: F811
    tmp_path: Path,
    other: dict[str, float],
) -> None:
    """Else scenes would come twice, and others never. The next epoch may be another."""
    within, whole = train(store_path, tmp_path, 2), train(store_path, tmp_path, 4)
    name = next(iter(other))
    with pytest.raises(DataError, match=f"needs the same {name}: {read_checkpoint(within)[TRAINING][name]}"):
        train(store_path, tmp_path, 3, within, **other)
    assert train(store_path, tmp_path, 3, within).is_file()
    assert train(store_path, tmp_path, 5, whole, **other).is_file()


def test_of_the_store_the_training_split_has_to_stay() -> None:
    """A test split may be added to it meanwhile."""
    store = {"source": "made", "config": "0", "scenarios": {"train": 10, "val": 5}}
    more = {**store, "scenarios": {"train": 10, "val": 5, "test": 3}}
    others = [{**store, "scenarios": {"train": 11, "val": 5}}, {**store, "config": "1"}]
    before, after, *changed = (batch_order({"seed": 0, "store": one}) for one in (store, more, *others))
    assert before == after and before not in changed
    assert batch_order({}) == {}
