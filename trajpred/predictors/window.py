"""Whether models fit the lengths of the scenarios in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trajpred.errors import DataError
from trajpred.model.checkpoint import CONFIG, read_checkpoint
from trajpred.model.pretrained import list_models
from trajpred.store.sample import SAMPLE_STORE

if TYPE_CHECKING:
    from trajpred.predictors.predictor import Predictor
    from trajpred.store import ScenarioStore


def check_window(predictor: Predictor, rows: ScenarioStore) -> None:
    """Check that the models of ``predictor`` predict scenarios of the lengths in a store.

    Raises: DataError that names the store, and the shipped models that fit it.
    """
    for one in getattr(predictor, "predictors", (predictor,)):
        window = getattr(one, "window", None)  # only models have one
        if window is None or rows.lengths in (window, (window[0], 0)):  # a test set may have no future
            continue
        own, data = (f"{horizon} steps from {history}" for history, horizon in (window, rows.lengths))
        sample = "give another store, this is the sample; " if rows.path == SAMPLE_STORE else ""
        fitting = " and ".join(name for name in list_models() if _window(name) == rows.lengths) or "none"
        advice = f"{sample}of the shipped models {fitting} can be used"
        raise DataError(f"{one.name} predicts {own}, the data have {data}: {advice}", file=rows.path)


def _window(name: str) -> tuple[int, int]:
    """Return the observed and the future steps of a shipped model."""
    config = read_checkpoint(name)[CONFIG]
    return config["history"], config["decoder"]["init_args"]["horizon"]
