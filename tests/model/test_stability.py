"""The default model (post-LN, warm-up) trains without diverging, from several seeds and in bfloat16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl

from tests.graph.conftest import store_path  # noqa: F401
from tests.model.small import small_model
from tests.training.test_lit_forecaster import trainer
from trajpred.graph.augment import AugmentConfig
from trajpred.graph.data_module import SceneData

DEFAULT = {
    "encoder": {"class_path": "trajpred.model.SceneEncoder"},
    "decoder": {"class_path": "trajpred.model.ModeDecoder"},
}
VARIED = AugmentConfig(drop_agents=0.1, drop_lanes=0.1, truncate_history=0.2, mirror=0.5)


class Curve(pl.Callback):
    """The loss of every step."""

    def __init__(self) -> None:
        self.loss: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.loss.append(float(trainer.callback_metrics["train/loss"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "precision"), [(0, "32-true"), (1, "32-true"), (2, "32-true"), (0, "bf16-mixed")]
)
def test_a_hundred_steps_on_the_sample(
    store_path: Path,  # noqa: F811
    tmp_path: Path,
    seed: int,
    precision: Any,
) -> None:
    curve, model = Curve(), small_model(seed, **DEFAULT).train()
    options = {"gradient_clip_val": 1.0, "limit_val_batches": 0, "enable_checkpointing": False}
    run = trainer(tmp_path, max_epochs=34, precision=precision, callbacks=[curve], **options)
    run.fit(model, SceneData(store_path, VARIED, batch_size=4, seed=seed))  # stops where it is not finite
    loss = np.array(curve.loss)
    assert len(loss) == 102 and np.isfinite(loss).all()
    # Never back to where it began once the warm-up (5 steps) is over, and far below it in the end.
    assert loss[20:].max() < loss[:5].mean() and loss[-20:].mean() < 0.5 * loss[:5].mean()
