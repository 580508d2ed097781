"""Models for scenarios of other lengths are rejected with what fits instead."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from trajpred.errors import DataError
from trajpred.predictors import load_ensemble, load_predictor
from trajpred.predictors.window import check_window
from trajpred.store.sample import SAMPLE_STORE


@dataclass
class Rows:
    """A store of scenarios of some lengths."""

    lengths: tuple[int, int]
    path: Path = field(default_factory=lambda: Path("mine"))


def checked(name: str, rows: Any) -> None:
    check_window(load_predictor(name), rows)


def test_a_store_of_other_lengths_is_named_with_the_shipped_models_that_fit() -> None:
    expected = (
        "^mine: argoverse2-demo predicts 60 steps from 50, the data have 30 steps from 20: "
        "of the shipped models argoverse1-small can be used$"
    )
    with pytest.raises(DataError, match=expected):
        checked("argoverse2-demo", Rows((20, 30)))
    with pytest.raises(DataError, match=r"give another store, this is the sample; of .* argoverse2-demo can"):
        checked("argoverse1-small", Rows((50, 60), SAMPLE_STORE))
    with pytest.raises(DataError, match="argoverse1-small predicts"):
        check_window(load_ensemble(["constant_velocity", "argoverse1-small"]), Rows((50, 60)))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="of the shipped models none can be used"):
        checked("argoverse2-demo", Rows((3, 4)))


@pytest.mark.parametrize("lengths", [(50, 60), (50, 0)])
def test_a_store_of_the_same_lengths_or_without_futures_fits(lengths: tuple[int, int]) -> None:
    checked("argoverse2-demo", Rows(lengths))
    checked("constant_velocity", Rows((3, 4)))
