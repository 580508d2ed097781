"""The facts of a training in its checkpoints, and the settings that a resumed epoch requires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.model.small import small_model
from tests.training.runs import SMALL_SCENES, trainer
from trajpred.errors import DataError
from trajpred.model.checkpoint import TRAINING, read_checkpoint
from trajpred.training.data_module import SceneData
from trajpred.training.record import TrainingRecord, batch_order


def train(
    store: Path,
    folder: Path,
    steps: int,
    resume: Path | None = None,
    accumulate: int = 1,
    **data: Any,
) -> Path:
    """Train to ``steps`` steps, four of three scenes per epoch, and return the checkpoint."""
    run = trainer(
        folder,
        max_steps=steps,
        accumulate_grad_batches=accumulate,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        callbacks=[TrainingRecord()],
        limit_val_batches=0,
    )
    run.fit(
        small_model(scene=SMALL_SCENES),
        SceneData(store, **{"batch_size": 3, **data}),
        ckpt_path=resume,
    )
    run.save_checkpoint(folder / f"{steps}.ckpt", weights_only=False)
    return folder / f"{steps}.ckpt"


def test_a_run_resumes_within_an_epoch_with_the_same_batches_only(store_path: Path, tmp_path: Path) -> None:
    within = train(store_path, tmp_path, 2)
    whole = train(store_path, tmp_path, 4)
    record = read_checkpoint(within)[TRAINING]
    assert (record["steps"], record["batch_size"], record["seed"]) == (2, 3, 0)
    changes: dict[str, Any] = {"seed": 1, "batch_size": 2, "memory_gb": 8.0}
    for name, value in changes.items():
        with pytest.raises(DataError, match=f"needs the same {name}: {record[name]}"):
            train(store_path, tmp_path, 3, within, **{name: value})
    assert train(store_path, tmp_path, 5, whole, batch_size=2).is_file(), "the next epoch may differ"


def test_accumulated_batches_are_not_larger_ones(store_path: Path, tmp_path: Path) -> None:
    within = train(store_path, tmp_path, 1, batch_size=2, accumulate=2)
    with pytest.raises(DataError, match="needs the same accumulate_grad_batches: 2"):
        train(store_path, tmp_path, 2, within, batch_size=4)
    content = torch.load(within, weights_only=True)
    del content[TRAINING]["accumulate_grad_batches"], content[TRAINING]["processes"]
    torch.save(content, within)
    assert train(store_path, tmp_path, 2, within, batch_size=2, accumulate=2).is_file(), "an older record"


@pytest.mark.parametrize("gigabytes", [None, 0.701])
def test_a_run_of_two_processes_resumes_within_an_epoch_with_one_if_its_steps_are_the_same(
    store_path: Path, tmp_path: Path, gigabytes: float | None
) -> None:
    """Twice as many crowded scenes fit into the memory of two processes."""
    within = train(store_path, tmp_path, 1, batch_size=4, memory_gb=gigabytes)
    content = torch.load(within, weights_only=True)
    assert content[TRAINING]["processes"] == 1
    content[TRAINING]["processes"] = 2
    torch.save(content, within)
    if gigabytes is None:
        train(store_path, tmp_path, 2, within, batch_size=4, memory_gb=gigabytes)
        return
    with pytest.raises(DataError, match="same processes: 2"):
        train(store_path, tmp_path, 2, within, batch_size=4, memory_gb=gigabytes)


def test_the_order_of_batches_depends_on_the_training_split_of_the_store_only() -> None:
    def order(train: int = 10, config: str = "0", **splits: int) -> Any:
        scenarios = {"train": train, "val": 5} | splits
        store = {"source": "made", "config": config, "scenarios": scenarios}
        return batch_order({"seed": 0, "store": store})

    assert order(test=3) == order()
    assert order(train=11) != order()
    assert order(config="1") != order()
    assert batch_order({}) == {}
