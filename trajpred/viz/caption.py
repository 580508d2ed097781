"""The lines above the scene: what it is, and how good the forecast is."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from trajpred.forecast import Forecast
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.viz.labels import percent
from trajpred.viz.shapes import Floats
from trajpred.viz.view import View
from trajpred.viz.what_if import WhatIf

#: From the scene up to the lowest line, and from line to line, points.
FIRST, PITCH = 5.0, 12.0


def draw_caption(
    axes: Axes,
    view: View,
    scenario: Scenario,
    forecast: Forecast | None,
    *,
    world: int | None = None,
    what_if: WhatIf | None = None,
    small: bool = False,
) -> None:
    """Up to three lines above the scene.

    Args:
        forecast: all its modes; world: which of its worlds is shown, None if all modes are.
        what_if: another forecast that is drawn over it.
        small: only what fits a small panel.
    """
    kind = OBJECT_TYPES[scenario.tracks.object_type[scenario.focal]].replace("_", " ")
    name = scenario.scenario_id[:8] if small else scenario.scenario_id
    title = " · ".join(part for part in (name, scenario.city, f"focal {kind}") if part)
    told, metrics = describe(scenario, forecast, world), judge(scenario, forecast, world, small)
    if forecast is not None and what_if is not None:
        told += f"   |   {what_if.told(scenario, forecast)}"
    lines: list[dict[str, Any]] = [
        {"text": title, "fontsize": 9, "fontweight": "bold", "color": view.theme.ink, "gid": "caption"},
        {"text": "" if small and metrics else told, "fontsize": 8, "color": view.theme.muted, "gid": "told"},
        {"text": metrics, "fontsize": 8, "color": view.theme.muted, "gid": "metrics"},
    ]
    for i, line in enumerate(reversed([line for line in lines if line["text"]])):
        axes.annotate(
            xy=(0, 1), xytext=(0, FIRST + PITCH * i), xycoords="axes fraction", textcoords="offset points",
            ha="left", va="bottom", **line,
        )  # fmt: skip


def describe(scenario: Scenario, forecast: Forecast | None, world: int | None = None) -> str:
    """How much is observed and predicted."""
    observed = f"{scenario.num_observed * scenario.step_s:.1f} s observed"
    if forecast is None:
        return observed
    K, F = forecast.trajectory.shape[1:3]
    shown = f"{K} mode{'s' if K > 1 else ''}"
    if world is not None:
        share = percent(float(forecast.world(world).probability[0, 0]))
        shown = f"world {world + 1} of {K} by probability ({share})"
    return f"{observed}, {F * scenario.step_s:.1f} s predicted, {shown}"


def judge(
    scenario: Scenario, forecast: Forecast | None, world: int | None = None, small: bool = False
) -> str:
    """Metrics of the focal track and, where others are scored too, of all of these; empty without any."""
    focal = np.array([scenario.focal])
    found = {} if forecast is None else errors(scenario, forecast, focal, world)
    if forecast is None or not found:
        return ""
    # Only now: a scene without a forecast is drawn without torch.
    from trajpred.metrics import MISS_THRESHOLD_M as FAR

    least = "min" if world is None else ""
    parts = [f"{least}{name} {metres(found[f'min{name}'][0])}" for name in ("ADE", "FDE")]
    if not small and world is None:
        parts.append(f"brier-minFDE {metres(found['brier-minFDE'][0])}")
    parts.append(f"miss (> {FAR:g} m)" if found["MR"][0] else f"hit (≤ {FAR:g} m)")
    told = " · ".join(parts)
    scored = "" if small else _judge_scored(scenario, forecast, world)
    return f"{told}   |   {scored}" if scored else told


def _judge_scored(scenario: Scenario, forecast: Forecast, world: int | None) -> str:
    """Of the scored tracks if there are several; of worlds the best one where the forecast has some."""
    from trajpred.evaluation.judged import judged

    rows = np.flatnonzero(judged(scenario)["scored"])
    found = errors(scenario, forecast, rows, world)
    agents = len(found.get("minFDE", ()))
    if agents < 2:
        return ""
    who, mean = f"{agents} scored", metres(found["minFDE"].mean())
    if world is not None:
        return f"{who}: FDE {mean}, {int(found['MR'].sum())} missed"
    if forecast.has_worlds and forecast.probability.shape[1] > 1:
        return f"{who}: avgMinFDE {metres(best_world(scenario, forecast, rows))}"
    return f"{who}: minFDE {mean}, {int(found['MR'].sum())} missed"


def metres(error: float) -> str:
    """An error with its unit, as exact as is of use."""
    return f"{error:.2f} m" if error < 100 else f"{error:.0f} m"


def errors(
    scenario: Scenario, forecast: Forecast, rows: NDArray[np.int64], world: int | None = None
) -> dict[str, Floats]:
    """minADE, minFDE, MR and brier-minFDE of those of the tracks ``rows`` that can be judged, ``[R]`` each.

    By av2's definitions over all modes, each minimum by itself, or of one ``world``. Where steps of the truth
    are missing, the average is over those that exist and the end is the last of them. Empty if no track of
    ``rows`` has both a forecast and a future.
    """
    import torch

    from trajpred.metrics import agent_metrics, names_in

    told = forecast if world is None else forecast.world(world)
    path, p, truth, valid = map(torch.from_numpy, _pairs(scenario, told, rows))
    if not len(path):
        return {}
    K, names = path.shape[1], names_in("breakdown")
    found = agent_metrics(path, p, truth, valid, ks=(K,), names=names)
    return {name: found[f"{name}{K}"].numpy() for name in names}


def best_world(scenario: Scenario, forecast: Forecast, rows: NDArray[np.int64]) -> float:
    """avgMinFDE in metres of the tracks ``rows``: the mean final error of the world where it is least."""
    import torch

    from trajpred.metrics import world_metrics

    path, p, truth, valid = map(torch.from_numpy, _pairs(scenario, forecast, rows))
    scene = torch.zeros(len(path), dtype=torch.int64)
    return float(world_metrics(path, p[:1], truth, valid, scene)["avgMinFDE"])


def _pairs(scenario: Scenario, forecast: Forecast, rows: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
    """Forecast and truth of those of ``rows`` that have both.

    Returns:
        trajectory ``[R, K, F, 2]``, probability ``[R, K]``, truth ``[R, F, 2]`` and valid ``[R, F]``.
    """
    tracks, F = scenario.tracks, forecast.trajectory.shape[2]
    future = slice(scenario.num_observed, scenario.num_observed + F)
    told = forecast.rows(tracks.track_id[rows])
    both = (told >= 0) & tracks.valid[rows, future].any(axis=1)
    rows, told = rows[both], told[both]
    valid = tracks.valid[rows, future]
    path = forecast.trajectory[told, :, : valid.shape[1]]
    return path, forecast.probability[told], tracks.position[rows, future], valid
