"""Films of replays: what a vehicle predicted at each update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.onboard.replay import Update
from trajpred.scenario import Scenario
from trajpred.viz.caption import caption_line, draw_caption
from trajpred.viz.film import CAPTION, END_S, Film, Frame, until
from trajpred.viz.film_file import write_film
from trajpred.viz.forecast_layer import draw_modes
from trajpred.viz.scene import future_rows
from trajpred.viz.truth_layer import draw_truth


class ReplayFrame(NamedTuple):
    """What a film keeps of one update of a replay; the futures of all agents would fill the memory."""

    step: int
    seconds: float  # since the scenario's first step
    forecast: Forecast  # of the focal and the scored tracks
    subtitle: str

    @classmethod
    def of(cls, update: Update, scenario: Scenario) -> ReplayFrame:
        """Select what is drawn of an ``update`` of a replay of ``scenario``."""
        forecast = update.forecast
        drawn = forecast.of(scenario.tracks.track_id[future_rows(scenario)])
        subtitle = f"{len(forecast.track_id)} road users predicted"
        if forecast.not_predicted:
            subtitle += f", {len(forecast.not_predicted)} not"
        subtitle += f", in {update.latency_ms:.0f} ms"
        return cls(
            step=update.step,
            seconds=update.seconds,
            forecast=Forecast(scenario.scenario_id, **drawn.arrays),
            subtitle=subtitle,
        )


class ReplayFilm(Film):
    """The pictures of a replay at true speed, one per update, with the true futures dashed.

    Args:
        updates: of one replay of ``scenario``, in order.
        step_s: seconds between the steps of the forecasts, by default those of the scenario.

    Raises: DataError if there are none, and like :class:`Film`.
    """

    def __init__(
        self, scenario: Scenario, updates: Sequence[ReplayFrame], step_s: float | None = None
    ) -> None:
        require(len(updates) > 0, "updates", "is empty, at least one is needed")
        self.updates = {update.step: update for update in updates}
        central = self.updates.get(scenario.num_observed - 1, updates[-1])
        fps = 1 / scenario.step_s
        super().__init__(scenario, central.forecast, fps=fps)
        # The truth is drawn as far as the forecasts reach.
        self.true_steps = round(self.horizon * (step_s or scenario.step_s) / scenario.step_s)
        self.frames = [Frame(update.step, self.horizon) for update in updates]
        self.frames += self.frames[-1:] * round(END_S * fps)
        # Of the caption only the title stays, above the line that changes.
        draw_caption(self.axes, self.view, scenario, None)
        caption = [text for text in self.axes.texts if text.get_gid() in CAPTION]
        replaced = caption[:-1]
        self._keep_background(lambda artist: artist in replaced)

    def _draw_modes(self, steps: int) -> None:
        """Draw nothing: modes change with every step."""

    def _draw_step(self, step: int) -> None:
        update = self.updates[step]
        here = replace(until(self.scenario, step + self.true_steps), num_observed=step + 1)
        self._draw_agents(step)
        draw_truth(self.axes, self.view, here, self.rows)
        if len(update.forecast.track_id):
            draw_modes(self.axes, self.view, here, update.forecast, self.rows, labels=False)
        self._draw_clock(f"{update.seconds:.1f} s")
        caption_line(self.axes, self.view, 0, update.subtitle, "subtitle")


def save_replay(
    scenario: Scenario, updates: Sequence[ReplayFrame], path: str | Path, step_s: float | None = None
) -> None:
    """Write a film of a replay; arguments as for :class:`ReplayFilm`, formats as for :func:`save_film`."""
    write_film(Path(path), ReplayFilm(scenario, updates, step_s), 1 / scenario.step_s)
