"""Replay recorded scenarios through the onboard runtime: measurements, films, lines of JSON."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import ArrayLike

from trajpred.data.checks import as_array
from trajpred.data.files import atomic_file
from trajpred.data.forecast import Forecast
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import heading_known
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import require
from trajpred.onboard.detections import Detections, listed
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.onboard.stream import OnboardForecast, StreamingForecaster
from trajpred.viz.caption import caption_line, draw_caption
from trajpred.viz.film import CAPTION, END_S, Film, Frame, until, write_film
from trajpred.viz.forecast_layer import draw_modes, draw_truth
from trajpred.viz.scene import future_rows

#: The stages before the graphs run.
PREPARING = ("features", "lanes")
#: Name for these stages and the time outside all stages, which maintains the histories.
PREPARATION = "pre-processing"


class Update(NamedTuple):
    """One call of :meth:`StreamingForecaster.update`.

    Attributes:
        step: step of the scenario.
        seconds: seconds since its first step.
        forecast: forecast of all tracks.
        latency_ms: from detections to futures; the first update of a replay also sets the map.
        encoded: number of newly encoded lanes.
    """

    step: int
    seconds: float
    forecast: OnboardForecast
    latency_ms: float
    encoded: int


def replay(forecaster: OnboardForecaster, scenario: Scenario, *, realtime: bool = False) -> Iterator[Update]:
    """Stream a scenario from its first step to the last one with a detection; each step uses only the past.

    Args:
        realtime: wait until each step is due; by default as fast as possible.
    """
    seconds = (scenario.timestamps_ns - scenario.timestamps_ns[0]) / 1e9
    last = int(np.flatnonzero(scenario.tracks.valid.any(axis=0))[-1])
    stream = StreamingForecaster(forecaster)
    began = time.perf_counter()
    for step in range(last + 1):
        detected = detections(scenario, step)
        if realtime:
            time.sleep(max(0.0, began + seconds[step] - time.perf_counter()))
        timestamp_s = float(scenario.timestamps_ns[step] / 1e9)
        update = timed_update(stream, timestamp_s, detected, None if step else scenario.map)
        yield update._replace(step=step, seconds=float(seconds[step]))


def timed_update(
    stream: StreamingForecaster, timestamp_s: float, detected: Detections, lane_map: LaneMap | None
) -> Update:
    """Update ``stream``, after setting ``lane_map`` if given, and measure it as step 0."""
    encoded = stream.runtime.lanes.encoded
    start = time.perf_counter()
    if lane_map is not None:
        stream.set_map(lane_map)
    forecast = stream.update(timestamp_s, detected)
    latency_ms = (time.perf_counter() - start) * 1e3
    return Update(
        step=0,
        seconds=0.0,
        forecast=forecast,
        latency_ms=latency_ms,
        encoded=stream.runtime.lanes.encoded - encoded,
    )


def detections(scenario: Scenario, step: int) -> Detections:
    """Return the states of all tracks valid at ``step``, without unknown headings."""
    tracks = scenario.tracks
    rows = np.flatnonzero(tracks.valid[:, step])
    has_heading = heading_known(tracks.heading, tracks.position, tracks.valid)[rows, step]
    return Detections(
        tracks.track_id[rows].tolist(),
        tracks.position[rows, step],
        np.where(has_heading, tracks.heading[rows, step], np.nan),
        tracks.velocity[rows, step],
        [OBJECT_TYPES[index] for index in tracks.object_type[rows].tolist()],
    )


@dataclass
class Replay:
    """Statistics of the updates of one or more replays; forecasts are not kept.

    Attributes:
        latency_ms: latency of each update.
        agents: number of agents predicted in each update.
        missed: number of agents not predicted in each update.
        part_ms: total milliseconds by part of the work.
        encoded: number of lanes encoded.
        fallback: number of futures from the fallback.
        warnings: how often each was given.
    """

    latency_ms: list[float] = field(default_factory=list)
    agents: list[int] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    part_ms: dict[str, float] = field(default_factory=dict)
    encoded: int = 0
    fallback: int = 0
    warnings: Counter[str] = field(default_factory=Counter)

    def add(self, update: Update) -> None:
        """Add an update to the statistics."""
        forecast = update.forecast
        self.latency_ms.append(update.latency_ms)
        self.agents.append(len(forecast.track_id))
        self.missed.append(len(forecast.not_predicted))
        parts = {PREPARATION: update.latency_ms}
        for stage, spent_ms in forecast.stage_ms.items():
            if stage not in PREPARING:
                parts[stage] = spent_ms
                parts[PREPARATION] -= spent_ms
        for part, spent_ms in parts.items():
            self.part_ms[part] = self.part_ms.get(part, 0.0) + spent_ms
        self.encoded += update.encoded
        self.fallback += len(forecast.fallback)
        self.warnings.update(forecast.warnings)

    @property
    def only_failed(self) -> bool:
        """Whether the bundle failed and predicted nothing in any update."""
        failed = any(warning.startswith("forecast failed") for warning in self.warnings)
        return failed and sum(self.agents) == self.fallback

    def percentiles_ms(self) -> dict[str, float]:
        """Return p50, p95 and p99 of the latency of all updates except the first."""
        warm = self.latency_ms[1:] or self.latency_ms
        return {f"p{p}": float(np.percentile(warm, p)) for p in (50, 95, 99)}

    def shares(self) -> dict[str, float]:
        """Return the fraction of time spent in each part; they sum to 1."""
        whole = sum(self.latency_ms)
        return {part: spent / whole for part, spent in self.part_ms.items()}


def resident_mb() -> float | None:
    """Return the resident memory of this process in MB, or None where it is unknown (outside Linux)."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return None
    import resource  # missing on Windows

    return pages * resource.getpagesize() / 1e6


#: Decimals of predicted positions: a tenth of a millimetre.
DIGITS = 4


def drive_line(
    timestamp_s: float,
    detections: Detections,
    *,
    targets: Sequence[str] | None = None,
    map: dict[str, Any] | None = None,
    forecast: Forecast | None = None,
) -> str:
    """Return an update as a line, without the line's end.

    Args:
        timestamp_s: seconds.
        targets: ids of the tracks to predict; by default all.
        map: new map, see :func:`~trajpred.sources.argoverse2.archive_of`.
        forecast: forecast of this update, for comparison with another runtime's.

    Raises: DataError if ids are not a list of names, or numbers are invalid.

    Example:
        >>> drive_line(12.3, Detections(["car 7"], [[4.0, 7.5]]))
        '{"time_s": 12.3, "track_id": ["car 7"], "position": [[4.0, 7.5]]}'
    """
    line: dict[str, Any] = {
        "time_s": timestamp_s if math.isfinite(timestamp_s) else None,
        "track_id": listed(detections.track_id, "track_id"),
        "position": _numbers(detections.position, "position"),
    }
    if detections.heading is not None:
        line["heading"] = _numbers(detections.heading, "heading")
    if detections.velocity is not None:
        line["velocity"] = _numbers(detections.velocity, "velocity")
    if detections.object_type is not None:
        line["object_type"] = listed(detections.object_type, "object_type")
    if targets is not None:
        line["targets"] = listed(targets, "targets")
    if map is not None:
        line["map"] = map
    if forecast is not None:
        line["forecast"] = {
            "track_id": forecast.track_id.tolist(),
            "trajectory": forecast.trajectory.round(DIGITS).tolist(),
            "probability": forecast.probability.tolist(),
        }
    return json.dumps(line, allow_nan=False)


class DriveLines:
    """Write a drive to a file, update by update; an earlier file is kept if the block raises.

    Args:
        path: usually ends in ``.jsonl``.
        map: map of the first update, see :func:`~trajpred.sources.argoverse2.archive_of`.

    Example:
        >>> with DriveLines("drive.jsonl") as file:
        ...     file.add(12.3, Detections(["car 7"], [[4.0, 7.5]]))
    """

    def __init__(self, path: str | Path, map: dict[str, Any] | None = None) -> None:
        self._path, self._map = path, map
        self._stack = ExitStack()

    def __enter__(self) -> DriveLines:
        unfinished = self._stack.enter_context(atomic_file(self._path))
        self._file: TextIO = self._stack.enter_context(unfinished.open("w", encoding="utf-8"))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def add(self, timestamp_s: float, detections: Detections, forecast: Forecast | None = None) -> None:
        """Write an update, with its forecast for comparison with another runtime's."""
        line = drive_line(timestamp_s, detections, map=self._map, forecast=forecast)
        self._map = None
        self._file.write(f"{line}\n")


def _numbers(values: ArrayLike, field: str) -> Any:
    """Return numbers as nested lists, None for masked or non-finite ones. Raises: DataError."""
    array = as_array(values, np.float64, field)
    numbers = array.astype(object)
    numbers[~np.isfinite(array)] = None
    return numbers.tolist()


class ReplayFrame(NamedTuple):
    """The part of a replay's update kept for a film; the futures of all agents would fill the memory."""

    step: int
    seconds: float  # since the scenario's first step
    forecast: Forecast  # of the focal and scored tracks
    subtitle: str

    @classmethod
    def of(cls, update: Update, scenario: Scenario) -> ReplayFrame:
        """Select the drawn part of an ``update`` in a replay of ``scenario``."""
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
    """The pictures of a replay in real time, one per update, with the true futures dashed.

    Args:
        updates: updates of one replay of ``scenario``, in order.
        step_s: seconds between forecast steps, by default the scenario's.

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
        # Draw the truth as far as the forecasts reach.
        self.true_steps = round(self.horizon * (step_s or scenario.step_s) / scenario.step_s)
        self.frames = [Frame(update.step, self.horizon) for update in updates]
        self.frames += self.frames[-1:] * round(END_S * fps)
        # Keep only the title of the caption, above the line that changes.
        draw_caption(self.axes, self.view, scenario, None)
        caption = [text for text in self.axes.texts if text.get_gid() in CAPTION]
        replaced = caption[:-1]
        self._keep_background(lambda artist: artist in replaced)

    def _draw_modes(self, steps: int) -> None:
        """Draw nothing: modes change with every step."""

    def _draw_step(self, step: int) -> None:
        update = self.updates[step]
        here = replace(until(self.scenario, step + self.true_steps), num_observed=step + 1)
        is_predicted = update.forecast.rows(here.tracks.track_id[self.rows]) >= 0
        self._draw_agents(step, self.rows[is_predicted])
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
