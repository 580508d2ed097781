"""Films: a scenario played at true speed, what is predicted when "now" comes, and what really happens."""

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
from trajpred.viz.agent_layer import draw_agents, draw_histories, shown_agents
from trajpred.viz.film_files import Picture, write_film
from trajpred.viz.forecast_layer import draw_truth
from trajpred.viz.scene import draw_modes, draw_scene, open_scene, with_futures
from trajpred.viz.style import Layer

#: Seconds of its past that everyone trails.
TRAIL_S = 2.0
#: At "now" time stands still: so many seconds for the futures to grow, and to look at them; and at the end.
GROW_S, REST_S, END_S = 1.0, 1.0, 1.5
#: Pixels per inch: 720 by 824 pixels.
DPI = 100


class Moment(NamedTuple):
    """What one picture of a film shows.

    Attributes:
        step: of the scenario.
        told: how many future steps of the modes are drawn, 0 before "now".
    """

    step: int
    told: int


def timeline(scenario: Scenario, horizon: int, fps: float) -> list[Moment]:
    """The pictures of a film at true speed, one every 1/``fps`` seconds.

    Args:
        horizon: F, steps that are predicted; 0 without a forecast, when time does not stand still at "now".
    """
    now, end = scenario.num_observed - 1, scenario.num_steps - 1
    stride = 1 / (fps * scenario.step_s)
    film = [Moment(step, 0) for step in _played(0, now, stride)]
    if horizon:
        growing = np.linspace(0, horizon, round(GROW_S * fps) + 1)[1:]
        film += [Moment(now, max(1, round(told))) for told in growing.tolist()]
        film += [Moment(now, horizon)] * round(REST_S * fps)
    film += [Moment(step, horizon) for step in _played(now, end, stride)[1:]]
    return film + film[-1:] * round(END_S * fps)


def _played(first: int, last: int, stride: float) -> list[int]:
    """Steps from ``first`` to ``last``, both included, one every ``stride`` steps."""
    steps: list[int] = np.rint(np.append(np.arange(first, last, stride), last)).astype(int).tolist()
    return steps


class Film(Sequence[Picture]):
    """The pictures of a film, each drawn when it is asked for; what stands still is drawn once.

    Args:
        scenario, forecast, radius_m, world, theme: as :func:`~trajpred.viz.draw_scene` takes them.
        fps: pictures a second; the scenario runs at true speed whatever their number.

    Raises: DataError like ``draw_scene``, and where ``fps`` is not positive.
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
        self.forecast = forecast if forecast is None or world is None else forecast.world(world)
        self.horizon = forecast.trajectory.shape[2] if forecast else 0
        self.moments = timeline(scenario, self.horizon, fps)
        self.rows = with_futures(scenario)
        # As in the picture: a world is everyone's.
        self.predicted = self.rows if world is None else np.arange(len(scenario.tracks))
        self.axes, self.view = open_scene(scenario, self.forecast, radius_m=radius_m, theme=theme)
        figure = draw_scene(scenario, forecast, radius_m=radius_m, world=world, theme=theme, axes=self.axes)
        for part in filter(_moves, self.axes.get_children()):
            part.remove()
        figure.set_dpi(DPI)
        self.canvas = FigureCanvasAgg(figure)
        self.canvas.draw()
        self.still = self.canvas.copy_from_bbox(figure.bbox)
        self.told, self.modes = 0, list[Artist]()
        # Pictures of the same moment follow one another.
        self._of = lru_cache(maxsize=1)(self._draw)

    def __len__(self) -> int:
        return len(self.moments)

    def __getitem__(self, index: int) -> Picture:  # type: ignore[override]
        return self._of(self.moments[index])

    def _draw(self, moment: Moment) -> Picture:
        if moment.told != self.told:
            self._tell(moment.told)
        moving = self._added(self._draw_step, moment.step)
        self.canvas.restore_region(self.still)
        for part in sorted((*self.modes, *moving), key=Artist.get_zorder):
            self.axes.draw_artist(part)
        for part in moving:
            part.remove()
        return np.asarray(self.canvas.buffer_rgba())[..., :3].copy()

    def _tell(self, told: int) -> None:
        """Replace the modes on the axes by their first ``told`` steps."""
        for part in self.modes:
            part.remove()
        self.told, self.modes = told, self._added(self._draw_modes, told)

    def _added(self, draw: Callable[[int], None], steps: int) -> list[Artist]:
        """What ``draw(steps)`` adds to the axes."""
        before = set(self.axes.get_children())
        draw(steps)
        return [part for part in self.axes.get_children() if part not in before]

    def _draw_modes(self, told: int) -> None:
        if self.forecast is None or not told:
            return
        forecast = _so_far(self.forecast, told)
        draw_modes(self.axes, self.view, self.scenario, forecast, self.predicted, told == self.horizon)

    def _draw_step(self, step: int) -> None:
        """What is another at each step: agents, truth, how far along the modes, the time."""
        self._draw_agents(step)
        ended = step == self.scenario.num_steps - 1
        draw_truth(self.axes, self.view, until(self.scenario, step), self.rows, ends=ended)
        self._draw_places(step - self.scenario.num_observed)
        self._draw_clock(step)

    def _draw_agents(self, step: int) -> None:
        """Everyone who is seen at ``step``, and where they were shortly before."""
        here = replace(self.scenario, num_observed=step + 1)
        rows = shown_agents(here, self.view)
        rows = rows[here.tracks.valid[rows, step]]
        draw_histories(self.axes, self.view, here, rows, round(TRAIL_S / self.scenario.step_s))
        draw_agents(self.axes, self.view, here, rows)

    def _draw_places(self, future: int) -> None:
        """A ring where each mode of the focal agent has come to, ``future`` steps after the first one."""
        if self.forecast is None or not 0 <= future < self.horizon:
            return
        known = self.forecast.track_id == self.scenario.focal_id
        place, probability = self.forecast.trajectory[known, :, future], self.forecast.probability[known]
        colors = self.view.theme.mode_colors(probability.ravel())
        look: dict[str, Any] = {
            "edgecolors": colors,
            "s": 30,
            "facecolors": self.view.theme.halo,
            "linewidths": 1.6,
            "zorder": Layer.END,
        }
        self.axes.scatter(*place.reshape(-1, 2).T, gid="places", **look)

    def _clock(self, step: int) -> str:
        """Seconds from the last observed step."""
        seconds = (step - self.scenario.num_observed + 1) * self.scenario.step_s
        return f"{seconds:+.1f} s".replace("-", "\N{MINUS SIGN}") if round(seconds, 1) else "now"

    def _draw_clock(self, step: int) -> None:
        """The time, at the upper right of the scene."""
        self.axes.annotate(
            self._clock(step), (1, 1), (-9, -8), xycoords="axes fraction", textcoords="offset points",
            ha="right", va="top", fontsize=15, fontweight="bold", color=self.view.theme.ink,
            zorder=Layer.LABEL, gid="clock",
            path_effects=[withStroke(linewidth=3.0, foreground=self.view.theme.halo)],
        )  # fmt: skip


def save_film(
    scenario: Scenario,
    forecast: Forecast | None,
    path: str | Path,
    *,
    radius_m: float | None = None,
    world: int | None = None,
    theme: str = "light",
    fps: float = 10.0,
) -> None:
    """Write a film of ``scenario``, a GIF or an MP4 as the suffix of ``path`` says.

    The scenario runs at true speed. At the last observed step time stands still while the futures of the
    forecast grow; then the truth goes on against them, and a ring on each mode shows where it would be.

    Args: see :class:`Film`.

    Raises: DataError likewise, on another suffix, and for MP4 where there is no encoder.
    """
    film = Film(scenario, forecast, radius_m=radius_m, world=world, theme=theme, fps=fps)
    write_film(Path(path), film, fps)


def _moves(part: Artist) -> bool:
    """Whether ``part`` of a picture changes in a film: agents, their paths, and the labels at those."""
    return Layer.MARK < part.get_zorder() < Layer.LABEL or part.get_gid() == "probability"


def until(scenario: Scenario, step: int) -> Scenario:
    """``scenario`` as far as it is known at ``step``."""
    known = scenario.tracks.valid & (np.arange(scenario.num_steps) <= step)
    return replace(scenario, tracks=replace(scenario.tracks, valid=known))


def _so_far(forecast: Forecast, steps: int) -> Forecast:
    """The first ``steps`` steps of ``forecast``."""
    cut: dict[str, Any] = {
        name: getattr(forecast, name)[:, :, :steps]
        for name in ("trajectory", "heading", "speed", "scale")
        if getattr(forecast, name) is not None
    }
    return replace(forecast, **cut)
