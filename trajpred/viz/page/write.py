"""Scenarios and predictors -> one HTML file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from tqdm import tqdm

from trajpred.errors import require
from trajpred.forecast import Attention, Forecast
from trajpred.metrics import columns
from trajpred.predictors.checkpoint import attention_of, has_attention
from trajpred.predictors.perturbed import road_users
from trajpred.predictors.perturbed import without as leave_out
from trajpred.predictors.predictor import Predictor, in_batches, load_predictor
from trajpred.scenario import TYPICAL_SIZE, Scenario
from trajpred.viz.page.colors import themes
from trajpred.viz.page.figures import FACTS, Figures, focal_facts
from trajpred.viz.page.pack import Told, pack_scene

#: In the order in which they are read; together they are the page's one script.
SCRIPTS = (
    "data.js",
    "view.js",
    "draw_map.js",
    "draw_ground.js",
    "draw_agents.js",
    "draw_modes.js",
    "draw_attention.js",
    "draw_furniture.js",
    "hover.js",
    "list.js",
    "controls.js",
    "main.js",
)


class Entry(NamedTuple):
    """One scenario in the page: its line of the list, and the scene, packed."""

    line: dict[str, Any]
    scene: dict[str, Any]


#: Is told of a scenario that cannot be shown, and why.
OnError = Callable[[Scenario, Exception], None]


def write_page(
    path: str | Path,
    scenarios: Sequence[Scenario],
    predictors: Sequence[Predictor] = (),
    *,
    without: Sequence[str] = (),
    batch_size: int = 8,
    progress: bool = True,
    on_error: OnError | None = None,
) -> Path:
    """Write a page that shows ``scenarios`` with what each of ``predictors`` says about them.

    Args:
        path: the file.
        predictors: none, one, or two that are shown side by side.
        without: road users, as :func:`~trajpred.predictors.perturbed.road_users` takes them, without whom
            every scenario is predicted once more; the page switches between the two.
        batch_size: scenarios predicted at once.
        progress: show a bar.
        on_error: is told of each scenario that cannot be predicted or shown; the page is then written without
            these. By default the first such error is raised.

    Returns:
        ``path``; folders are made.

    Raises:
        DataError: no scenarios, one of them twice, none that can be shown, more than two predictors, or
            somebody to leave out who is not there, or is the focal agent.
    """
    names = [scenario.scenario_id for scenario in scenarios]
    require(bool(names), "scenario", "there is none to show")
    require(len(set(names)) == len(names), "scenario", "the same one is given twice")
    require(len(predictors) <= 2, "against", "two models at most are shown side by side")
    require(bool(predictors) or not without, "without", "needs a model that predicts")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tqdm(total=len(names), unit=" scenarios", desc=target.name, disable=not progress) as bar:
        entries = []
        for entry in _entries(scenarios, predictors, without, batch_size, on_error):
            entries.append(entry)
            bar.update()
    require(bool(entries), "scenario", "none can be shown")
    unfinished = target.with_name(f".unfinished-{uuid4().hex}")
    try:
        unfinished.write_text(_html(entries, [predictor.name for predictor in predictors]), encoding="utf-8")
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def save_page(
    out: Path,
    scenarios: Sequence[Scenario],
    models: Sequence[str],
    without: Sequence[str] = (),
    on_error: OnError | None = None,
) -> Path:
    """:func:`write_page` for what ``load_predictor`` takes; a folder gets ``page.html``."""
    path = out if out.suffix == ".html" else out / "page.html"
    predictors = [load_predictor(model) for model in models]
    return write_page(path, scenarios, predictors, without=without, on_error=on_error)


def _entries(
    scenarios: Sequence[Scenario],
    predictors: Sequence[Predictor],
    without: Sequence[str],
    batch_size: int,
    on_error: OnError | None,
) -> Iterator[Entry]:
    for rows in in_batches(range(len(scenarios)), batch_size):
        batch = [scenarios[row] for row in rows]
        try:
            yield from _batch(batch, predictors, without)
        except OSError:  # a full disk is not a scenario's fault
            raise
        except Exception as error:
            if on_error is None:
                raise
            if len(batch) == 1:
                on_error(batch[0], error)
            else:  # whose fault it is shows when each is by itself
                yield from _entries(batch, predictors, without, 1, on_error)


def _batch(
    scenarios: Sequence[Scenario], predictors: Sequence[Predictor], without: Sequence[str]
) -> list[Entry]:
    """What the page holds of scenarios that are predicted at once."""
    removed = [road_users(scenario, without) for scenario in scenarios]
    told = [_told(predictor, scenarios, removed) for predictor in predictors]
    return [entry(scenario, [each[i] for each in told], removed[i]) for i, scenario in enumerate(scenarios)]


def _told(
    predictor: Predictor, scenarios: Sequence[Scenario], removed: Sequence[Sequence[str]]
) -> list[Told]:
    """What a predictor says of each scenario, also without the road users ``removed`` from it."""
    attention: Sequence[Attention | None] = [None] * len(scenarios)
    if has_attention(predictor):
        attention = attention_of(predictor, scenarios)
    less: Sequence[Forecast | None] = [None] * len(scenarios)
    if any(removed):
        less = predictor([leave_out(*each) for each in zip(scenarios, removed, strict=True)])
    each = zip(scenarios, predictor(scenarios), attention, less, strict=True)
    return [Told(seen, Figures.of(one, seen), heard, other) for one, seen, heard, other in each]


def entry(scenario: Scenario, told: Sequence[Told], removed: Sequence[str] = ()) -> Entry:
    """One scenario and what each model says of it."""
    line = {
        "id": scenario.scenario_id,
        "agents": len(scenario.tracks),
        **focal_facts(scenario),
        "metrics": [one.figures.metrics.get(scenario.focal_id) for one in told],
    }
    return Entry(line, pack_scene(scenario, told, removed))


def _html(entries: Sequence[Entry], models: Sequence[str]) -> str:
    """The page: the template with everything inlined."""
    index = {
        "scenes": [one.line for one in entries],
        "models": list(models),
        "metrics": list(columns("breakdown")),
        "facts": list(FACTS),
        "heads": [model["heads"] for model in entries[0].scene["models"]],
        "removes": any(one.scene["removed"] for one in entries),
        "size_m": TYPICAL_SIZE,
        "themes": themes(),
    }
    blocks = [_block("index", index)]
    blocks += [_block(f"scene-{i}", one.scene) for i, one in enumerate(entries)]
    # The template is cut, not filled in place: data must never be searched for marks of the template.
    head, rest = _static("page.html").split("/*CSS*/")
    body, rest = rest.split("<!--DATA-->")
    before, after = rest.split("/*JS*/")
    script = "\n".join(map(_static, SCRIPTS))
    return "".join((head, _static("page.css"), body, "\n".join(blocks), before, script, after))


def _block(name: str, content: Any) -> str:
    """JSON in an element that the browser keeps as text until it is asked for."""
    return f'<script type="application/json" id="{name}">{to_json(content)}</script>'


def to_json(content: Any) -> str:
    """JSON that cannot end the element it stands in: ``<`` only occurs in texts, where an escape serves."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _static(name: str) -> str:
    return (files("trajpred.viz.page") / "static" / name).read_text(encoding="utf-8")
