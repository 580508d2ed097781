"""Films of scenarios and of replays, as GIF or MP4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patheffects import withStroke

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.scenario import Scenario
from trajpred.viz.agent_layer import draw_agents, draw_histories, visible_agents
from trajpred.viz.film_file import write_film
from trajpred.viz.forecast_layer import draw_modes
from trajpred.viz.scene import draw_scene, future_rows, open_scene
from trajpred.viz.style import Layer
from trajpred.viz.truth_layer import draw_truth

#: Seconds of history that follow each agent.
HISTORY_S = 2.0
#: Seconds for which time stops at the last observed step while the modes grow.
GROW_S = 1.0
#: Seconds for which the grown modes then stay.
HOLD_S = 1.0
#: Seconds for which the last frame stays.
END_S = 1.5
#: The ``gid`` of the lines of a caption.
CAPTION = ("title", "subtitle", "metrics")
#: Pixels per inch: 720 by 824 pixels.
DPI = 100


class Frame(NamedTuple):
    """What one frame of a film shows."""

    step: int
    horizon: int  # number of predicted steps drawn, 0 before the last observed step


def timeline(scenario: Scenario, horizon: int, fps: float) -> list[Frame]:
    """Return the frames of a film at true speed, one every 1/``fps`` seconds.

    Args:
        horizon: F, number of predicted steps; 0 without a forecast, when time does not stop.
    """
    now = scenario.num_observed - 1
    steps_per_frame = 1 / (fps * scenario.step_s)
    # Where motion is derived from positions, nothing has a direction at the first step.
    has_direction = scenario.tracks.velocity[:, 0].any()
    first = 0 if has_direction else min(1, now)
    frames = [Frame(step, 0) for step in _steps(first, now, steps_per_frame)]
    if horizon:
        growing = np.linspace(0, horizon, round(GROW_S * fps) + 1)[1:]
        frames += [Frame(now, max(1, round(steps))) for steps in growing.tolist()]
        frames += [Frame(now, horizon)] * round(HOLD_S * fps)
    future = _steps(now, scenario.num_steps - 1, steps_per_frame)
    frames += [Frame(step, horizon) for step in future[1:]]
    frames += frames[-1:] * round(END_S * fps)
    return frames


def _steps(first: int, last: int, steps_per_frame: float) -> list[int]:
    """Return the step of each frame from ``first`` to ``last``."""
    # Steps vary by fractions of a percent: without the tolerance the last one could come twice.
    times = np.append(np.arange(first, last - 0.01, steps_per_frame), last)
    steps: list[int] = np.rint(times).astype(int).tolist()
    return steps


class Film(Sequence[np.ndarray]):
    """The pictures of a film, ``[H, W, 3]`` uint8 each, drawn on demand over a background drawn once.

    Args:
        scenario, forecast, radius_m, world, theme: as for :func:`~trajpred.viz.draw_scene`.
        fps: frames per second; the scenario plays at true speed at any rate.

    Raises: DataError like ``draw_scene``, and if ``fps`` is not positive.
    """

    def __init__(
        self,
        scenario: Scenario,
        forecast: Forecast | None = None,
        *,
        radius_m: float | None = None,
        world: int | None = None,
        theme: str = "light",
        fps: float = 10.0,
    ) -> None:
        require(fps > 0, "fps", f"must be above 0, is {fps}")
        self.scenario = scenario
        self.forecast = forecast
        self.horizon = 0
        self.rows = future_rows(scenario)
        self.predicted = self.rows
        forecasts: list[Forecast] = []
        if forecast is not None:
            if world is not None:
                self.forecast = forecast.world(world)
            forecasts = [self.forecast or forecast]
            self.horizon = forecast.trajectory.shape[2]
        if world is not None:
            # As in the picture, a world consists of all predicted agents.
            self.predicted = np.arange(len(scenario.tracks))
        self.frames = timeline(scenario, self.horizon, fps)
        self.axes, self.view = open_scene(scenario, *forecasts, radius_m=radius_m, theme=theme)
        figure = draw_scene(scenario, forecast, radius_m=radius_m, world=world, theme=theme, axes=self.axes)
        figure.set_dpi(DPI)
        self.canvas = FigureCanvasAgg(figure)
        self._keep_background(_is_dynamic)
        self._horizon = 0
        self._modes: list[Artist] = []
        # Equal frames follow one another.
        self._draw_frame = lru_cache(maxsize=1)(self._draw)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> np.ndarray:  # type: ignore[override]
        return self._draw_frame(self.frames[index])

    def _keep_background(self, is_dynamic: Callable[[Artist], bool]) -> None:
        """Remove what changes from frame to frame and keep a picture of the rest."""
        for artist in self.axes.get_children():
            if is_dynamic(artist):
                artist.remove()
        self.canvas.draw()
        self.background = self.canvas.copy_from_bbox(self.canvas.figure.bbox)

    def _draw(self, frame: Frame) -> np.ndarray:
        if frame.horizon != self._horizon:
            for artist in self._modes:
                artist.remove()
            self._horizon = frame.horizon
            self._modes = self._added_by(self._draw_modes, frame.horizon)
        moving = self._added_by(self._draw_step, frame.step)
        self.canvas.restore_region(self.background)
        for artist in sorted((*self._modes, *moving), key=Artist.get_zorder):
            self.axes.draw_artist(artist)
        for artist in moving:
            artist.remove()
        return np.asarray(self.canvas.buffer_rgba())[..., :3].copy()

    def _added_by(self, draw: Callable[[int], None], steps: int) -> list[Artist]:
        """Return the artists that ``draw(steps)`` adds to the axes."""
        before = set(self.axes.get_children())
        draw(steps)
        return [artist for artist in self.axes.get_children() if artist not in before]

    def _draw_modes(self, steps: int) -> None:
        """Draw the first ``steps`` steps of the modes."""
        if self.forecast is None or steps == 0:
            return
        shortened: dict[str, Any] = {}
        for name, values in self.forecast.arrays.items():
            if values.ndim > 2:
                shortened[name] = values[:, :, :steps]
        forecast = replace(self.forecast, **shortened)
        draw_modes(
            self.axes,
            self.view,
            self.scenario,
            forecast,
            self.predicted,
            labels=steps == self.horizon,
        )

    def _draw_step(self, step: int) -> None:
        """Draw what changes with every step: agents, truth, places along the modes, the time."""
        self._draw_agents(step)
        ended = step == self.scenario.num_steps - 1
        draw_truth(self.axes, self.view, until(self.scenario, step), self.rows, ends=ended)
        self._draw_places(step - self.scenario.num_observed)
        seconds = (step - self.scenario.num_observed + 1) * self.scenario.step_s
        clock = "now"
        if round(seconds, 1) != 0:
            clock = f"{seconds:+.1f} s".replace("-", "\N{MINUS SIGN}")
        self._draw_clock(clock)

    def _draw_agents(self, step: int) -> None:
        """Draw the agents visible at ``step`` with their recent histories."""
        here = replace(self.scenario, num_observed=step + 1)
        rows = visible_agents(here, self.view)
        rows = rows[here.tracks.valid[rows, step]]
        draw_histories(self.axes, self.view, here, rows, round(HISTORY_S / self.scenario.step_s))
        draw_agents(self.axes, self.view, here, rows)

    def _draw_places(self, future: int) -> None:
        """Draw a ring on each of the focal agent's modes at future step ``future``, counted from 0."""
        if self.forecast is None or not 0 <= future < self.horizon:
            return
        is_focal = self.forecast.track_id == self.scenario.focal_id
        colors = self.view.theme.mode_colors(self.forecast.probability[is_focal].ravel())
        x, y = self.forecast.trajectory[is_focal, :, future].reshape(-1, 2).T
        self.axes.scatter(
            x,
            y,
            s=30,
            edgecolors=list(colors),
            facecolors=self.view.theme.halo,
            linewidths=1.6,
            zorder=Layer.END,
            gid="places",
        )

    def _draw_clock(self, text: str) -> None:
        """Write the time at the upper right of the scene."""
        self.axes.annotate(
            text,
            xy=(1, 1),
            xytext=(-9, -8),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=15,
            fontweight="bold",
            color=self.view.theme.ink,
            zorder=Layer.LABEL,
            gid="clock",
            path_effects=[withStroke(linewidth=3.0, foreground=self.view.theme.halo)],
        )


def _is_dynamic(artist: Artist) -> bool:
    """Return whether an artist changes in a film: agents, their paths, and labels of modes."""
    return Layer.MARK < artist.get_zorder() < Layer.LABEL or artist.get_gid() == "probability"


def until(scenario: Scenario, step: int) -> Scenario:
    """Return ``scenario`` as far as it is known at ``step``."""
    recorded = np.arange(scenario.num_steps) <= step
    tracks = replace(scenario.tracks, valid=scenario.tracks.valid & recorded)
    return replace(scenario, tracks=tracks)


def save_film(
    scenario: Scenario, forecast: Forecast | None, path: str | Path, *, fps: float = 10.0, **options: Any
) -> None:
    """Write a film of ``scenario``, a GIF or an MP4 depending on the suffix of ``path``.

    The scenario plays at true speed. At the last observed step time stops while the modes grow; then the true
    future continues, and a ring on each mode marks the predicted place at that time.

    Args: see :class:`Film`.

    Raises: DataError likewise, for another suffix, and for MP4 if no encoder is installed.
    """
    write_film(Path(path), Film(scenario, forecast, fps=fps, **options), fps)
