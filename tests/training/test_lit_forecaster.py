"""Training, validation and checkpoints of the LightningModule."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from tests.graph.conftest import store_path  # noqa: F401
from tests.model.small import TOLERANCE, batch_of, small_config, small_model
from trajpred.errors import DataError
from trajpred.graph.data_module import SceneData
from trajpred.graph.scene_graph import SceneConfig
from trajpred.model import Forecaster
from trajpred.model.checkpoint import read_checkpoint
from trajpred.scenario import Scenario
from trajpred.training.lit_forecaster import LitForecaster

#: Gradients that are zero by algebra: a constant added to all logits changes nothing.
WITHOUT_EFFECT = {"forecaster.decoder.logit_head.2.bias"}

#: Variants of the model: what part of it they change, and how.
CHANGES = [
    ("both", {}),
    ("both", {"norm": "pre"}),
    ("decoder", {"refine_layers": 0}),
    *(("both", {"pose": pose}) for pose in ("bias", "values", "none")),
]


def trainer(folder: Path, **options: Any) -> pl.Trainer:
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    off = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(default_root_dir=folder, accelerator="cpu", **off, **options)


@pytest.fixture
def checkpoint(model: LitForecaster, tmp_path: Path) -> Path:
    """What Lightning saves of ``model``."""
    saver = trainer(tmp_path, enable_checkpointing=False)
    saver.strategy.connect(model)
    saver.save_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    return tmp_path / "model.ckpt"


@pytest.mark.parametrize(("part", "change"), CHANGES)
def test_every_parameter_is_trained(real: list[Scenario], part: str, change: dict[str, Any]) -> None:
    """In every variant: DDP waits forever for gradients that do not come."""
    config = small_config()
    for each in ("encoder", "decoder"):
        config[each]["init_args"] |= change if part in (each, "both") else {}
    model, batch = LitForecaster.build(config).train(), batch_of(real)
    model.losses(batch)["loss"].backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    still = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() < 1e-6}
    # Without poses a bias knows the kind of edge, and between joint modes there is but one.
    alone = {n for n in still if "across_bias" in n and change.get("pose") in ("values", "none")}
    assert without == set() and still - alone == WITHOUT_EFFECT


def test_a_few_steps_make_the_loss_fall(real: list[Scenario]) -> None:
    model, batch = small_model().train(), batch_of(real[:1])
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    history = []
    for _ in range(30):
        losses = model.losses(batch)
        optimizer.zero_grad()
        losses["loss"].backward()
        optimizer.step()
        history.append({name: float(value.detach()) for name, value in losses.items()})
    assert np.isfinite([*history[-1].values()]).all()
    for name in ("loss", "proposal", "refinement", "minADE", "joint_loss"):
        assert history[-1][name] < 0.9 * history[0][name], name


def test_a_run_through_lightning_leaves_a_checkpoint_that_predicts_the_same(
    store_path: Path,  # noqa: F811
    real: list[Scenario],
    tmp_path: Path,
) -> None:
    scene = {"features": {"max_lanes": 40}, "graph": {"lane_agent_k": 8}}
    model = small_model(scene=scene)
    fit = trainer(tmp_path, max_steps=2, limit_val_batches=1, num_sanity_val_steps=0)
    data = SceneData(store_path, batch_size=2)
    fit.fit(model, data)
    assert data.scene == model.scene != SceneConfig()
    path = next(tmp_path.rglob("*.ckpt"))
    loaded, batch = Forecaster.load(path), batch_of(real)
    assert loaded.scene == model.scene and loaded.config == model.config and not loaded.training
    found, expected = loaded(batch), model.eval()(batch)
    assert all(torch.equal(getattr(found, name), getattr(expected, name)) for name in TOLERANCE)
    assert not torch.equal(expected.trajectory, small_model(scene=scene)(batch).trajectory), (
        "nothing was learnt"
    )


def test_the_same_seed_trains_the_same_model(store_path: Path, tmp_path: Path) -> None:  # noqa: F811
    weights = []
    for run in range(2):
        model = small_model(seed=4)
        trainer(tmp_path / str(run), max_steps=2, limit_val_batches=0, enable_checkpointing=False).fit(
            model, SceneData(store_path, batch_size=2, seed=3)
        )
        weights.append(model.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_checkpoint_of_a_built_model_loads(
    checkpoint: Path, model: LitForecaster, real: list[Scenario]
) -> None:
    batch = batch_of(real[:1])
    assert torch.equal(Forecaster.load(checkpoint)(batch).trajectory, model(batch).trajectory)


def test_a_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such checkpoint"):
        Forecaster.load(tmp_path / "none.ckpt")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_checkpoint_is_refused(checkpoint: Path, share: float) -> None:
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match="truncated") as error:
        Forecaster.load(checkpoint)
    assert str(checkpoint) in str(error.value)


def test_a_checkpoint_with_damaged_bytes_is_refused_or_read(checkpoint: Path) -> None:
    good, random, refused = checkpoint.read_bytes(), np.random.default_rng(0), 0
    start = good.index(b"data.pkl")
    for _ in range(60):
        bad = np.frombuffer(good, np.uint8).copy()
        bad[random.integers(start, start + 15_000, 5)] = random.integers(0, 256, 5)
        checkpoint.write_bytes(bad.tobytes())
        try:
            read_checkpoint(checkpoint)
        except DataError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    "content",
    [
        b"epoch: 3\n",
        b"\x00" * 64,
        b"\x80\x02}q\x00.",
        b"PK\x03\x04 and more",
        b"hello world, a long text " * 99,
    ],
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.ckpt").write_bytes(content)
    with pytest.raises(DataError, match=r"other\.ckpt"):
        Forecaster.load(tmp_path / "other.ckpt")


@pytest.mark.parametrize("content", [{"state_dict": {}}, [1, 2], torch.zeros(3), {"trajpred_config": {}}])
def test_a_checkpoint_of_another_program_is_refused(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "other.ckpt")
    with pytest.raises(DataError, match="is not a trajpred checkpoint"):
        Forecaster.load(tmp_path / "other.ckpt")


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    torch.save({"trajpred_config": Trap(), "state_dict": {}}, tmp_path / "trap.ckpt")
    with pytest.raises(DataError):
        Forecaster.load(tmp_path / "trap.ckpt")
    assert not (tmp_path / "sprung").exists()


def test_weights_of_another_size_are_refused(checkpoint: Path) -> None:
    content = torch.load(checkpoint)
    content["trajpred_config"]["encoder"]["init_args"]["layers"] = 1
    torch.save(content, checkpoint)
    with pytest.raises(DataError, match="do not fit"):
        Forecaster.load(checkpoint)


@pytest.mark.parametrize(
    "change",
    [
        {"encoder": None},
        {"colour": 1},
        {"history": "long"},
        {"encoder": {"class_path": "trajpred.model.None"}},
    ],
    ids=str,
)
def test_a_config_that_makes_no_model_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="not a model config"):
        LitForecaster.build(small_config(**change))
