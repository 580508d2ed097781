"""The model card of weights that ship, written from what is known and not by hand."""

from __future__ import annotations

from collections.abc import Sequence

from trajpred.evaluation.intervals import bootstrap
from trajpred.evaluation.results import Evaluation
from trajpred.evaluation.table import format_origin, format_table
from trajpred.model import Forecaster

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
