"""Checkpoint -> weights that ship with the package, ``NAME.pt``, and their model card, ``NAME.md``.

A release script: ``python tools/ship.py --help`` explains it.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import cyclopts
import torch
from torch import Tensor

from tools.model_card import model_card
from trajpred.cli.scenarios import open_split
from trajpred.data.files import atomic_file
from trajpred.data.geometry import norm
from trajpred.data.splits import Half
from trajpred.errors import DataError, require
from trajpred.evaluation import Evaluation, evaluate
from trajpred.features.scene_graph import build_batch
from trajpred.model import Forecaster, pretrained
from trajpred.model.checkpoint import (
    CALIBRATION,
    CONFIG,
    TRAINING,
    read_checkpoint,
    training_facts,
)
from trajpred.predictors import load_predictor
from trajpred.predictors.baselines import BASELINES
from trajpred.predictors.checkpoint import display_name
from trajpred.predictors.predictor import in_batches
from trajpred.store import ScenarioStore

#: Maximum size of a file of weights.
MAX_BYTES = 8_000_000


class Change(NamedTuple):
    """Difference between two sets of predictions.

    Attributes:
        usual: 99 % quantile over agents of the largest distance between corresponding points of their
            futures, metres. A few agents differ by more: a small change of an endpoint can change its
            neighbours in the refinement.
        largest: maximum over agents of that distance.
        probability: largest difference of a probability.
    """

    usual: float
    largest: float
    probability: float


def main(
    *,
    checkpoint: Path,
    name: str,
    store: Path | None = None,
    split: str = "val",
    part: Half | None = None,
    note: str = "",
    half: bool = True,
    tolerance_m: float = 0.02,
    overwrite: bool = False,
) -> None:
    """Turn a checkpoint into weights that ship with the package, and their model card.

    Example: python tools/ship.py --checkpoint best.ckpt --name my-model --store runs/argoverse1-store

    Args:
        checkpoint: Path of a checkpoint or run.
        name: Name under which users load it.
        store: Scenarios for the card's table and the check of half precision: folder written by prepare; by
            default the sample's.
        split: Split of the store.
        part: Use only this half of the split: the reporting half if the model was chosen on the other.
        note: First sentence of the card.
        half: Store the weights in half precision.
        tolerance_m: Metres by which half precision may move any point of 99 % of the predictions.
        overwrite: Replace existing weights with that name.
    """
    try:
        rows = open_split(store, split, part)
        sentence = ship(
            checkpoint,
            name,
            rows,
            note=note,
            half=half,
            tolerance_m=tolerance_m,
            overwrite=overwrite,
        )
        print(sentence)
    except (DataError, OSError) as error:
        sys.exit(f"error: {error}")


def ship(
    checkpoint: str | Path,
    name: str,
    rows: ScenarioStore,
    *,
    note: str = "",
    half: bool = True,
    tolerance_m: float = 0.02,
    overwrite: bool = False,
) -> str:
    """Write ``NAME.pt`` and ``NAME.md`` and return a sentence about the file.

    Args:
        checkpoint: checkpoint of the model.
        name: name of the weights.
        rows: labelled scenarios for the test of half precision and the card's evaluation.
        note: first sentence of the card.
        half: store half precision.
        tolerance_m: limit on :attr:`Change.usual` through half precision.
        overwrite: replace existing weights with that name.

    Raises:
        DataError: for an invalid name or checkpoint, a change beyond the limit, or a file larger than
            :data:`MAX_BYTES`. Nothing is written then.
    """
    valid = re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) is not None and name not in BASELINES
    require(valid, "name", "must be lower-case letters, digits, '-' and '.', and not a baseline's")
    taken = "names existing weights: choose another name, or replace them with --overwrite"
    require(overwrite or name not in pretrained.list_models(), "name", taken)
    content = read_checkpoint(checkpoint)
    state = content["state_dict"]
    stored = state
    change = None
    if half:
        stored = {key: in_half(value) for key, value in state.items()}
        change = changes(content[CONFIG], state, stored, rows)
        if not change.usual <= tolerance_m:
            excess = f"half precision moves 1 % of the predictions by more than {change.usual:.3f} m"
            advice = f"(limit {tolerance_m:g}); ship full precision (--no-half)"
            raise DataError(f"{excess} {advice}", file=checkpoint)
    baseline = _evaluate("constant_velocity", rows)
    original = _evaluate(checkpoint, rows)
    values = {CONFIG: content[CONFIG], "state_dict": stored, TRAINING: _training(content, name, checkpoint)}
    if CALIBRATION in content:
        values[CALIBRATION] = content[CALIBRATION]
    size = _write(pretrained.FOLDER / f"{name}.pt", values)
    result = _evaluate(name, rows)
    precision = "full precision"
    if change is not None:
        precision = f"half precision, which {_effect(change, original, result)}"
    file = f"{size / 1e6:.1f} MB in {precision}"
    model = Forecaster.from_pretrained(name)
    joint = None
    if model.decoder.joint:
        joint = _evaluate(name, rows, joint=True)
    card = model_card(name, model, [baseline, result], joint, note=note, file=file)
    (pretrained.FOLDER / f"{name}.md").write_text(card, encoding="utf-8")
    return f"{pretrained.FOLDER / name}.pt: {file}"


def _training(content: dict[str, Any], name: str, checkpoint: str | Path) -> dict[str, Any]:
    """Return the facts about a checkpoint's training, without the training machine's folders."""
    training = dict(training_facts(content))
    training["recipe"] = name
    training["checkpoint"] = display_name(checkpoint)
    if training.get("weights"):
        training["weights"] = display_name(training["weights"])
    if training.get("stores"):
        training["stores"] = {Path(path).name: times for path, times in training["stores"].items()}
    return training


def in_half(values: Tensor) -> Tensor:
    """Return ``values`` as float16, or unchanged if they would overflow or vanish."""
    if not values.is_floating_point() or not values.numel():
        return values
    half = values.half()
    safe = (half.to(values.dtype) - values).abs().amax() <= values.abs().amax() / 1024
    return half if safe else values


@torch.inference_mode()
def changes(
    config: dict[str, object], state: dict[str, Tensor], stored: dict[str, Tensor], rows: ScenarioStore
) -> Change:
    """Compare the predictions of all agents of ``rows`` with the weights ``state`` and ``stored``."""
    original = Forecaster.with_weights(config, state, "checkpoint")
    changed = Forecaster.with_weights(config, stored, "checkpoint")
    distances: list[Tensor] = []
    probabilities: list[Tensor] = []
    for indices in in_batches(range(len(rows)), 16):
        batch = build_batch([rows[index] for index in indices], original.scene)
        before = original(batch)
        after = changed(batch)
        distance = norm(before.trajectory - after.trajectory)
        distances.append(distance.amax((1, 2)))
        probability = before.logits.softmax(-1) - after.logits.softmax(-1)
        probabilities.append(probability.abs().amax(1))
    metres = torch.cat(distances)
    return Change(
        usual=float(metres.quantile(0.99)),
        largest=float(metres.max()),
        probability=float(torch.cat(probabilities).max()),
    )


def _evaluate(checkpoint: str | Path, rows: ScenarioStore, joint: bool = False) -> Evaluation:
    return evaluate(load_predictor(checkpoint, joint), rows, progress=True)


def _effect(change: Change, original: Evaluation, result: Evaluation) -> str:
    before = original.metrics["focal"]["minFDE6"]
    after = result.metrics["focal"]["minFDE6"]
    return (
        f"moves 99 % of the predictions by less than {change.usual:.3f} m (all by at most "
        f"{change.largest:.3f} m, a probability by {change.probability:.4f}) and the focal minFDE6 from "
        f"{before:.4f} m to {after:.4f} m"
    )


def _write(path: Path, content: dict[str, object]) -> int:
    """Write the weights and return their size in bytes. Raises: DataError if it exceeds the limit."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    size = buffer.tell()
    excess = f"{path.name} would have {size / 1e6:.1f} MB, more than {MAX_BYTES / 1e6:g}"
    require(size <= MAX_BYTES, "name", excess)
    with atomic_file(path) as unfinished:
        unfinished.write_bytes(buffer.getvalue())
    return size


if __name__ == "__main__":
    cyclopts.run(main)
