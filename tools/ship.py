"""Checkpoint -> weights that ship with the package, ``NAME.pt``, and their model card, ``NAME.md``.

A release script: ``python tools/ship.py --help`` explains it.
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
from trajpred.data.files import atomic_file
from trajpred.data.geometry import norm
from trajpred.data.splits import Half
from trajpred.errors import DataError, require
from trajpred.evaluation import Evaluation, evaluate
from trajpred.evaluation.origin import format_origin
from trajpred.evaluation.recipes import format_table
from trajpred.evaluation.report import joint_table, markdown
from trajpred.evaluation.table import EVERY, members, summary
from trajpred.features.scene_graph import build_batch
from trajpred.metrics import METRICS, Column, headline
from trajpred.metrics.registry import MODES
from trajpred.model import Forecaster, pretrained
from trajpred.model.checkpoint import CALIBRATION, CONFIG, TRAINING, read_checkpoint, training_facts
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
            checkpoint, name, rows, note=note, half=half, tolerance_m=tolerance_m, overwrite=overwrite
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

    Args: see :func:`main`; ``rows`` are the labelled scenarios.

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


# ------------------------------------------------------------------------------------------- model card


#: SPDX identifier and meaning of the licence of weights trained on Argoverse.
ARGOVERSE = (
    "cc-by-nc-sa-4.0",
    "The weights were learned from Argoverse data, (c) Argo AI, LLC, under "
    "[CC BY-NC-SA 4.0](https://creativecommons.org/licenses/by-nc-sa/4.0/): **non-commercial use only**, "
    "attribution, share alike. The MIT licence of the code does not cover them.",
)
#: Licence of weights by the source of their training data.
LICENCES = {"argoverse1": ARGOVERSE, "argoverse2": ARGOVERSE}


def model_card(
    name: str,
    model: Forecaster,
    results: Sequence[Evaluation],
    joint: Evaluation | None,
    *,
    note: str,
    file: str,
) -> str:
    """Return the model card as Markdown with a metadata header.

    Args:
        results: evaluations to compare with, the model's own last.
        joint: evaluation of the model's joint futures, if it has them.
        file: size and precision of the file.
    """
    result = results[-1]
    source = result.training.get("store", result.store).get("source")
    unlisted = ("other", f"That of its training data ({source}).")
    licence, meaning = LICENCES.get(str(source), unlisted)
    metadata = card_metadata(name, result, licence)
    checkpoint = result.training.get("checkpoint", result.predictor)
    origin = f"Checkpoint {checkpoint}: {format_origin([result])}"
    if "seed" not in result.training:
        origin += "; its seed, data and machine were not recorded"
    parts = [f"---\n{yaml.safe_dump(metadata, sort_keys=False)}---", f"# {name}"]
    if note:
        parts.append(note)
    parts += [_task(model), f"File: {file}."]
    parts += ["## Licence", meaning]
    parts += ["## Training", f"{origin}."]
    parts += ["## Results", *_results(results)]
    if joint is not None:
        parts.append(
            "Joint futures (`--joint`): mode k of all agents in a scene is a joint mode with one probability."
        )
        table = joint_table(joint)
        parts.append(markdown(table.head, table.rows))
    return "\n\n".join(parts) + "\n"


def card_metadata(name: str, result: Evaluation, licence: str) -> dict[str, Any]:
    """Return a card's header in the format of model hubs, with the focal agents' metrics in metres."""
    tested = result.store["source"]
    trained = result.training.get("store", result.store)["source"]
    focal = result.metrics["focal"]
    names = [column.title for column in headline()]
    scores = {
        "task": {"type": "trajectory-prediction", "name": "Trajectory prediction"},
        "dataset": {
            "type": tested,
            "name": f"{tested}, {result.scenarios:,} scenarios",
            "split": result.split,
        },
        "metrics": [{"type": metric, "value": round(focal[metric], 4)} for metric in names],
    }
    return {
        "license": licence,
        "library_name": "trajpred",
        "tags": ["trajectory-prediction", "motion-forecasting", "self-driving", "graph-transformer"],
        "datasets": [trained],
        "metrics": names,
        "model-index": [{"name": name, "results": [scores]}],
    }


def _task(model: Forecaster) -> str:
    step_s = model.step_s
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"For every road user seen within the last second, {model.decoder.modes} futures of "
        f"{model.horizon * step_s:.1f} s ({model.horizon} steps of {step_s:g} s), each with a "
        f"probability, from the last {model.history * step_s:.1f} s ({model.history} steps) of every "
        f"history and the lane map. {parameters / 1e6:.2f} M parameters."
    )


def _results(results: Sequence[Evaluation]) -> list[str]:
    result = results[-1]
    data = f"the {result.split} split of {result.store['source']} (store {result.store['config']})"
    if result.half:
        data = f"the {result.half} half of {data}"
    agents = [f"{values['count']} {group}" for group, values in result.metrics.items()]
    intervals: list[str] = []
    for group in ("focal", "moving"):
        agents_of = members(result.agents, group)
        [cell] = summary(agents_of, columns=[Column(METRICS["minFDE"], MODES)])[EVERY].values()
        intervals.append(f"{group} {cell.interval.low:.2f} to {cell.interval.high:.2f} m")
    return [
        f"Evaluated on {result.scenarios} scenarios: {data}. Agents: {', '.join(agents)}. "
        "Focal agents, metres, miss rates as fractions:",
        format_table(results),
        f"95 % intervals of minFDE6, by bootstrap over recordings: {', '.join(intervals)}.",
    ]


if __name__ == "__main__":
    cyclopts.run(main)
