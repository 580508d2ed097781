"""Weights: damaged, foreign and hostile files are one DataError; names and shapes are pinned; cards hold."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import yaml
from torch import nn

from tests.conftest import ROOT, blocks, rejects, run
from tests.model.small import checkpoint_of, small_config, small_model
from tests.model.systems import CONFIGS, DEFAULT_MODEL, HEADS
from trajpred.evaluation import evaluate
from trajpred.model import Forecaster, HeadDecoder, ModeDecoder, SceneEncoder, pretrained
from trajpred.model.checkpoint import CONFIG, build, load_matching, read_checkpoint, training_facts
from trajpred.model.pretrained import locate
from trajpred.nn.edge_attention import Operator
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore
from trajpred.training.fine_tune import Start
from trajpred.training.lit_forecaster import LitForecaster


@pytest.fixture
def checkpoint(model: LitForecaster, tmp_path: Path) -> Path:
    return checkpoint_of(model, tmp_path / "model.ckpt")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_truncated_checkpoint_is_rejected(checkpoint: Path, share: float) -> None:
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: int(share * len(content))])
    rejects(r"model\.ckpt: is not a checkpoint, or is truncated", Forecaster.load, checkpoint)


def test_a_flipped_bit_in_a_weight_is_detected(tmp_path: Path) -> None:
    """``torch.load`` alone does not."""
    path = tmp_path / "best.ckpt"
    torch.save({CONFIG: {"a": 1}, "state_dict": {"w": torch.ones(2000)}}, path)
    data = bytearray(path.read_bytes())
    data[data.index(torch.ones(500).numpy().tobytes()) + 1000] ^= 1
    path.write_bytes(data)
    assert not torch.load(path, weights_only=True)["state_dict"]["w"].eq(1).all()
    rejects(r"damaged: \w+/data/0", read_checkpoint, path)


@pytest.mark.parametrize("content", [b"epoch: 3\n", b"\x80\x02}q\x00.", b"PK\x03\x04", {"state_dict": {}}])
def test_a_file_of_another_program_is_rejected(tmp_path: Path, content: Any) -> None:
    if isinstance(content, bytes):
        (tmp_path / "other.ckpt").write_bytes(content)
    else:
        torch.save(content, tmp_path / "other.ckpt")
    rejects(r"other\.ckpt.* is not a (trajpred )?checkpoint", Forecaster.load, tmp_path / "other.ckpt")
    message = r"none\.ckpt: no such checkpoint; shipped weights: .*argoverse"
    rejects(message, Forecaster.load, tmp_path / "none.ckpt")


def test_code_in_a_checkpoint_is_not_executed(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "executed",))

    torch.save({CONFIG: Trap(), "state_dict": {}}, tmp_path / "trap.ckpt")
    rejects("contains code", Forecaster.load, tmp_path / "trap.ckpt")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"encoder": None}, "'model': is not a model config"),
        ({"colour": 1}, "'model': is not a model config .*unexpected keyword argument 'colour'"),
        ({"history": "long"}, "'model': is not a model config"),
        ({"encoder": {"class_path": "trajpred.model.None"}}, "'model.encoder': names the class"),
        ({"encoder": {"class_path": "torch.nn.Linear"}}, "which is not a known TokenEncoder"),
    ],
    ids=str,
)
def test_an_unusable_config_is_rejected(change: dict[str, Any], problem: str) -> None:
    rejects(problem, lambda: build(LitForecaster, small_config(**change)))


def test_weights_that_do_not_fit_are_counted_and_named(model: LitForecaster, checkpoint: Path) -> None:
    """Loading for predictions and for fine-tuning, which initialises what is missing."""
    content = read_checkpoint(checkpoint)
    state = content["state_dict"]
    encoder = [name for name in state if name.startswith("forecaster.encoder.")]
    first, other, *_ = state
    renamed = {name.replace("encoder.", "backbone."): weight for name, weight in state.items()}
    surplus = rf"{len(encoder)} surplus \(forecaster\.backbone\.[^()]*, …\); load it with the code"
    cases = [
        (state | {"extra.weight": state[first]}, "", r"1 surplus \(extra\.weight\); "),
        (state | {first: torch.zeros(7, 7)}, "", rf"1 of another shape \({first}\); "),
        (renamed, rf"{len(encoder)} missing \(forecaster\.encoder\.[^()]*, …\), ", surplus),
    ]
    for weights, missing, rest in cases:
        torch.save(content | {"state_dict": weights}, checkpoint)
        place = r"^.*model\.ckpt, field 'state_dict': does not fit its model: "
        rejects(place + missing + rest, Forecaster.load, checkpoint)
        rejects(place + rest, Start.read, str(checkpoint))
    del state[other]
    torch.save(content, checkpoint)
    rejects(rf"1 missing \({other}\); ", Forecaster.load, checkpoint)
    said = Start.read(str(checkpoint)).load_into(model)[0]
    assert said.endswith(f"newly initialised: {other.removeprefix('forecaster.')}")


def test_fine_tuning_loads_the_weights_whose_shape_matches(model: LitForecaster) -> None:
    config = small_config()
    config["decoder"]["init_args"] |= {"horizon": 30}
    other = small_model(1, **config)
    new, unused = load_matching(other, model.state_dict(), "a.ckpt")
    assert new == unused == ["forecaster.decoder.proposal.0.weight"]
    state = other.state_dict()
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items() if k not in new)
    config = small_config()
    config["decoder"]["init_args"] |= {"joint": False}
    marginal = small_model(1, **config)
    new, unused = load_matching(model, marginal.state_dict(), "a.ckpt")
    assert new == [f"forecaster.decoder.{name}" for name in ("joint_mode", "across_bias", "across")]
    assert not unused
    assert load_matching(other, {"x": torch.zeros(1)}, "a.ckpt")[1] == ["x"]


def test_the_facts_of_a_training_are_at_least_epoch_and_steps() -> None:
    assert training_facts({"epoch": 1, "global_step": 7}) == {"epoch": 2, "steps": 7}
    assert training_facts({"trajpred_training": {"seed": 3}}) == {"seed": 3}


def test_the_folder_of_a_run_stands_for_its_best_checkpoint_else_the_last(tmp_path: Path) -> None:
    run = tmp_path / "version_0"
    (run / "checkpoints").mkdir(parents=True)
    assert locate(run) == run
    for name in ("last.ckpt", "best.ckpt"):
        (run / "checkpoints" / name).touch()
        assert locate(run) == locate(str(run / "checkpoints")) == run / "checkpoints" / name


def test_unknown_names_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shipped"
    folder.mkdir()
    monkeypatch.setattr(pretrained, "FOLDER", folder)
    rejects("known: none", Forecaster.from_pretrained, "tiny-2")
    shutil.copy(checkpoint_of(small_model(), tmp_path / "model.ckpt"), folder / "tiny-1.pt")
    for load in (Forecaster.from_pretrained, load_predictor, Forecaster.load):
        rejects(r"tiny-2: .*: tiny-1", load, "tiny-2")


def card(name: str) -> dict[str, float]:
    """Read the model's own row of the first table in its card."""
    lines = (pretrained.FOLDER / f"{name}.md").read_text().splitlines()
    table = [line.replace(" ", "").strip("|") for line in lines if line.startswith("|")]
    rows = [line.split("|") for line in table]
    metrics = rows[0][2:]
    for row in rows:
        if row[0] == name:
            values = [float(cell) for cell in row[2:]]
            return dict(zip(metrics, values, strict=True))
    raise LookupError(name)


@pytest.mark.slow  # tests/training/test_regression.py evaluates the demo weights for every change
@pytest.mark.parametrize("name", pretrained.list_models())
def test_shipped_weights_reach_the_results_of_their_card(name: str, tmp_path: Path) -> None:
    raw = ROOT / "datasets" / "argoverse1"
    assert run("prepare", "--source", "argoverse1", "--raw", raw, "--store", tmp_path, "--workers", 1) == 0
    scenes = ScenarioStore(tmp_path, "val")
    if "the reporting half" in (pretrained.FOLDER / f"{name}.md").read_text():
        scenes = scenes.halved("reporting")
    evaluation = evaluate(load_predictor(name), scenes, progress=False)
    for metric, value in card(name).items():
        assert evaluation.metrics["focal"][metric] == pytest.approx(value, abs=0.01), metric


#: Checkpoints outlive commits. After an intended change, run this file with ``TRAJPRED_PIN=1``.
PINNED = Path(__file__).with_name("state_dicts.json")


def digest(module: nn.Module) -> str:
    """Number of weights, and a hash of their names and shapes."""
    lines = [f"{name} {list(value.shape)}" for name, value in sorted(module.state_dict().items())]
    return f"{len(lines)} {hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:16]}"


def test_the_shipped_weights_are_those_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block in docs/how-to/train.md, on the weights before and after the last stage."""
    page = blocks(ROOT / "docs" / "how-to" / "train.md", "python")
    block = next(text for text in page if "lerp_" in text)
    trained = ROOT / "datasets" / "argoverse1" / "trained"
    for run_of, name in (("argoverse", "exact"), ("argoverse_noise", "noise")):
        file = trained / f"argoverse-nano-{name}.pt"
        block = block.replace(f"runs/{run_of}/version_0", file.as_posix())
    monkeypatch.chdir(tmp_path)
    exec(block, {})
    made = read_checkpoint(tmp_path / "mean.ckpt")["state_dict"]
    shipped = read_checkpoint("argoverse-nano")["state_dict"]
    assert made.keys() == shipped.keys()
    for name, weight in made.items():
        torch.testing.assert_close(weight, shipped[name], rtol=0, atol=1e-7)


def test_every_system_keeps_the_names_and_shapes_of_its_weights() -> None:
    parts: dict[str, nn.Module] = {"default": Forecaster(SceneEncoder(), ModeDecoder(joint=True))}
    for path in CONFIGS:
        config = DEFAULT_MODEL | yaml.safe_load(path.read_text())["model"]
        parts[path.stem] = Forecaster.build(config).encoder
    parts |= {f"HeadDecoder, {head}": HeadDecoder(head=head) for head in HEADS}
    operators = get_args(Operator)
    parts |= {f"ModeDecoder, {name}": ModeDecoder(attention=name, joint=True) for name in operators}
    digests = {name: digest(part) for name, part in parts.items()}
    if os.environ.get("TRAJPRED_PIN"):
        PINNED.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8", newline="\n")
    assert digests == json.loads(PINNED.read_text("utf-8"))
