"""A recorded scenario as a vehicle would have met it: step by step through the runtime. NumPy only."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.onboard.stream import Detections, OnboardForecast, StreamingForecaster
from trajpred.scenario import OBJECT_TYPES, Scenario

#: The stages of an update by what they are for; the histories are kept before the first of them.
PARTS = {"features": "pre-processing", "lanes": "pre-processing", "encoder": "encoder", "decoder": "decoder"}
#: Whatever is in no stage: keeping the histories.
OUTSIDE = "pre-processing"


class Update(NamedTuple):
    """One call of :meth:`StreamingForecaster.update`.

    Attributes:
        step: of the scenario; seconds: since its first one.
        latency_ms: from detections to futures; the first one of a replay takes in the map, too.
        encoded: lanes that were new, and encoded.
    """

    step: int
    seconds: float
    forecast: OnboardForecast
    latency_ms: float
    encoded: int


def replay(forecaster: OnboardForecaster, scenario: Scenario, *, realtime: bool = False) -> Iterator[Update]:
    """Stream a scenario from its first step to the last that anybody is seen in; the future is not told.

    Args:
        realtime: wait until each step is due; by default as fast as it goes.
    """
    seconds = (scenario.timestamps_ns - scenario.timestamps_ns[0]) / 1e9
    stream, began = StreamingForecaster(forecaster), time.perf_counter()
    for step in range(int(np.flatnonzero(scenario.tracks.valid.any(axis=0))[-1]) + 1):
        seen, known = detections(scenario, step), forecaster.lanes.encoded
        if realtime:
            time.sleep(max(0.0, began + seconds[step] - time.perf_counter()))
        start = time.perf_counter()
        if not step:
            stream.set_map(scenario.map)
        forecast = stream.update(scenario.timestamps_ns[step] / 1e9, seen)
        latency_ms = (time.perf_counter() - start) * 1e3
        yield Update(step, float(seconds[step]), forecast, latency_ms, forecaster.lanes.encoded - known)


def detections(scenario: Scenario, step: int) -> Detections:
    """What is seen at ``step``."""
    tracks = scenario.tracks
    seen = np.flatnonzero(tracks.valid[:, step])
    return Detections(
        tracks.track_id[seen].tolist(),
        tracks.position[seen, step],
        tracks.heading[seen, step],
        tracks.velocity[seen, step],
        [OBJECT_TYPES[kind] for kind in tracks.object_type[seen].tolist()],
    )


def drive_on_repeat(scenario: Scenario) -> Iterator[tuple[float, Detections]]:
    """The observed steps of a scenario over and over, on a clock that goes on: seconds and what is seen.

    In every lap all road users are others, as on a drive that does not end.
    """
    once = [detections(scenario, step) for step in range(scenario.num_observed)]
    for count in itertools.count():
        lap, step = divmod(count, len(once))
        seen = once[step]
        renamed = seen._replace(track_id=[f"{name}, lap {lap}" for name in seen.track_id])
        yield count * scenario.step_s, renamed


@dataclass
class Replay:
    """What the updates of replays come to; the forecasts themselves are not kept.

    Attributes:
        latency_ms, agents, missed: of every update: its time, who is predicted, and how many are not.
        part_ms: milliseconds of all updates together, by part of the work.
        encoded: lanes encoded in all.
        warnings: how often each was given.
    """

    latency_ms: list[float] = field(default_factory=list)
    agents: list[int] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    part_ms: dict[str, float] = field(default_factory=dict)
    encoded: int = 0
    warnings: Counter[str] = field(default_factory=Counter)

    def add(self, update: Update) -> None:
        """Count ``update``."""
        told, stages = update.forecast, update.forecast.stage_ms
        self.latency_ms.append(update.latency_ms)
        self.agents.append(len(told.track_id))
        self.missed.append(len(told.not_predicted))
        outside = update.latency_ms - sum(stages.values())
        for part, spent in ((OUTSIDE, outside), *((PARTS.get(x, x), ms) for x, ms in stages.items())):
            self.part_ms[part] = self.part_ms.get(part, 0.0) + spent
        self.encoded += update.encoded
        self.warnings.update(told.warnings)

    @property
    def cold_ms(self) -> float:
        """The very first update, which takes in the map and encodes the lanes around."""
        return self.latency_ms[0]

    def percentiles_ms(self) -> dict[str, float]:
        """p50, p95 and p99 of all updates but the very first."""
        warm = self.latency_ms[1:] or self.latency_ms
        return {f"p{p}": float(np.percentile(warm, p)) for p in (50, 95, 99)}

    def shares(self) -> dict[str, float]:
        """The share of the time that each part takes; they sum to 1."""
        whole = sum(self.latency_ms)
        return {part: spent / whole for part, spent in self.part_ms.items()}


def resident_mb() -> float | None:
    """Memory that this process holds, MB; None where the system does not tell (only Linux does)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    import resource  # only where there is Linux

    return pages * resource.getpagesize() / 1e6
