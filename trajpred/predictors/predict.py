"""Predict a split into a predictions file of the Argoverse 2 challenges."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.data.files import atomic_file
from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import TrackCategory
from trajpred.errors import DataError, require
from trajpred.predictors.prediction_rows import DIGESTS, SCHEMA, X, Y
from trajpred.predictors.predictor import Batch, Predictor, forecast_store
from trajpred.store import ScenarioStore

Agents = Literal["focal", "scored", "all"]
#: Scenarios per row group, which is held in memory while writing.
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
    """Write the forecasts for a split's scenarios, labelled or not, to a predictions file.

    Returns the numbers of scenarios and tracks that were written.

    Args:
        out: the file, ``.parquet``.
        agents: ``focal``, one track per scenario, for the single-agent challenge; ``scored``, all scored
            tracks including the focal one, for the multi-agent challenge, which needs joint futures; or
            ``all``, every predicted track with its own probabilities, which no challenge accepts.
        batch_size, limit, workers, progress: as in :func:`~trajpred.predictors.predictor.forecast_store`.

    Raises:
        DataError: the file is not ``.parquet``, the split contains no scenario, or scored agents are
            requested from a predictor of marginal forecasts (see :func:`write_predictions`).
    """
    require(out.suffix == ".parquet", "out", f"must end in .parquet, is {out}")
    one_set = "the file holds one set of probabilities per scenario: scored agents need joint futures"
    require(agents != "scored" or predictor.joint, "joint", one_set)
    require(len(store) > 0, "split", f"{store.split!r} contains no scenario")

    batches = forecast_store(
        predictor, store, batch_size=batch_size, limit=limit, workers=workers, progress=progress
    )
    digests: dict[str, int] = {}
    return write_predictions(out, _of_agents(batches, agents, digests), digests, marginal=agents == "all")


def _of_agents(batches: Iterable[Batch], agents: Agents, digests: dict[str, int]) -> Iterator[Forecast]:
    """Yield the forecasts of several batches, reduced to the tracks to predict; add their scenes' digests."""
    for scenarios, forecasts in batches:
        for scenario, forecast in zip(scenarios, forecasts, strict=True):
            digests[scenario.scenario_id] = scenario.digest
            yield forecast if agents == "all" else forecast.of(tracks_to_predict(scenario, agents))


def tracks_to_predict(scenario: Scenario, agents: Agents) -> NDArray[np.str_]:
    """Return the ids of the focal track, or of all scored tracks including it."""
    lowest = TrackCategory.FOCAL if agents == "focal" else TrackCategory.SCORED
    focal = scenario.tracks.track_id == scenario.focal_id
    return scenario.tracks.track_id[focal | (scenario.tracks.category >= lowest)]


def write_predictions(
    path: str | Path,
    forecasts: Iterable[Forecast],
    digests: Mapping[str, int] | None = None,
    marginal: bool = False,
) -> tuple[int, int]:
    """Write forecasts in the format of av2's ``ChallengeSubmission``, atomically.

    Forecasts are read one after another and written in order; a forecast without tracks adds no rows. av2's
    class reads only files of 60 steps, and sorts modes by probability, with ties in any order.
    Each scenario's :attr:`~trajpred.data.scenario.Scenario.digest` goes into the file's metadata once all
    forecasts are written, so that the file is not scored on other scenes with the same names.

    Returns the numbers of scenarios and tracks that were written.

    Args:
        digests: by scenario id.
        marginal: allow each track its own probabilities: :func:`read_predictions` reads such files, av2 does
            not.

    Raises:
        DataError: a forecast is invalid, a scenario is a duplicate, or the tracks of a scenario do not share
            their probabilities: the format has one set per scenario.
    """
    path = Path(path)
    stream = iter(forecasts)
    ids = ["scenario_id", "track_id"]
    tracks: dict[str, int] = {}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as unfinished, pq.ParquetWriter(unfinished, SCHEMA, use_dictionary=ids) as writer:
        while chunk := list(islice(stream, CHUNK)):
            for forecast in chunk:
                _require_writable(forecast, path, marginal)
                name = forecast.scenario_id
                if name in tracks:
                    raise DataError(f"scenario {name} was forecast twice", file=path)
                tracks[name] = len(forecast.track_id)
            writer.write_table(_to_table(chunk))
        if digests:
            writer.add_key_value_metadata({DIGESTS: json.dumps(digests)})
    written = [count for count in tracks.values() if count > 0]
    return len(written), sum(written)


def _require_writable(forecast: Forecast, path: Path, marginal: bool) -> None:
    """Raise :class:`DataError` about ``path`` unless the format can contain a forecast."""
    try:
        forecast.validate()
    except DataError as error:
        raise error.located(path) from None
    if len(forecast.track_id) and not marginal and not forecast.is_joint:
        problem = f"the tracks of scenario {forecast.scenario_id} have different probabilities"
        advice = "write joint futures, or the focal track alone"
        raise DataError(f"{problem}, and this format has one set for them all: {advice}", file=path)


def _to_table(forecasts: Sequence[Forecast]) -> pa.Table:
    """Build the rows of forecasts, one per track and mode."""
    scenario_ids = []
    track_ids = []
    probabilities = []
    lengths = []
    x = []
    y = []
    for forecast in forecasts:
        tracks, modes, steps = forecast.trajectory.shape[:3]
        if tracks == 0:
            continue
        rows = tracks * modes
        scenario_ids.append(np.repeat(forecast.scenario_id, rows))
        track_ids.append(np.repeat(forecast.track_id, modes))
        # av2 requires one set of probabilities, to the last bit, and a sum closer to 1 than Forecast does.
        probability = forecast.probability[:1] if forecast.is_joint else forecast.probability
        probability = probability / probability.sum(axis=1, keepdims=True)
        probabilities.append(np.broadcast_to(probability, (tracks, modes)).ravel())
        lengths.append(np.repeat(steps, rows))
        x.append(forecast.trajectory[..., 0].ravel())
        y.append(forecast.trajectory[..., 1].ravel())
    if not lengths:
        return SCHEMA.empty_table()
    ends = np.concatenate(lengths).cumsum()
    offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
    columns = {
        "scenario_id": pa.array(np.concatenate(scenario_ids), pa.string()),
        "track_id": pa.array(np.concatenate(track_ids), pa.string()),
        "probability": pa.array(np.concatenate(probabilities), pa.float64()),
        X: pa.ListArray.from_arrays(offsets, np.concatenate(x)),
        Y: pa.ListArray.from_arrays(offsets, np.concatenate(y)),
    }
    return pa.table(columns, schema=SCHEMA)
