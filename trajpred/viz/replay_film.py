"""Films of a replay: at every step who is seen then, and what is predicted from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.onboard.replay import Update
from trajpred.scenario import Scenario
from trajpred.viz.animation import END_S, Film, Moment, until
from trajpred.viz.caption import FIRST, draw_caption
from trajpred.viz.film_files import write_film
from trajpred.viz.forecast_layer import draw_truth
from trajpred.viz.scene import draw_modes, with_futures


class Shown(NamedTuple):
    """What a film keeps of an update: everyone's futures at every step would fill the memory.

    Attributes:
        step: of the scenario; seconds: since its first one.
        forecast: of the focal and the scored tracks.
        told: the line above the scene.
    """

    step: int
    seconds: float
    forecast: Forecast
    told: str

    @classmethod
    def of(cls, update: Update, scenario: Scenario) -> Shown:
        """Of an ``update`` of a replay of ``scenario``."""
        whole = update.forecast
        rows = whole.rows(scenario.tracks.track_id[with_futures(scenario)])
        rows = rows[rows >= 0]
        names = ("track_id", "trajectory", "probability", "heading", "speed", "scale")
        part: dict[str, Any] = {name: getattr(whole, name)[rows] for name in names}
        missed = f", {len(whole.not_predicted)} not" if whole.not_predicted else ""
        told = f"{len(whole.track_id)} road users predicted{missed}, in {update.latency_ms:.0f} ms"
        return cls(update.step, update.seconds, Forecast(scenario.scenario_id, **part), told)


class ReplayFilm(Film):
    """The pictures of a replay at true speed, one for each update.

    What really happened next is dashed, over the time that is predicted; the runtime does not know it.

    Args:
        shown: the updates of one replay of ``scenario``, in order.

    Raises: DataError if there are none, and like :class:`Film`.
    """

    def __init__(self, scenario: Scenario, shown: Sequence[Shown], *, theme: str = "light") -> None:
        require(len(shown) > 0, "shown", "must be one update at least")
        self.shown = {one.step: one for one in shown}
        around = self.shown.get(scenario.num_observed - 1, shown[-1])
        fps = 1 / scenario.step_s
        super().__init__(scenario, around.forecast, theme=theme, fps=fps)
        self.moments = [Moment(one.step, self.horizon) for one in shown]
        self.moments += self.moments[-1:] * round(END_S * fps)
        self._leave_title()

    def _leave_title(self) -> None:
        """Of the lines above the scene; what the one below it says is another at each step."""
        _remove(self, "caption", "told", "metrics")
        draw_caption(self.axes, self.view, self.scenario, None)
        _remove(self, "told")
        self.canvas.draw()
        self.still = self.canvas.copy_from_bbox(self.canvas.figure.bbox)

    def _draw_modes(self, told: int) -> None:
        """They move, too: :meth:`_draw_step` draws them."""

    def _draw_step(self, step: int) -> None:
        forecast = self.shown[step].forecast
        here = replace(until(self.scenario, step + self.horizon), num_observed=step + 1)
        self._draw_agents(step)
        draw_truth(self.axes, self.view, here, self.rows)
        if len(forecast.track_id):
            draw_modes(self.axes, self.view, here, forecast, self.rows, labels=False)
        self._draw_clock(step)
        self.axes.annotate(
            self.shown[step].told, (0, 1), (0, FIRST), xycoords="axes fraction", textcoords="offset points",
            ha="left", va="bottom", fontsize=8, color=self.view.theme.muted, gid="told",
        )  # fmt: skip

    def _clock(self, step: int) -> str:
        return f"{self.shown[step].seconds:.1f} s"


def save_replay(
    scenario: Scenario, shown: Sequence[Shown], path: str | Path, *, theme: str = "light"
) -> None:
    """Write a film of a replay, a GIF or an MP4 as the suffix of ``path`` says.

    Args: see :class:`ReplayFilm`.

    Raises: DataError likewise, on another suffix, and for MP4 where there is no encoder.
    """
    write_film(Path(path), ReplayFilm(scenario, shown, theme=theme), 1 / scenario.step_s)


def _remove(film: Film, *names: str) -> None:
    for part in [part for part in film.axes.texts if part.get_gid() in names]:
        part.remove()
