"""Replay a recorded scenario through the onboard runtime, and measure it. NumPy only."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trajpred.lane_map import LaneMap
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.onboard.stream import Detections, OnboardForecast, StreamingForecaster
from trajpred.scenario import OBJECT_TYPES, Scenario

#: The stages before the graphs run.
PREPARING = ("features", "lanes")
#: The part of the work that consists of these stages and of the time outside all stages, which keeps the
#: histories.
PREPARATION = "pre-processing"


class Update(NamedTuple):
    """One call of :meth:`StreamingForecaster.update`.

    Attributes:
        step: of the scenario.
        seconds: since its first step.
        forecast: of all tracks.
        latency_ms: from detections to futures; the first update of a replay also sets the map.
        encoded: number of new lanes that were encoded.
    """

    step: int
    seconds: float
    forecast: OnboardForecast
    latency_ms: float
    encoded: int


def replay(forecaster: OnboardForecaster, scenario: Scenario, *, realtime: bool = False) -> Iterator[Update]:
    """Stream a scenario from its first step to the last with a detection; each step knows only the past.

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
    stream: StreamingForecaster, timestamp_s: float, detected: Detections, lane_map: LaneMap | None = None
) -> Update:
    """Update ``stream``, after setting a new ``lane_map`` if one is given, and measure it as step 0."""
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
    """Return the states of all tracks that are valid at ``step``."""
    tracks = scenario.tracks
    rows = np.flatnonzero(tracks.valid[:, step])
    return Detections(
        tracks.track_id[rows].tolist(),
        tracks.position[rows, step],
        tracks.heading[rows, step],
        tracks.velocity[rows, step],
        [OBJECT_TYPES[index] for index in tracks.object_type[rows].tolist()],
    )


def drive_on_repeat(scenario: Scenario) -> Iterator[tuple[float, Detections]]:
    """Repeat the observed steps of a scenario without end: seconds on a continuing clock, and detections.

    Track ids change with every round, as on a long drive.
    """
    steps = [detections(scenario, step) for step in range(scenario.num_observed)]
    for count in itertools.count():
        round_, step = divmod(count, len(steps))
        track_id = [f"{name}, round {round_}" for name in steps[step].track_id]
        yield count * scenario.step_s, steps[step]._replace(track_id=track_id)


@dataclass
class Replay:
    """Statistics of the updates of one or more replays; forecasts are not kept.

    Attributes:
        latency_ms: latency of each update.
        agents: number of agents predicted in each update.
        missed: number of agents not predicted in each update.
        part_ms: total milliseconds by part of the work.
        encoded: number of lanes encoded.
        fallback: number of futures that the fallback gave.
        warnings: number of times each was given.
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
        graphs = {name: ms for name, ms in forecast.stage_ms.items() if name not in PREPARING}
        parts = {PREPARATION: update.latency_ms - sum(graphs.values())} | graphs
        for part, spent in parts.items():
            self.part_ms[part] = self.part_ms.get(part, 0.0) + spent
        self.encoded += update.encoded
        self.fallback += len(forecast.fallback)
        self.warnings.update(forecast.warnings)

    @property
    def cold_ms(self) -> float:
        """Latency of the first update, which sets the map and encodes the lanes nearby."""
        return self.latency_ms[0]

    def percentiles_ms(self) -> dict[str, float]:
        """Return p50, p95 and p99 of the latency of all updates but the first."""
        warm = self.latency_ms[1:] or self.latency_ms
        return {f"p{p}": float(np.percentile(warm, p)) for p in (50, 95, 99)}

    def shares(self) -> dict[str, float]:
        """Return the share of the time spent in each part; they sum to 1."""
        whole = sum(self.latency_ms)
        return {part: spent / whole for part, spent in self.part_ms.items()}


def resident_mb() -> float | None:
    """Return the resident memory of this process in MB, or None where it is unknown (outside Linux)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    import resource  # missing on Windows

    return pages * resource.getpagesize() / 1e6
