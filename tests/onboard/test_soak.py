"""A long drive: memory does not grow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.onboard.replay import drive_on_repeat, resident_mb
from trajpred.onboard.stream import StreamingForecaster
from trajpred.scenario import Scenario

UPDATES = 10_000
#: MB by which memory may differ between a tenth of the drive and its end.
ROOM = 8.0


@pytest.mark.slow
def test_memory_does_not_grow(bundle: Path, sample_scenarios: Sequence[Scenario]) -> None:
    if resident_mb() is None:
        pytest.skip("the system does not tell its memory")
    scenario = min(sample_scenarios, key=lambda one: len(one.tracks))
    stream = StreamingForecaster(OnboardForecaster(bundle, threads=1), scenario.map)
    early = 0.0
    for count, (seconds, seen) in enumerate(itertools.islice(drive_on_repeat(scenario), UPDATES), 1):
        told = stream.update(seconds, seen, targets=seen.track_id[:1])
        assert len(told.track_id) == min(1, len(seen.track_id)) and not told.warnings
        if count == UPDATES // 10:
            early = resident_mb() or 0.0
    assert (resident_mb() or 0.0) - early < ROOM
    # Everyone had another name in each of the drive_on_repeat; nobody of the early ones is kept.
    assert len(stream.history) <= 2 * len(scenario.tracks)
    assert stream.forecaster.lanes.encoded <= len(scenario.map) + len(scenario.map.crossing_id)
