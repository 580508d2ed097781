"""Scenarios made worse, to see how a predictor bears it. NumPy only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.geometry import norm
from trajpred.lane_map import LaneMap
from trajpred.predictors.loading import Predictor, files_of
from trajpred.scenario import OBJECT_TYPES, Scenario, TrackCategory, Tracks

#: Seconds of history that are left, share of the others that go unseen, and metres of position noise.
HISTORY_S, UNSEEN, NOISE_M = 1.0, 0.5, 0.2
#: What :func:`road_users` takes for the id of the road user nearest to the focal agent.
NEAREST = "nearest"
#: Things, not road users.
THINGS = [OBJECT_TYPES.index(name) for name in ("static", "background", "construction", "riderless_bicycle")]


def without_map(scenario: Scenario) -> Scenario:
    """Nothing is known of the roads."""
    return replace(scenario, map=LaneMap())


def short_history(scenario: Scenario) -> Scenario:
    """Everyone comes into sight :data:`HISTORY_S` before the last observed step."""
    valid = scenario.tracks.valid.copy()
    valid[:, : max(0, scenario.num_observed - round(HISTORY_S / scenario.step_s))] = False
    return replace(scenario, tracks=_hidden(scenario.tracks, valid))


def fewer_agents(scenario: Scenario) -> Scenario:
    """A share :data:`UNSEEN` of the tracks that are neither focal nor scored is not observed."""
    tracks = scenario.tracks
    gone = (tracks.category < TrackCategory.SCORED) & (_random(scenario).random(len(tracks)) < UNSEEN)
    valid = tracks.valid.copy()
    valid[gone, : scenario.num_observed] = False
    return replace(scenario, tracks=_hidden(tracks, valid))


def noisy(scenario: Scenario) -> Scenario:
    """Observed positions are off by normal noise of :data:`NOISE_M` in x and y; all else is as measured."""
    tracks, now = scenario.tracks, scenario.num_observed
    seen = tracks.valid[:, :now, None]
    position = tracks.position.copy()
    position[:, :now] += seen * _random(scenario).normal(0, NOISE_M, position[:, :now].shape)
    return replace(scenario, tracks=replace(tracks, position=position))


def without(scenario: Scenario, tracks: Sequence[str]) -> Scenario:
    """``scenario`` as if the ``tracks``, by id, had never been there: nothing else changes.

    Raises: DataError if one is the focal track, or not of this scenario.
    """
    known = scenario.tracks.track_id
    for name in tracks:
        where = f"track {name!r}"
        require(bool((known == name).any()), "without", f"{where} is not in scenario {scenario.scenario_id}")
        require(name != scenario.focal_id, "without", f"{where} is the focal one: nothing would be predicted")
    valid = scenario.tracks.valid & ~np.isin(known, list(tracks))[:, None]
    return replace(scenario, tracks=_hidden(scenario.tracks, valid))


def road_users(scenario: Scenario, names: Sequence[str]) -> list[str]:
    """The ids ``names``, with for ``"nearest"`` the road user nearest to the focal agent when last observed.

    Raises: DataError if there is nobody to be the nearest.
    """
    return [_nearest(scenario) if name == NEAREST else name for name in names]


def _nearest(scenario: Scenario) -> str:
    """By the distance of centres at the last observed step; things that nobody moves do not count."""
    tracks, now = scenario.tracks, scenario.num_observed - 1
    present = tracks.valid[:, now] & ~np.isin(tracks.object_type, THINGS)
    present[scenario.focal] = False
    require(bool(present.any()), "without", f"nobody is near the focal agent of {scenario.scenario_id}")
    seen = np.flatnonzero(tracks.valid[scenario.focal, : now + 1])[-1]
    gap = norm(tracks.position[:, now] - tracks.position[scenario.focal, seen])
    return str(tracks.track_id[np.where(present, gap, np.inf).argmin()])


#: By the name that the tool takes.
PERTURBATIONS: dict[str, Callable[[Scenario], Scenario]] = {
    "no-map": without_map,
    "short-history": short_history,
    "fewer-agents": fewer_agents,
    "noise": noisy,
}


class PerturbedPredictor:
    """``predictor``, which sees every scenario made worse; the same scenario always in the same way."""

    def __init__(self, predictor: Predictor, perturbation: str) -> None:
        self.predictor, self.worse = predictor, PERTURBATIONS[perturbation]
        self.name, self.training = f"{predictor.name}, {perturbation}", predictor.training
        self.joint = getattr(predictor, "joint", False)
        self.how = ", ".join(filter(None, (getattr(predictor, "how", ""), perturbation)))

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return self.predictor([self.worse(scenario) for scenario in scenarios])


def perturbed(predictor: Predictor, names: Sequence[str] | str | None) -> list[PerturbedPredictor]:
    """``predictor`` under the named perturbations, or under all. Raises: DataError about an unknown name."""
    asked = [names] if isinstance(names, str) else names or []
    for name in asked:
        known = ", ".join([*PERTURBATIONS, "all"])
        require(name in PERTURBATIONS or name == "all", "perturb", f"{name!r} is none of {known}")
        require(
            not files_of(predictor), "perturb", "is for what sees the scenarios, not for predictions files"
        )
    return [PerturbedPredictor(predictor, n) for n in PERTURBATIONS if n in asked or "all" in asked]


def _hidden(tracks: Tracks, valid: NDArray[np.bool_]) -> Tracks:
    """``tracks`` of which only ``valid`` states are known: the others are zero, who has none is not there."""
    known = {"position": valid[..., None], "velocity": valid[..., None], "heading": valid}
    values = {name: np.where(mask, getattr(tracks, name), 0.0) for name, mask in known.items()}
    every = {f.name: getattr(tracks, f.name) for f in fields(tracks)} | values | {"valid": valid}
    return Tracks(**{name: x[valid.any(axis=1)] for name, x in every.items()})


def _random(scenario: Scenario) -> np.random.Generator:
    return np.random.default_rng(crc32(scenario.scenario_id.encode()))
