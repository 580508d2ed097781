"""The facts of a training in its checkpoints, and the settings that a resumed epoch requires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.model.small import small_model
from tests.training.test_lit_forecaster import SMALL_SCENES, trainer
from trajpred.errors import DataError
from trajpred.graph.data_module import SceneData
from trajpred.model.checkpoint import TRAINING, read_checkpoint
from trajpred.training.record import TrainingRecord, batch_order


def train(store: Path, folder: Path, steps: int, resume: Path | None = None, **data: Any) -> Path:
    """Train to ``steps`` steps, four of three scenes per epoch, and return the checkpoint."""
    run = trainer(
        folder,
        max_steps=steps,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        callbacks=[TrainingRecord()],
        limit_val_batches=0,
    )
    run.fit(small_model(scene=SMALL_SCENES), SceneData(store, **{"batch_size": 3, **data}), ckpt_path=resume)
    run.save_checkpoint(folder / f"{steps}.ckpt", weights_only=False)
    return folder / f"{steps}.ckpt"


def test_a_run_resumes_within_an_epoch_with_the_same_batches_only(store_path: Path, tmp_path: Path) -> None:
    within, whole = train(store_path, tmp_path, 2), train(store_path, tmp_path, 4)
    record = read_checkpoint(within)[TRAINING]
    assert (record["steps"], record["batch_size"], record["seed"]) == (2, 3, 0)
    others: list[dict[str, Any]] = [{"seed": 1}, {"batch_size": 2}, {"memory_gb": 8.0}]
    for other in others:
        name = next(iter(other))
        with pytest.raises(DataError, match=f"needs the same {name}: {record[name]}"):
            train(store_path, tmp_path, 3, within, **other)
    assert train(store_path, tmp_path, 5, whole, **others[1]).is_file(), "the next epoch may differ"


def test_the_order_of_batches_depends_on_the_training_split_of_the_store_only() -> None:
    store = {"source": "made", "config": "0", "scenarios": {"train": 10, "val": 5}}
    more = {**store, "scenarios": {"train": 10, "val": 5, "test": 3}}
    others = [{**store, "scenarios": {"train": 11, "val": 5}}, {**store, "config": "1"}]
    before, after, *changed = (batch_order({"seed": 0, "store": one}) for one in (store, more, *others))
    assert before == after and before not in changed
    assert batch_order({}) == {}
