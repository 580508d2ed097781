"""Checkpoint -> weights that ship with the package, ``NAME.pt``, and their model card, ``NAME.md``.

A script of releases: ``python tools/ship.py --help`` explains it.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cyclopts
import torch
import yaml
from torch import Tensor

from trajpred.cli.scenarios import open_split
from trajpred.errors import DataError, require
from trajpred.evaluation import Evaluation, evaluate
from trajpred.evaluation.comparison import format_origin, format_table, markdown
from trajpred.evaluation.report import worlds
from trajpred.features.scene_graph import build_batch
from trajpred.files import atomic_file
from trajpred.geometry import norm
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
from trajpred.predictors.forecast_store import in_batches
from trajpred.splits import Half
from trajpred.store import ScenarioStore

MAX_BYTES = 8_000_000
#: Licence of weights by the source of their training data: its SPDX identifier, and what it means.
LICENCES = dict.fromkeys(
    ("argoverse1", "argoverse2"),
    (
        "cc-by-nc-sa-4.0",
        "The weights were learned from Argoverse data, (c) Argo AI, LLC, under "
        "[CC BY-NC-SA 4.0](https://creativecommons.org/licenses/by-nc-sa/4.0/): **non-commercial use only**, "
        "attribution, share alike. The MIT licence of the code does not cover them.",
    ),
)
#: Metrics of the focal agents in a card's metadata.
METRICS = ("minADE1", "minFDE1", "MR1", "minADE6", "minFDE6", "MR6", "brier-minFDE6")


class Change(NamedTuple):
    """Difference between two sets of predictions.

    Attributes:
        usual, largest: 99 % quantile and maximum over agents of the largest distance between corresponding
            points of their futures, metres. Few agents differ by more than the usual: a small change of an
            endpoint can change its neighbours in the refinement.
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
    """Turn a checkpoint into weights that ship with the package, with their model card.

    Example: python tools/ship.py --checkpoint best.ckpt --name my-model --store runs/argoverse1-store

    Args:
        checkpoint: Path of a checkpoint or run.
        name: Name under which users load it.
        store: Scenarios for the table of the card and for checking half precision: folder written by prepare;
            by default the sample's.
        split: Split of the store.
        part: Use one half of the split only: the reporting one, where the other half decided about the model.
        note: Sentence that opens the card.
        half: Store the weights in half precision.
        tolerance_m: Metres by which half precision may move any point of 99 % of the predictions.
        overwrite: Replace weights of that name.
    """
    try:
        rows = open_split(store, split, part)
        print(
            ship(checkpoint, name, rows, note=note, half=half, tolerance_m=tolerance_m, overwrite=overwrite)
        )
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
        checkpoint: of the model.
        name: of the weights.
        rows: labelled scenarios, to test half precision on and to evaluate for the card.
        note: first sentence of the card.
        half: store half precision.
        tolerance_m: limit on :attr:`Change.usual` through half precision.
        overwrite: replace weights of that name.

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
    stored = {key: in_half(value) for key, value in state.items()} if half else state
    change = changes(content[CONFIG], state, stored, rows) if half else Change(0.0, 0.0, 0.0)
    if not change.usual <= tolerance_m:
        excess = f"half precision moves 1 % of the predictions by more than {change.usual:.3f} m"
        advice = f"(limit {tolerance_m:g}); ship full precision (--no-half)"
        raise DataError(f"{excess} {advice}", file=checkpoint)
    baseline, original = (_evaluate(model, rows) for model in ("constant_velocity", checkpoint))
    training = {**training_facts(content), "recipe": name, "checkpoint": display_name(checkpoint)}
    if training.get("weights"):  # without the folders of the machine that trained
        training["weights"] = display_name(training["weights"])
    if training.get("stores"):
        training["stores"] = {Path(path).name: share for path, share in training["stores"].items()}
    calibration = {CALIBRATION: content[CALIBRATION]} if CALIBRATION in content else {}
    values = {CONFIG: content[CONFIG], "state_dict": stored, TRAINING: training, **calibration}
    size = _write(pretrained.FOLDER / f"{name}.pt", values)
    result = _evaluate(name, rows)
    effect = f"half precision, which {_effect(change, original, result)}" if half else "full precision"
    file = f"{size / 1e6:.1f} MB in {effect}"
    model = Forecaster.from_pretrained(name)
    joint = _evaluate(name, rows, joint=True) if model.decoder.joint else None
    card = model_card(name, model, [baseline, result], joint, note=note, file=file)
    (pretrained.FOLDER / f"{name}.md").write_text(card, encoding="utf-8")
    return f"{pretrained.FOLDER / name}.pt: {file}"


def in_half(values: Tensor) -> Tensor:
    """Return ``values`` as float16, or unchanged where they would overflow or vanish."""
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
    full, other = (Forecaster.with_weights(config, weights, "checkpoint") for weights in (state, stored))
    distance, probability = [], []
    for indices in in_batches(range(len(rows)), 16):
        batch = build_batch([rows[index] for index in indices], full.scene)
        a, b = full(batch), other(batch)
        distance.append(norm(a.trajectory - b.trajectory).amax((1, 2)))
        probability.append((a.logits.softmax(-1) - b.logits.softmax(-1)).abs().amax(1))
    metres = torch.cat(distance)
    return Change(float(metres.quantile(0.99)), float(metres.max()), float(torch.cat(probability).max()))


def model_card(
    name: str,
    model: Forecaster,
    results: Sequence[Evaluation],
    joint: Evaluation | None = None,
    *,
    note: str = "",
    file: str = "",
) -> str:
    """Return the model card as Markdown with a header of metadata.

    Args:
        results: evaluations to compare with, the model's own last.
        joint: evaluation of the model's joint futures, if it has them.
        note: first sentence of the card.
        file: size and precision of the file.
    """
    own = results[-1]
    source = own.training.get("store", own.store).get("source")
    licence, meaning = LICENCES.get(str(source), ("other", f"That of its training data ({source})."))
    missing = "" if "seed" in own.training else "; its seed, data and machine were not recorded"
    origin = f"Checkpoint {own.training.get('checkpoint', own.predictor)}: {format_origin([own])}{missing}."
    header = f"---\n{yaml.safe_dump(card_metadata(name, own, licence), sort_keys=False)}---"
    parts = [header, f"# {name}", *([note] if note else []), _task(model), f"File: {file}."]
    parts += ["## Licence", meaning, "## Training", origin, "## Results", *_results(results)]
    if joint is not None:
        head = "Joint futures (`--joint`): mode k of all agents of a scene is one world with one probability."
        parts += [head, *(markdown(table.head, table.rows) for table in worlds(joint))]
    return "\n\n".join(parts) + "\n"


def card_metadata(name: str, own: Evaluation, licence: str) -> dict[str, Any]:
    """Return a card's header in the form that model hubs read, with the focal agents' metrics in metres."""
    trained, tested = (facts["source"] for facts in (own.training.get("store", own.store), own.store))
    metrics = [
        {"type": metric, "value": round(own.metrics["focal"][metric], 4)}
        for metric in METRICS
        if metric in own.metrics["focal"]
    ]
    dataset = {"type": tested, "name": f"{tested}, {own.scenarios:,} scenarios", "split": own.split}
    task = {"type": "trajectory-prediction", "name": "Trajectory prediction"}
    return {
        "license": licence,
        "library_name": "trajpred",
        "tags": ["trajectory-prediction", "motion-forecasting", "self-driving", "graph-transformer"],
        "datasets": [trained],
        "metrics": [metric["type"] for metric in metrics],
        "model-index": [{"name": name, "results": [{"task": task, "dataset": dataset, "metrics": metrics}]}],
    }


def _task(model: Forecaster) -> str:
    step_s, parameters = model.step_s, sum(parameter.numel() for parameter in model.parameters())
    return (
        f"For every road user seen within the last second, {model.decoder.modes} futures of "
        f"{model.horizon * step_s:.1f} s ({model.horizon} steps of {step_s:g} s), each with a "
        f"probability, from {model.history * step_s:.1f} s ({model.history} steps) of all histories "
        f"and the lane map. {parameters / 1e6:.2f} M parameters."
    )


def _results(results: Sequence[Evaluation]) -> list[str]:
    own = results[-1]
    half = f"the {own.half} half of the " if own.half else "the "
    data = f"{half}{own.split} split of {own.store['source']} (store {own.store['config']})"
    agents = ", ".join(f"{values['count']} {group}" for group, values in own.metrics.items())
    bounds = ("{} {:.2f} to {:.2f} m".format(g, *own.intervals[g]["minFDE6"]) for g in ("focal", "moving"))
    return [
        f"Evaluated on {own.scenarios} scenarios: {data}. Agents: {agents}. "
        "Focal agents, metres, miss rates as shares:",
        format_table(results),
        f"95 % intervals of minFDE6, by bootstrap over scenarios: {', '.join(bounds)}.",
    ]


def _evaluate(checkpoint: str | Path, rows: ScenarioStore, joint: bool = False) -> Evaluation:
    return evaluate(load_predictor(checkpoint, joint), rows, progress=True)


def _effect(change: Change, original: Evaluation, result: Evaluation) -> str:
    before, after = (one.metrics["focal"]["minFDE6"] for one in (original, result))
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
