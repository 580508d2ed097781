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

from trajpred.errors import require
from trajpred.files import atomic_file
from trajpred.metrics import columns
from trajpred.predictors.checkpoint import attention_of, has_attention
from trajpred.predictors.derived import StreamedPredictor
from trajpred.predictors.forecast_store import in_batches
from trajpred.predictors.perturbations import road_users
from trajpred.predictors.perturbations import without as remove_tracks
from trajpred.predictors.predictor import Predictor
from trajpred.progress import progress_bar
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.viz.agent_layer import DRAWN_SIZES
from trajpred.viz.page.scene_data import FACTS, ModelResult, evaluate_tracks, list_entry, pack_scene
from trajpred.viz.style import THEMES, Role, Theme

#: In loading order; together they are the page's only script.
SCRIPTS: tuple[str, ...] = ("data.js", "view.js", "draw_map.js", "draw_agents.js", "draw_modes.js")
SCRIPTS += ("draw_attention.js", "stream.js", "panel.js", "list.js", "share.js", "controls.js", "main.js")
#: Colours of probabilities from 0 to 1 on the scale of ``style.PROBABILITY_NORM``.
RAMP_COLORS = 32


def write_page(
    path: str | Path,
    scenarios: Sequence[Scenario],
    predictors: Sequence[Predictor] = (),
    *,
    without: Sequence[str] = (),
    batch_size: int = 8,
    progress: bool = True,
    on_error: Callable[[Scenario, Exception], None] | None = None,
) -> Path:
    """Write a page that shows ``scenarios`` with the forecasts of ``predictors``.

    Args:
        path: the file; folders are created.
        predictors: none, one, or two to compare side by side; a ``StreamedPredictor`` also shows what it
            predicted earlier.
        without: road users, as :func:`~trajpred.predictors.perturbations.road_users` takes them, to remove
            for a second forecast of every scenario; the page switches between both.
        batch_size: number of scenarios predicted at once.
        on_error: called for each scenario that cannot be predicted or packed, which the page then omits; by
            default the first such error is raised.

    Returns: ``path``.

    Raises: DataError if there are no scenarios, duplicates, or none that can be packed; if there are more
        than two predictors; or if a road user to remove is missing or the focal agent.

    Example:
        >>> write_page("page.html", scenarios, [load_predictor("argoverse-nano")])  # doctest: +SKIP
    """
    names = [scenario.scenario_id for scenario in scenarios]
    require(bool(names), "scenario", "at least one is needed")
    require(len(set(names)) == len(names), "scenario", "contains duplicates")
    require(len(predictors) <= 2, "against", "at most two models can be compared")
    require(bool(predictors) or not without, "without", "needs a model that predicts")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    entries, scenes = [], []
    with progress_bar(total=len(names), unit=" scenarios", desc=target.name, shown=progress) as bar:
        for entry, scene in _pack_all(scenarios, predictors, without, batch_size, on_error):
            entries.append(entry)
            scenes.append(scene)
            bar.update()
    require(bool(entries), "scenario", "none can be displayed")
    attention = [model["attention"] for model in scenes[0]["models"]]
    index = {
        "scenes": entries,
        "models": [predictor.name for predictor in predictors],
        "metrics": list(columns("breakdown")),
        "facts": list(FACTS),
        "heads": [one and [one["layers"], one["head_count"]] for one in attention],  # layers, heads of each
        "streams": any(model["stream"] for scene in scenes for model in scene["models"]),
        "removes": any(scene["removed"] for scene in scenes),
        "size_m": dict(zip(OBJECT_TYPES, DRAWN_SIZES.tolist(), strict=True)),
        "themes": {name: page_colors(theme) for name, theme in THEMES.items()},
    }
    with atomic_file(target) as unfinished:
        unfinished.write_text(_html(index, scenes), encoding="utf-8")
    return target


def _pack_all(
    scenarios: Sequence[Scenario],
    predictors: Sequence[Predictor],
    without: Sequence[str],
    batch_size: int,
    on_error: Callable[[Scenario, Exception], None] | None,
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the list entry and the scene of each scenario; failing batches are repeated one by one."""
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
    removed = [road_users(scenario, without) for scenario in scenarios]
    reduced = [remove_tracks(*each) for each in zip(scenarios, removed, strict=True)] if without else []
    results: list[list[ModelResult]] = [[] for _ in scenarios]
    for predictor in predictors:
        none = [None] * len(scenarios)
        alone = predictor.predictor if isinstance(predictor, StreamedPredictor) else predictor
        attention = attention_of(alone, scenarios) if has_attention(alone) else none
        second = alone(reduced) if reduced else none
        each = zip(results, scenarios, predictor(scenarios), attention, second, strict=True)
        for found, scene, forecast, weights, less in each:
            found.append(ModelResult(forecast, *evaluate_tracks(scene, forecast), weights, less))
    packed = zip(scenarios, results, removed, strict=True)
    return [(list_entry(scene, found), pack_scene(scene, found, gone)) for scene, found, gone in packed]


def _html(index: dict[str, Any], scenes: Sequence[dict[str, Any]]) -> str:
    """Return the template with style, data and script inlined."""
    blocks = [f'<script type="application/json" id="index">{to_json(index)}</script>']
    for i, scene in enumerate(scenes):
        packed = base64.b64encode(gzip.compress(to_json(scene).encode(), 9, mtime=0)).decode()
        blocks.append(f'<script type="application/json" id="scene-{i}">"{packed}"</script>')
    # The template is split, not searched again after insertion: data may contain its markers.
    head, rest = _static("page.html").split("/*CSS*/")
    body, rest = rest.split("<!--DATA-->")
    before, after = rest.split("/*JS*/")
    script = "\n".join(map(_static, SCRIPTS))
    return "".join((head, _static("page.css"), body, "\n".join(blocks), before, script, after))


def to_json(content: Any) -> str:
    """Return JSON that cannot end the HTML element it stands in: ``<`` is escaped."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _static(name: str) -> str:
    return (files("trajpred.viz.page") / "static" / name).read_text(encoding="utf-8")


def page_colors(theme: Theme) -> dict[str, Any]:
    """Return the colours that the page's script uses, those of the pictures."""
    same = ("background", "ink", "muted", "halo", "ground", "ground_edge", "centerline", "centerline_bare")
    return {
        **{name: getattr(theme, name) for name in (*same, "crossing", "crossing_bar", "nose", "attention")},
        "tint": list(theme.tints),
        "paint": [theme.unpainted, *theme.paint],
        "role": dict(zip(Role.__members__, theme.role, strict=True)),
        "role_edge": dict(zip(Role.__members__, theme.role_edge, strict=True)),
        "ramp": [to_hex(color) for color in theme.probability(np.linspace(0, 1, RAMP_COLORS))],
    }
