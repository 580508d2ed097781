"""Rounding positions to a millimetre, as a store does, moves the futures of very few agents.

A neighbour at the edge of a radius, or two modes that are equally close, may change; bounds on single agents
would depend on the choice of scenes, so these are bounds on rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import torch

from tests.conftest import ROOT
from tests.features.scenes import moved
from trajpred.data.forecast import Forecast
from trajpred.data.geometry import norm
from trajpred.data.scenario import Scenario
from trajpred.features.scene_graph import build_batch
from trajpred.model import Forecaster
from trajpred.model.pretrained import list_models
from trajpred.predictors.predictor import future_steps
from trajpred.sources import argoverse1
from trajpred.store.format import Rows, decode, encode_batch, encode_row

#: Share of agents of which a future moves by more than 0.5 m, or a probability by more than 0.05. Measured on
#: all scenes, with any of the shipped weights: at most 0.0007 and 0.0005.
FAR_M = 0.5
LIKELY = 0.05
MAX_SHARE = 0.002


def stored(scenario: Scenario) -> Scenario:
    """Return ``scenario`` as a store reads it back."""
    rows = Rows(encode_batch([encode_row(scenario, heights=False)]))
    return decode(rows[0])


@cache
def validation(every: int) -> list[Scenario]:
    """The validation scenes of Argoverse 1 in the repository, or part of them."""
    sequences = argoverse1.discover(ROOT / "datasets" / "argoverse1")["val"]
    return [argoverse1.read(sequence) for sequence in sequences[::every]]


@torch.inference_mode()
def forecasts(model: Forecaster, scenes: Sequence[Scenario]) -> list[Forecast]:
    """Forecast as far as the scenes' own futures reach: 3 s of Argoverse 1, 6 s of the sample."""
    shortened = []
    for start in range(0, len(scenes), 16):
        part = scenes[start : start + 16]
        batch = build_batch(part, model.scene)
        for forecast, scene in zip(model.forecast(batch), part, strict=True):
            shortened.append(forecast.first(future_steps(scene)))
    return shortened


def shares(model: Forecaster, scenes: Sequence[Scenario], roundings: int = 1) -> tuple[int, float, float]:
    """Return the number of agents, and the shares whose futures and probabilities change by much.

    Scenes are shifted by different parts of a millimetre for each of the ``roundings``.
    """
    before = forecasts(model, scenes)
    far = []
    likely = []
    for i in range(roundings):
        shift = 0.37e-3 * i * np.array([1.0, 0.8])
        after = forecasts(model, [stored(moved(scene, (shift[0], shift[1]), 0.0)) for scene in scenes])
        for a, b in zip(before, after, strict=True):
            assert a.track_id.tolist() == b.track_id.tolist()
            far.append(norm(b.trajectory - shift - a.trajectory).max((1, 2)) > FAR_M)
            likely.append(np.abs(b.probability - a.probability).max(1) > LIKELY)
    changed = np.stack((np.concatenate(far), np.concatenate(likely)))
    return changed.shape[1], float(changed[0].mean()), float(changed[1].mean())


@pytest.mark.parametrize(
    ("name", "every"),
    [("argoverse-nano", 6), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in list_models())],
)
def test_rounding_to_a_millimetre_moves_the_futures_of_few_agents(
    name: str, every: int, sample_scenarios: list[Scenario]
) -> None:
    model = Forecaster.from_pretrained(name)
    for scenes, roundings in (sample_scenarios, 12 // every), (validation(every), 1):
        count, far, likely = shares(model, scenes, roundings)
        assert count > 10_000 / every
        assert far <= MAX_SHARE, (far, likely)
        assert likely <= MAX_SHARE, (far, likely)
