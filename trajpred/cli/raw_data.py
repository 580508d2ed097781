"""Recognise raw data, and describe scenarios."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajpred.errors import DataError

if TYPE_CHECKING:
    from trajpred.scenario import Scenario
    from trajpred.sources import Source
    from trajpred.sources.raw_scenario import RawScenario

#: Scenarios of a split that are tried in order to recognise raw data.
TRIED = 3
#: What is shown: a line for each name.
Rows = dict[str, Any]


def describe_raw(path: Path) -> tuple[str, Rows]:
    """Describe raw data: one scenario, or the folder of a data set."""
    from trajpred.sources import SOURCES
    from trajpred.sources.raw_scenario import RawScenario

    for name, source in SOURCES.items():
        rows: Rows = {"source": name}
        with suppress(DataError, OSError):
            rows.update(scenario_rows(source.read(RawScenario.of(path))))
            return f"Scenario {path}", rows
        with suppress(DataError, OSError):
            splits = source.scenarios(path)
            _read_one(source, splits)
            for split, scenarios in splits.items():
                rows[split] = f"{len(scenarios):,} scenarios"
            return f"Raw data {path}", rows
    kinds = "store, run, checkpoint, bundle, predictions file, results file, map, or raw scenario"
    raise DataError(f"is not a {kinds}", file=path)


def _read_one(source: Source, splits: dict[str, list[RawScenario]]) -> None:
    """Read a scenario, since folders of other data may look alike. Raises: DataError if none is readable."""
    problem = DataError("holds no scenario")
    for scenarios in splits.values():
        for raw in scenarios[:TRIED]:
            try:
                source.read(raw)
                return
            except DataError as error:
                problem = error
    raise problem


def scenario_rows(scenario: Scenario) -> Rows:
    """Return what is shown of a scenario."""
    from trajpred.tracks import OBJECT_TYPES, TrackCategory

    tracks = scenario.tracks
    observed = scenario.num_observed
    future = scenario.num_steps - observed
    focal_type = OBJECT_TYPES[tracks.object_type[scenario.focal]]
    return {
        "city": scenario.city,
        "time": f"{observed} + {future} steps of {scenario.step_s:.2g} s",
        "tracks": tracks,
        "scored": int((tracks.category >= TrackCategory.SCORED).sum()),
        "focal": f"{focal_type} {scenario.focal_id}",
        "map": scenario.map,
    }
