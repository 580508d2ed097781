"""Predict a split into a predictions file of the Argoverse 2 challenges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.files import atomic_file
from trajpred.forecast import Forecast
from trajpred.predictors.forecast_store import forecast_store
from trajpred.predictors.prediction_rows import SCHEMA
from trajpred.predictors.predictor import Predictor
from trajpred.scenario import Scenario
from trajpred.store import ScenarioStore
from trajpred.tracks import TrackCategory

Agents = Literal["focal", "scored"]
#: Scenarios per row group: what is held in memory while writing.
CHUNK = 256


def predict(
    predictor: Predictor,
    store: ScenarioStore,
    out: Path,
    agents: Agents = "focal",
    *,
    batch_size: int = 16,
    limit: int | None = None,
    workers: int = 1,
    progress: bool = True,
) -> tuple[int, int]:
    """Write the forecasts of every scenario of a split, labelled or not, to a predictions file.

    Returns the numbers of scenarios and tracks that were written.

    Args:
        predictor: a model, a baseline, a predictions file or an ensemble.
        store: the split.
        out: the file, ``.parquet``.
        agents: ``focal``, one track per scenario, for the single-agent challenge; or ``scored``, the focal
            and all scored ones, for the multi-agent challenge, which needs a predictor of joint futures.
        batch_size, limit, workers: as in :func:`~trajpred.predictors.forecast_store.forecast_store`.
        progress: show a progress bar.

    Raises:
        DataError: the split contains no scenario, or several tracks have marginal forecasts (see
            :func:`write_predictions`).
    """
    require(out.suffix == ".parquet", "out", f"must end in .parquet, is {out}")
    several = "several tracks of a scenario share their probabilities in the file: they need joint futures"
    require(agents == "focal" or predictor.joint, "joint", several)
    require(len(store) > 0, "split", f"{store.split!r} contains no scenario")

    def chosen() -> Iterator[Forecast]:
        for scenarios, found in forecast_store(
            predictor, store, batch_size=batch_size, limit=limit, workers=workers, progress=progress
        ):
            for scenario, one in zip(scenarios, found, strict=True):
                yield one.of(tracks_to_predict(scenario, agents))

    return write_predictions(out, chosen())


def tracks_to_predict(scenario: Scenario, agents: Agents) -> NDArray[np.str_]:
    """Return the ids of the focal track, or of all scored ones including it."""
    lowest = TrackCategory.FOCAL if agents == "focal" else TrackCategory.SCORED
    focal = scenario.tracks.track_id == scenario.focal_id
    return scenario.tracks.track_id[focal | (scenario.tracks.category >= lowest)]


def write_predictions(path: str | Path, forecasts: Iterable[Forecast]) -> tuple[int, int]:
    """Write forecasts in the format of av2's ``ChallengeSubmission``; the file is written atomically.

    Forecasts are consumed one by one and written in order; one without tracks adds no row. av2's class reads
    files of 60 steps only, and sorts modes by probability, equal ones in any order.

    Returns the numbers of scenarios and tracks that were written.

    Raises:
        DataError: a forecast is invalid, a scenario is a duplicate, or the tracks of a scenario do not share
            their probabilities: the format has one set per scenario.
    """
    path, stream, ids = Path(path), iter(forecasts), ["scenario_id", "track_id"]
    tracks: dict[str, int] = {}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as new, pq.ParquetWriter(new, SCHEMA, use_dictionary=ids) as writer:
        while chunk := list(islice(stream, CHUNK)):
            for one in chunk:
                _require_writable(one, path)
                if one.scenario_id in tracks:
                    raise DataError(f"scenario {one.scenario_id} was forecast twice", file=path)
                tracks[one.scenario_id] = len(one.track_id)
            present = [one for one in chunk if len(one.track_id)]
            writer.write_table(_to_table(present))
    return sum(count > 0 for count in tracks.values()), sum(tracks.values())


def shared(forecast: Forecast) -> NDArray[np.float64]:
    """Return the probabilities ``[K]`` of all tracks, normalised: av2 requires a sum closer to 1."""
    first: NDArray[np.float64] = forecast.probability[0]
    return first / first.sum()


def _require_writable(forecast: Forecast, path: Path) -> None:
    try:
        forecast.validate()
    except DataError as error:
        raise error.located(path) from None
    if len(forecast.track_id) and not forecast.has_worlds:
        problem = f"the tracks of scenario {forecast.scenario_id} have different probabilities"
        advice = "write joint futures, or the focal track alone"
        raise DataError(f"{problem}, and this format has one set for them all: {advice}", file=path)


def _to_table(forecasts: Sequence[Forecast]) -> pa.Table:
    """Build the rows of ``forecasts``, each of which has a track."""
    if not forecasts:
        return SCHEMA.empty_table()
    rows = [one.probability.size for one in forecasts]
    length = np.repeat([one.trajectory.shape[2] for one in forecasts], rows)
    offsets = pa.array(np.concatenate(([0], length.cumsum())), pa.int32())
    x, y = (np.concatenate([one.trajectory[..., i].ravel() for one in forecasts]) for i in (0, 1))
    columns = (
        np.repeat([one.scenario_id for one in forecasts], rows),
        np.concatenate([np.repeat(one.track_id, one.probability.shape[1]) for one in forecasts]),
        np.concatenate([np.tile(shared(one), len(one.track_id)) for one in forecasts]),
        pa.ListArray.from_arrays(offsets, x),
        pa.ListArray.from_arrays(offsets, y),
    )
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
