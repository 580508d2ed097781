"""Predictors -> predictions files for the Argoverse 2 challenges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.predictors.loading import Predictor, in_batches, load_predictor
from trajpred.predictors.predictions import Written, write_predictions
from trajpred.scenario import Scenario, TrackCategory
from trajpred.store import ScenarioStore
from trajpred.store.sample import SAMPLE_STORE, ensure_store

Agents = Literal["focal", "scored"]


def predict(
    predictor: Predictor | str | Path,
    out: Path,
    store: Path = SAMPLE_STORE,
    split: str = "val",
    agents: Agents = "focal",
    joint: bool = False,
    batch_size: int = 16,
    limit: int | None = None,
    progress: bool = True,
) -> Written:
    """Write the futures of every scenario of a split, whether it has a labelled one or not, to a file.

    Args:
        predictor: itself (loaded with ``joint`` where that is asked), or what
            :func:`trajpred.evaluation.load_predictor` takes.
        out: the file, ``.parquet``.
        store, split: where the scenarios are; the sample is prepared if need be.
        agents: ``focal``, one track per scenario, for the single-agent challenge; or ``scored``, the focal
            and all scored ones, for the multi-agent one, which needs ``joint``.
        joint: mode k of all tracks is one world, the most probable ones of a scenario.
        batch_size: scenarios at once.
        limit: the first so many scenarios; by default all.
        progress: show a bar.

    Raises:
        DataError: no such store; or a forecast has several marginal futures for several tracks
            (see :func:`~trajpred.predictors.predictions.write_predictions`).
    """
    require(out.suffix == ".parquet", "out", f"must end in .parquet, is {out}")
    require(batch_size > 0, "batch_size", "must be positive")
    require(limit is None or limit > 0, "limit", "must be positive")
    alone = agents == "focal" or joint
    require(alone, "joint", "several tracks share their probabilities: they need joint futures, joint=true")
    forecast = load_predictor(predictor, joint) if isinstance(predictor, str | Path) else predictor
    rows = ScenarioStore(ensure_store(store), split)
    require(len(rows) > 0, "split", f"{split!r} holds no scenario")
    chosen = range(len(rows))[:limit]

    def forecasts() -> Iterator[Forecast]:
        with tqdm(total=len(chosen), unit=" scenarios", desc=out.name, disable=not progress) as bar:
            for batch in in_batches(chosen, batch_size):
                scenarios = [rows[row] for row in batch]
                for scenario, found in zip(scenarios, forecast(scenarios), strict=True):
                    yield only(found, tracks_to_predict(scenario, agents))
                bar.update(len(batch))

    return write_predictions(out, forecasts())


def tracks_to_predict(scenario: Scenario, agents: Agents) -> NDArray[np.str_]:
    """Ids of the focal track, or of the scored ones, focal included."""
    least = TrackCategory.FOCAL if agents == "focal" else TrackCategory.SCORED
    focal = scenario.tracks.track_id == scenario.focal_id
    return scenario.tracks.track_id[focal | (scenario.tracks.category >= least)]


def only(forecast: Forecast, track_id: NDArray[np.str_]) -> Forecast:
    """The forecast of these tracks alone, as far as it has them."""
    row = forecast.rows(track_id)
    of_track = {f.name: getattr(forecast, f.name) for f in fields(forecast) if f.name != "scenario_id"}
    return replace(forecast, **{k: v[row[row >= 0]] for k, v in of_track.items() if v is not None})
