"""Make a file of weights that ships, and its model card, from a checkpoint."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from trajpred.errors import DataError, require
from trajpred.evaluation import Evaluation, evaluate
from trajpred.evaluation.intervals import bootstrap
from trajpred.evaluation.table import format_origin, format_table
from trajpred.geometry import norm
from trajpred.graph.scene_graph import build_batch
from trajpred.model import Forecaster, pretrained
from trajpred.model.checkpoint import (
    CALIBRATION,
    CONFIG,
    TRAINING,
    load_weights,
    read_checkpoint,
    training_facts,
    weights_below,
)
from trajpred.predictors import load_predictor
from trajpred.predictors.checkpoint import display_name
from trajpred.predictors.predictor import BASELINES, in_batches
from trajpred.store import ScenarioStore

MAX_BYTES = 8_000_000


class Change(NamedTuple):
    """How far predictions moved: the farthest point of any mode of an agent, metres, and its probabilities.

    ``usual`` is what 99 % of the agents stay within. A few may move farther: where another endpoint has other
    neighbours, the decoder's second look sees something else.
    """

    usual: float
    largest: float
    probability: float


def ship(
    checkpoint: str | Path,
    name: str,
    rows: ScenarioStore,
    *,
    note: str = "",
    half: bool = True,
    tolerance_m: float = 0.02,
) -> str:
    """Write ``NAME.pt`` and ``NAME.md``; returns a sentence on what was written.

    Args:
        checkpoint: of the model.
        name: to ship it by.
        rows: labelled scenarios that half precision is tried on and the card's table is made from.
        note: opens the card.
        half: keep half precision.
        tolerance_m: how far that may move any point of 99 % of the predictions, metres.

    Raises:
        DataError: an unusable name or checkpoint, half precision moves more of them farther, or the file
            would be larger than :data:`MAX_BYTES`. Nothing is written then.
    """
    usable = re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) is not None and name not in BASELINES
    require(usable, "name", "must be lower-case letters, digits, '-' and '.', and no baseline's")
    content = read_checkpoint(checkpoint)
    state = content["state_dict"]
    kept = {key: in_half(value) for key, value in state.items()} if half else state
    change = changes(content[CONFIG], state, kept, rows)
    if change.usual > tolerance_m:
        moved = f"half precision moves 1 % of the predictions by more than {change.usual:.3f} m"
        how = f"(allowed: {tolerance_m:g}); ship full precision (--half false)"
        raise DataError(f"{moved} {how}", file=checkpoint)
    base, before = (_score(one, rows) for one in ("constant_velocity", checkpoint))
    training = {**training_facts(content), "recipe": name, "checkpoint": display_name(checkpoint)}
    fitted = {CALIBRATION: content[CALIBRATION]} if CALIBRATION in content else {}
    size = _write(name, {CONFIG: content[CONFIG], "state_dict": kept, TRAINING: training, **fitted})
    after = _score(name, rows)
    precision = f"half precision, which {_told(change, before, after)}" if half else "full precision"
    told = f"{size / 1e6:.1f} MB in {precision}"
    card = model_card(name, Forecaster.from_pretrained(name), [base, after], note=note, file=told)
    (pretrained.FOLDER / f"{name}.md").write_text(card, encoding="utf-8")
    return f"{pretrained.FOLDER / name}.pt: {told}"


def in_half(values: Tensor) -> Tensor:
    """``values`` as float16, if its rounding is then all that changes: no overflow, no vanishing scale."""
    if not values.is_floating_point() or not values.numel():
        return values
    half = values.half()
    safe = (half.to(values.dtype) - values).abs().amax() <= values.abs().amax() / 1024
    return half if safe else values


@torch.inference_mode()
def changes(
    config: dict[str, object], state: dict[str, Tensor], kept: dict[str, Tensor], rows: ScenarioStore
) -> Change:
    """Between the predictions of all agents of ``rows`` with the weights ``state`` and with ``kept``."""
    full, other = (
        load_weights(Forecaster.build(config), weights_below(one, "forecaster."), "checkpoint")
        for one in (state, kept)
    )
    moved, shifted = [], []
    for some in in_batches(range(len(rows)), 16):
        batch = build_batch([rows[row] for row in some], full.scene)
        a, b = full(batch), other(batch)
        moved.append(norm(a.trajectory - b.trajectory).amax((1, 2)))
        shifted.append((a.logits.softmax(-1) - b.logits.softmax(-1)).abs().amax(1))
    metres = torch.cat(moved)
    return Change(float(metres.quantile(0.99)), float(metres.max()), float(torch.cat(shifted).max()))


def _score(checkpoint: str | Path, rows: ScenarioStore) -> Evaluation:
    return evaluate(load_predictor(checkpoint), rows, progress=False)


def _told(change: Change, before: Evaluation, after: Evaluation) -> str:
    fde = [f"{one.metrics['focal']['minFDE6']:.4f} m" for one in (before, after)]
    return (
        f"moves 99 % of the predictions by less than {change.usual:.3f} m (the farthest by "
        f"{change.largest:.3f} m, a probability by {change.probability:.4f}) and the focal minFDE6 from "
        f"{fde[0]} to {fde[1]}"
    )


def _write(name: str, content: dict[str, object]) -> int:
    """Write the weights; returns the number of bytes. Raises: DataError if they are too many."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    size = buffer.tell()
    over = f"{name}.pt would have {size / 1e6:.1f} MB, more than {MAX_BYTES / 1e6:g}"
    require(size <= MAX_BYTES, "name", over)
    (pretrained.FOLDER / f"{name}.pt").write_bytes(buffer.getvalue())
    return size


#: What the licence of a source's data asks of weights learned from them.
LICENCES = dict.fromkeys(
    ("argoverse1", "argoverse2"),
    "The weights were learned from Argoverse's data, which are (c) Argo AI, LLC, under "
    "[CC BY-NC-SA 4.0](https://creativecommons.org/licenses/by-nc-sa/4.0/): **non-commercial use only**, "
    "name the source, share alike. The code's MIT licence does not cover them.",
)


def model_card(
    name: str, model: Forecaster, results: Sequence[Evaluation], *, note: str = "", file: str = ""
) -> str:
    """Markdown. ``results`` end with the model's own; before it, what to compare it with.

    Args:
        name: of the weights.
        note: a sentence that opens the card.
        file: what to say of the file: its size and precision.
    """
    own = results[-1]
    source = own.training.get("store", own.store).get("source")
    licence = LICENCES.get(str(source), f"That of its training data ({source}).")
    parts = [f"# {name}", *([note] if note else []), _predicts(model), f"File: {file}."]
    parts += ["## Licence", licence, "## Training", _training(own), "## Results", *_results(results)]
    return "\n\n".join(parts) + "\n"


def _predicts(model: Forecaster) -> str:
    decoder, step_s = model.decoder, model.step_s
    count = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"For every road user seen within the last second, {decoder.modes} futures of "
        f"{decoder.horizon * step_s:.1f} s ({decoder.horizon} steps of {step_s:g} s), each with a "
        f"probability, from {model.history * step_s:.1f} s ({model.history} steps) of everyone's history "
        f"and the map of lanes. {count / 1e6:.2f} M parameters."
    )


def _training(own: Evaluation) -> str:
    checkpoint = f"Checkpoint {own.training.get('checkpoint', own.predictor)}"
    recorded = "" if "seed" in own.training else "; its seed, data and machine were not recorded"
    return f"{checkpoint}: {format_origin([own])}{recorded}."


def _results(results: Sequence[Evaluation]) -> list[str]:
    own = results[-1]
    data = f"{own.split} split of {own.store['source']} (store {own.store['config']})"
    agents = ", ".join(f"{values['count']} {group}" for group, values in own.metrics.items())
    low, high = bootstrap(own.per_scenario["minFDE6"])[1:]
    return [
        f"Scored on {own.scenarios} scenarios: the {data}. Agents: {agents}. "
        "Focal agents, metres, miss rates as shares:",
        format_table(results),
        f"95 % bootstrap interval of minFDE6 over scenarios: {low:.2f} to {high:.2f} m.",
    ]
