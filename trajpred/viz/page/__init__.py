"""One self-contained web page that shows scenarios and their forecasts, opened from disk."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from trajpred.data.files import atomic_file, progress_bar
from trajpred.data.forecast import Attention, Forecast
from trajpred.data.scenario import Scenario
from trajpred.errors import require
from trajpred.metrics import headline
from trajpred.metrics.registry import MODES
from trajpred.predictors.checkpoint import attention_of, has_attention
from trajpred.predictors.derived import StreamedPredictor
from trajpred.predictors.perturbations import road_users
from trajpred.predictors.perturbations import without as remove_tracks
from trajpred.predictors.predictor import Predictor, in_batches
from trajpred.viz.labels import PLACEMENT
from trajpred.viz.page.data import FACTS, ModelResult, evaluate_tracks, list_entry, pack_scene
from trajpred.viz.style import THEMES, Role, Theme

#: Scripts in loading order; together they are the page's only script.
SCRIPTS: tuple[str, ...] = (
    "data.js",
    "view.js",
    "labels.js",
    "draw_map.js",
    "draw_agents.js",
    "draw_modes.js",
    "draw_attention.js",
    "stream.js",
    "panel.js",
    "list.js",
    "share.js",
    "controls.js",
    "main.js",
)
#: Number of colours for probabilities from 0 to 1 on the scale of ``style.PROBABILITY_NORM``.
RAMP_COLORS = 256
#: Number of scenarios predicted at once.
BATCH = 8
#: The theme colours that the page's script uses, by name.
COLORS = (
    *("background", "ink", "muted", "halo", "ground", "ground_edge", "centerline", "centerline_bare"),
    *("crossing", "crossing_bar", "nose", "attention"),
)


def write_page(
    path: str | Path,
    scenarios: Sequence[Scenario],
    predictors: Sequence[Predictor] = (),
    *,
    without: Sequence[str] = (),
    on_error: Callable[[Scenario, Exception], None] | None = None,
) -> Path:
    """Write a page that shows ``scenarios`` with the forecasts of ``predictors``.

    Args:
        path: the file; folders are created.
        predictors: none, one, or two to compare side by side; a ``StreamedPredictor`` also shows its earlier
            predictions.
        without: road users to remove for a second forecast of every scenario, as for
            :func:`~trajpred.predictors.perturbations.road_users`; the page switches between both.
        on_error: called for each scenario that cannot be predicted or packed, which the page then omits; by
            default the first such error is raised.

    Returns: ``path``.

    Raises: DataError if there are no scenarios, duplicates, or none that can be packed; if there are more
        than two predictors; or if a road user to remove is missing or is the focal agent.

    Example:
        >>> write_page("page.html", scenarios, [load_predictor("argoverse-nano")])  # doctest: +SKIP
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    index, scenes = pack_page(scenarios, predictors, target.name, without, on_error)
    with atomic_file(target) as unfinished:
        unfinished.write_text(page_html(index, scenes), encoding="utf-8")
    return target


def pack_page(
    scenarios: Sequence[Scenario],
    predictors: Sequence[Predictor],
    name: str,
    without: Sequence[str] = (),
    on_error: Callable[[Scenario, Exception], None] | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the index and the scenes of a page of :func:`write_page`, with progress under ``name``."""
    names = [scenario.scenario_id for scenario in scenarios]
    require(bool(names), "scenario", "at least one is needed")
    require(len(set(names)) == len(names), "scenario", "contains duplicates")
    require(len(predictors) <= 2, "against", "at most two models can be compared")
    require(bool(predictors) or not without, "without", "needs a model that predicts")
    entries: list[dict[str, Any]] = []
    scenes: list[dict[str, Any]] = []
    heads: list[list[int] | None] = []
    has_streams = False
    with progress_bar(total=len(names), unit=" scenarios", desc=name) as bar:
        for entry, scene in _pack_all(scenarios, predictors, without, BATCH, on_error):
            entries.append(entry)
            scenes.append(scene)
            has_streams |= any(model["stream"] for model in scene["models"])
            bar.update()
    require(bool(entries), "scenario", "none can be displayed")
    for model in scenes[0]["models"]:
        attention = model["attention"]
        heads.append(attention and [attention["layers"], attention["head_count"]])
    index = {
        "scenes": entries,
        "models": [predictor.name for predictor in predictors],
        "metrics": [column.title for column in headline(MODES)],
        "facts": list(FACTS),
        "heads": heads,
        "streams": has_streams,
        "placement": PLACEMENT,
        "removes": any(scene["removed"] for scene in scenes),
        "themes": {name: page_colors(theme) for name, theme in THEMES.items()},
    }
    return index, scenes


def _pack_all(
    scenarios: Sequence[Scenario],
    predictors: Sequence[Predictor],
    without: Sequence[str],
    batch_size: int,
    on_error: Callable[[Scenario, Exception], None] | None,
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each scenario's list entry and scene; failing batches are repeated one by one."""
    for rows in in_batches(range(len(scenarios)), batch_size):
        batch = [scenarios[row] for row in rows]
        try:
            yield from _pack_batch(batch, predictors, without)
        except OSError:  # a full disk is not the scenario's fault
            raise
        except Exception as error:
            if on_error is None:
                raise
            if len(batch) == 1:
                on_error(batch[0], error)
            else:
                yield from _pack_all(batch, predictors, without, 1, on_error)


def _pack_batch(
    scenarios: Sequence[Scenario], predictors: Sequence[Predictor], without: Sequence[str]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the list entry and the packed scene of each scenario."""
    removed = [road_users(scenario, without) for scenario in scenarios]
    reduced: list[Scenario] = []
    if without:
        for scenario, names in zip(scenarios, removed, strict=True):
            reduced.append(remove_tracks(scenario, names))
    results = [model_results(predictor, scenarios, reduced) for predictor in predictors]
    packed: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for row, scenario in enumerate(scenarios):
        by_model = [of_model[row] for of_model in results]
        scene = pack_scene(scenario, by_model, removed[row])
        packed.append((list_entry(scenario, by_model), scene))
    return packed


def model_results(
    predictor: Predictor, scenarios: Sequence[Scenario], reduced: Sequence[Scenario] = ()
) -> list[ModelResult]:
    """Return the results of one model for each scenario.

    Args:
        reduced: the scenarios without the removed road users; empty if none are removed.
    """
    single = predictor
    if isinstance(predictor, StreamedPredictor):
        single = predictor.predictor
    attention: Sequence[Attention | None] = [None] * len(scenarios)
    if has_attention(single):
        attention = attention_of(single, scenarios)
    without: Sequence[Forecast | None] = [None] * len(scenarios)
    if reduced:
        without = single(reduced)
    results: list[ModelResult] = []
    for row, forecast in enumerate(predictor(scenarios)):
        metrics, end_error = evaluate_tracks(scenarios[row], forecast)
        result = ModelResult(
            forecast=forecast,
            metrics=metrics,
            end_error=end_error,
            attention=attention[row],
            without=without[row],
        )
        results.append(result)
    return results


def page_html(index: dict[str, Any], scenes: Sequence[dict[str, Any]], extension: str = "") -> str:
    """Return the template with style, data and script inlined; scenes are gzipped JSON in base64.

    Args:
        extension: a script to run after those of the page.
    """
    blocks = [f'<script type="application/json" id="index">{to_json(index)}</script>']
    for number, scene in enumerate(scenes):
        compressed = gzip.compress(to_json(scene).encode(), 9, mtime=0)  # equal pages are equal files
        packed = base64.b64encode(compressed).decode()
        blocks.append(f'<script type="application/json" id="scene-{number}">"{packed}"</script>')
    # Split at the markers before anything is inserted: the data may contain a marker.
    head, rest = _static("page.html").split("/*CSS*/")
    body, rest = rest.split("<!--DATA-->")
    before, after = rest.split("/*JS*/")
    style = _static("page.css")
    data = "\n".join(blocks)
    script = "\n".join([*(_static(name) for name in SCRIPTS), extension])
    return "".join((head, style, body, data, before, script, after))


def to_json(content: Any) -> str:
    """Return JSON that cannot end the surrounding HTML element: ``<`` is escaped."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _static(name: str) -> str:
    return (files("trajpred.viz.page") / "static" / name).read_text(encoding="utf-8")


def page_colors(theme: Theme) -> dict[str, Any]:
    """Return the colours for the page's script, equal to those of pictures."""
    ramp = theme.probability(np.linspace(0, 1, RAMP_COLORS))
    return {
        **{name: getattr(theme, name) for name in COLORS},
        "tint": list(theme.tints),
        "paint": [theme.unpainted, *theme.paint],
        "role": dict(zip(Role.__members__, theme.role, strict=True)),
        "role_edge": dict(zip(Role.__members__, theme.role_edge, strict=True)),
        "ramp": [to_hex(color) for color in ramp],
    }
