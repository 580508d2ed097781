"""The caption of a picture: what it shows, and the metrics of its forecast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from trajpred.data.forecast import Forecast, with_truth
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.metrics import MISS_THRESHOLD_M, agent_metrics, headline, joint_metrics
from trajpred.metrics.registry import MODES
from trajpred.viz.overlays import WhatIf
from trajpred.viz.style import legible
from trajpred.viz.view import View, percent

if TYPE_CHECKING:
    from torch import Tensor

#: Distance from the scene to the lowest line of the caption (points).
CAPTION_GAP = 5.0
#: Line spacing of the caption (points).
LINE_PITCH = 12.0


def draw_caption(
    axes: Axes,
    view: View,
    scenario: Scenario,
    forecast: Forecast | None,
    *,
    joint_mode: int | None = None,
    what_if: WhatIf | None = None,
    small: bool = False,
) -> None:
    """Write up to three lines above the scene: its name, what is observed and predicted, and metrics.

    Args:
        forecast: with all modes, even if only one ``joint_mode`` is drawn.
        small: shorten the text to fit a small panel.
    """
    subtitle = describe(scenario, forecast, joint_mode)
    metrics = ""
    if forecast is not None:
        metrics = describe_metrics(scenario, forecast, joint_mode, small)
        if what_if is not None:
            subtitle += f"   |   {what_if.describe(scenario, forecast)}"
    if small and metrics:
        subtitle = ""
    line = 0  # from below
    for gid, text in (("metrics", metrics), ("subtitle", subtitle), ("title", _title(scenario, small))):
        if text:
            caption_line(axes, view, line, text, gid)
            line += 1


def _title(scenario: Scenario, small: bool) -> str:
    """Return the scenario's name, its city if it has one, and the type of the focal agent."""
    name = scenario.scenario_id[:8] if small else scenario.scenario_id
    kind = OBJECT_TYPES[scenario.tracks.object_type[scenario.focal]].replace("_", " ")
    if scenario.city:
        return f"{name} · {scenario.city} · focal {kind}"
    return f"{name} · focal {kind}"


def caption_line(axes: Axes, view: View, line: int, text: str, gid: str) -> None:
    """Write one line above the scene; ``line`` counts upwards from 0."""
    look: dict[str, Any] = {"fontsize": 8, "color": view.theme.muted}
    if gid == "title":
        look = {"fontsize": 9, "fontweight": "bold", "color": view.theme.ink}
    text, look["fontproperties"] = legible(text, look.get("fontweight", "normal"))
    axes.annotate(
        text,
        xy=(0, 1),
        xytext=(0, CAPTION_GAP + LINE_PITCH * line),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="left",
        va="bottom",
        gid=gid,
        parse_math=False,
        **look,
    )


def describe(scenario: Scenario, forecast: Forecast | None, joint_mode: int | None = None) -> str:
    """Describe the observed and predicted durations, and which modes are drawn."""
    observed = f"{scenario.num_observed * scenario.step_s:.1f} s observed"
    if forecast is None:
        return observed
    K, F = forecast.trajectory.shape[1:3]
    modes = "1 mode" if K == 1 else f"{K} modes"
    if joint_mode is not None:
        probability = percent(float(forecast.joint_mode(joint_mode).probability[0, 0]))
        modes = f"joint mode {joint_mode + 1} of {K} ({probability})"
    return f"{observed}, {F * scenario.step_s:.1f} s predicted, {modes}"


def describe_metrics(
    scenario: Scenario, forecast: Forecast, joint_mode: int | None = None, small: bool = False
) -> str:
    """Describe the metrics of the focal track and, if there are several, of the scored tracks.

    Empty if the focal track cannot be evaluated.
    """
    metrics = track_metrics(scenario, forecast, np.array([scenario.focal]), joint_mode)
    if not metrics:
        return ""
    prefix = "min" if joint_mode is None else ""
    parts = [
        f"{prefix}ADE {_metres(metrics['minADE'][0])}",
        f"{prefix}FDE {_metres(metrics['minFDE'][0])}",
    ]
    if not small and joint_mode is None:
        parts.append(f"brier-minFDE {_metres(metrics['brier-minFDE'][0])}")
    if metrics["MR"][0]:
        parts.append(f"miss (> {MISS_THRESHOLD_M:g} m)")
    else:
        parts.append(f"hit (≤ {MISS_THRESHOLD_M:g} m)")
    focal = " · ".join(parts)
    if small:
        return focal
    scored = _describe_scored(scenario, forecast, joint_mode)
    return f"{focal}   |   {scored}" if scored else focal


def _describe_scored(scenario: Scenario, forecast: Forecast, joint_mode: int | None) -> str:
    """Describe the scored tracks if there are several; for joint forecasts, the best joint mode."""
    import torch  # a picture without a forecast needs none

    from trajpred.evaluation.agents import groups_of

    rows = np.flatnonzero(groups_of(scenario)["scored"])
    metrics = track_metrics(scenario, forecast, rows, joint_mode)
    agents = len(metrics.get("minFDE", ()))
    if agents < 2:
        return ""
    mean = _metres(metrics["minFDE"].mean())
    missed = int(metrics["MR"].sum())
    if joint_mode is not None:
        return f"{agents} scored: FDE {mean}, {missed} missed"
    if forecast.is_joint and forecast.probability.shape[1] > 1:
        trajectory, probability, truth, valid = _predicted(scenario, forecast, rows)
        scene = torch.zeros(agents, dtype=torch.int64)
        joint = joint_metrics(trajectory, probability[:1], truth, valid, scene)
        return f"{agents} scored: avgMinFDE {_metres(float(joint['avgMinFDE']))}"
    return f"{agents} scored: minFDE {mean}, {missed} missed"


def _metres(error: float) -> str:
    return f"{error:.2f} m" if error < 100 else f"{error:.0f} m"


def track_metrics(
    scenario: Scenario, forecast: Forecast, rows: np.ndarray, joint_mode: int | None = None
) -> dict[str, np.ndarray]:
    """Compute minADE, minFDE, MR and brier-minFDE ``[R]`` of the tracks ``rows`` that can be evaluated.

    Follows av2: over the six most probable modes, or for one joint mode. Where true steps are missing, the
    average is over the recorded ones, and the final error is at the last of them. Empty if no track of
    ``rows`` has both a forecast and a future.
    """
    modes = forecast if joint_mode is None else forecast.joint_mode(joint_mode)
    trajectory, probability, truth, valid = _predicted(scenario, modes, rows)
    if not len(trajectory):
        return {}
    columns = headline(MODES)
    metrics = agent_metrics(trajectory, probability, truth, valid, columns=columns)
    return {column.metric.name: metrics[column.title].numpy() for column in columns}


def _predicted(scenario: Scenario, forecast: Forecast, rows: np.ndarray) -> list[Tensor]:
    """Return trajectories, probabilities, truth and validity of the ``rows`` that can be evaluated."""
    import torch

    _, *arrays = with_truth(forecast, scenario, rows)
    return [torch.from_numpy(array) for array in arrays]
