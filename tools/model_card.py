"""The model card of weights that ship with the package: licence, training and results, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from trajpred.evaluation import Evaluation
from trajpred.evaluation.origin import format_origin
from trajpred.evaluation.recipes import format_table
from trajpred.evaluation.report import joint_table, markdown
from trajpred.evaluation.table import EVERY, members, summary
from trajpred.metrics import METRICS, Column, headline
from trajpred.metrics.registry import MODES
from trajpred.model import Forecaster


class Licence(NamedTuple):
    """The licence of weights.

    Attributes:
        identifier: SPDX identifier.
        meaning: what it permits, for the card.
    """

    identifier: str
    meaning: str


#: The licence of weights trained on Argoverse.
ARGOVERSE = Licence(
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
    joint: Evaluation | None = None,
    *,
    note: str = "",
    file: str = "",
) -> str:
    """Return the model card as Markdown with a metadata header.

    Args:
        results: evaluations to compare with, the model's own last.
        joint: evaluation of the model's joint futures, if it has them.
        note: first sentence of the card.
        file: size and precision of the file.
    """
    result = results[-1]
    source = result.training.get("store", result.store).get("source")
    unlisted = Licence("other", f"That of its training data ({source}).")
    licence = LICENCES.get(str(source), unlisted)
    metadata = card_metadata(name, result, licence.identifier)
    checkpoint = result.training.get("checkpoint", result.predictor)
    origin = f"Checkpoint {checkpoint}: {format_origin([result])}"
    if "seed" not in result.training:
        origin += "; its seed, data and machine were not recorded"
    parts = [f"---\n{yaml.safe_dump(metadata, sort_keys=False)}---", f"# {name}"]
    if note:
        parts.append(note)
    parts += [_task(model), f"File: {file}."]
    parts += ["## Licence", licence.meaning]
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
