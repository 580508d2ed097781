"""Predictors that apply another one to changed scenarios: perturbed, or as they were seen earlier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.geometry import norm
from trajpred.lane_map import LaneMap
from trajpred.predictors.predictions_file import predictions_files
from trajpred.predictors.predictor import Predictor
from trajpred.scenario import OBJECT_TYPES, Scenario, TrackCategory, Tracks

#: Length of a gap in seconds, share of the other agents removed, standard deviation of position noise in
#: metres.
GAP_S, REMOVED_SHARE, NOISE_M = 0.5, 0.5, 0.2
#: In :func:`road_users`, stands for the road user nearest to the focal agent.
NEAREST = "nearest"
#: Object types that are not road users.
STATIC_TYPES = [
    OBJECT_TYPES.index(name) for name in ("static", "background", "construction", "riderless_bicycle")
]


def without_map(scenario: Scenario) -> Scenario:
    """Remove the map."""
    return replace(scenario, map=LaneMap())


def short_history(scenario: Scenario, seconds: float) -> Scenario:
    """Keep the last ``seconds`` of the history, at least one step. Raises: DataError if it is shorter."""
    steps, recorded = round(seconds / scenario.step_s), scenario.num_observed
    longest = f"must be more than 0 and at most the {recorded * scenario.step_s:g} s of the scenarios"
    require(seconds > 0 and steps <= recorded, "history", longest)
    valid = scenario.tracks.valid.copy()
    valid[:, : recorded - max(1, steps)] = False
    return _keep_states(scenario, valid)


def gap(scenario: Scenario) -> Scenario:
    """Hide all tracks for :data:`GAP_S` before the last observed step, at which they are seen again."""
    valid, now = scenario.tracks.valid.copy(), scenario.num_observed - 1
    valid[:, max(0, now - round(GAP_S / scenario.step_s) + 1) : now] = False
    return _keep_states(scenario, valid)


def fewer_agents(scenario: Scenario) -> Scenario:
    """Hide the history of a random :data:`REMOVED_SHARE` of the tracks that are neither focal nor scored."""
    tracks = scenario.tracks
    gone = (tracks.category < TrackCategory.SCORED) & (_random(scenario).random(len(tracks)) < REMOVED_SHARE)
    valid = tracks.valid.copy()
    valid[gone, : scenario.num_observed] = False
    return _keep_states(scenario, valid)


def noisy(scenario: Scenario) -> Scenario:
    """Add normal noise of :data:`NOISE_M` to the observed x and y."""
    tracks, now = scenario.tracks, scenario.num_observed
    seen = tracks.valid[:, :now, None]
    position = tracks.position.copy()
    position[:, :now] += seen * _random(scenario).normal(0, NOISE_M, position[:, :now].shape)
    return replace(scenario, tracks=replace(tracks, position=position))


def without(scenario: Scenario, tracks: Sequence[str]) -> Scenario:
    """Remove the ``tracks``, given by id, from history and future.

    Raises: DataError if one is the focal track, or not in this scenario.
    """
    known = scenario.tracks.track_id
    for name in tracks:
        missing = f"track {name!r} is not in scenario {scenario.scenario_id}"
        require(bool((known == name).any()), "without", missing)
        focal = f"track {name!r} is the focal one, which cannot be removed"
        require(name != scenario.focal_id, "without", focal)
    valid = scenario.tracks.valid & ~np.isin(known, list(tracks))[:, None]
    return _keep_states(scenario, valid)


def road_users(scenario: Scenario, names: Sequence[str]) -> list[str]:
    """Replace ``"nearest"`` in a list of track ids by the id of the road user nearest to the focal agent.

    Distances are those of centres at the last observed step. Raises: DataError if there is no other one.
    """
    return [_nearest(scenario) if name == NEAREST else name for name in names]


def _nearest(scenario: Scenario) -> str:
    tracks, now = scenario.tracks, scenario.num_observed - 1
    present = tracks.valid[:, now] & ~np.isin(tracks.object_type, STATIC_TYPES)
    present[scenario.focal] = False
    problem = f"scenario {scenario.scenario_id} has no road user besides the focal agent"
    require(bool(present.any()), "without", problem)
    last = np.flatnonzero(tracks.valid[scenario.focal, : now + 1])[-1]
    gap = norm(tracks.position[:, now] - tracks.position[scenario.focal, last])
    return str(tracks.track_id[np.where(present, gap, np.inf).argmin()])


#: The perturbations by name.
PERTURBATIONS: dict[str, Callable[[Scenario], Scenario]] = {
    "no-map": without_map,
    "gap": gap,
    "fewer-agents": fewer_agents,
    "noise": noisy,
}


class DerivedPredictor(Predictor):
    """A predictor that uses another one in its own way, and is described as that one."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor, self.name, self.training = predictor, predictor.name, predictor.training
        self.joint, self.how, self.forks = predictor.joint, predictor.how, predictor.forks

    @property
    def members(self) -> tuple[Predictor, ...]:
        return self.predictor.members


class PerturbedPredictor(DerivedPredictor):
    """A predictor applied to perturbed scenarios; a scenario is always perturbed in the same way.

    Example:
        >>> noisy = PerturbedPredictor(load_predictor("argoverse-nano"), "noise")
    """

    def __init__(
        self, predictor: Predictor, name: str, perturb: Callable[[Scenario], Scenario] | None = None
    ) -> None:
        super().__init__(predictor)
        self.perturb, self.name = perturb or PERTURBATIONS[name], f"{predictor.name}, {name}"
        self.how = ", ".join(filter(None, (predictor.how, name)))

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return self.predictor([self.perturb(scenario) for scenario in scenarios])


def perturbed(
    predictor: Predictor, names: Sequence[str] | str | None, history: Sequence[float] | None = None
) -> list[PerturbedPredictor]:
    """Return ``predictor`` under each of the named perturbations, or ``all``, and with less ``history``.

    Raises: DataError.
    """
    asked = [names] if isinstance(names, str) else names or []
    for name in asked:
        known = ", ".join([*PERTURBATIONS, "all"])
        require(name in PERTURBATIONS or name == "all", "perturb", f"{name!r} is none of {known}")
    fixed = "scenarios cannot be changed for predictions files, which are fixed"
    require(not (asked or history) or not predictions_files(predictor), "perturb", fixed)
    found = [PerturbedPredictor(predictor, n) for n in PERTURBATIONS if n in asked or "all" in asked]
    for seconds in history or []:
        less = partial(short_history, seconds=seconds)
        found.append(PerturbedPredictor(predictor, f"history of {seconds:g} s", less))
    return found


def _keep_states(scenario: Scenario, valid: NDArray[np.bool_]) -> Scenario:
    """Keep the ``valid`` states and the focal track's last observed one; others are zero.

    Tracks without a state are omitted.
    """
    valid[scenario.focal, scenario.last_seen[scenario.focal]] = True
    known = {"position": valid[..., None], "velocity": valid[..., None], "heading": valid}
    values = {name: np.where(mask, getattr(scenario.tracks, name), 0.0) for name, mask in known.items()}
    every = vars(scenario.tracks) | values | {"valid": valid}
    return replace(scenario, tracks=Tracks(**{name: x[valid.any(axis=1)] for name, x in every.items()}))


def _random(scenario: Scenario) -> np.random.Generator:
    return np.random.default_rng(crc32(scenario.scenario_id.encode()))


@dataclass(frozen=True, repr=False)
class StreamedForecast(Forecast):
    """A forecast with those that were made earlier.

    Attributes:
        earlier: by the number of steps, the forecast made so much earlier; empty where the focal track was
            not yet observed at the earliest update.
    """

    earlier: dict[int, Forecast] = field(default_factory=dict)


class StreamedPredictor(DerivedPredictor):
    """A predictor that also forecasts each scenario as it was seen at earlier updates, independently.

    Args:
        predictor: a model, a baseline or an ensemble.
        every_s: seconds between updates, rounded to whole steps.
        updates: their number; the last is at the last observed step.

    Raises: DataError of predictions files, which contain one update only.

    Example:
        >>> streamed = StreamedPredictor(load_predictor("constant_velocity"), every_s=0.5, updates=3)
        >>> [*streamed([scenario])[0].earlier]
        [10, 5]
    """

    def __init__(self, predictor: Predictor, every_s: float = 0.5, updates: int = 3) -> None:
        fixed = "needs a model or a baseline: a predictions file contains one update only"
        require(not predictions_files(predictor), "streaming", fixed)
        require(updates > 1, "updates", "must be 2 or more")
        require(every_s > 0, "every_s", "must be positive")
        super().__init__(predictor)
        self.every_s, self.updates = every_s, updates

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        found = [StreamedForecast(one.scenario_id, **one.arrays) for one in self.predictor(scenarios)]
        every = [self._steps(one) for one in scenarios]
        oldest = self.updates - 1
        known = [one.num_observed - step * oldest for one, step in zip(scenarios, every, strict=True)]
        seen = [i for i, one in enumerate(scenarios) if one.tracks.last_seen(known[i])[one.focal] >= 0]
        for update in range(oldest, 0, -1):
            forecasts = self.predictor([scenarios[i].earlier(update * every[i]) for i in seen])
            for i, forecast in zip(seen, forecasts, strict=True):
                found[i].earlier[update * every[i]] = forecast
        return list[Forecast](found)

    def _steps(self, scenario: Scenario) -> int:
        """Return the number of steps between updates."""
        steps, known = round(self.every_s / scenario.step_s), scenario.num_observed
        require(steps > 0, "every_s", f"must be at least a step of {scenario.step_s:g} s")
        require(self.updates <= known, "updates", f"must be at most {known}, the number of observed steps")
        longest = f"{round((known - 1) // (self.updates - 1) * scenario.step_s, 2):g} s"
        problem = f"must be at most {longest} for {self.updates} updates within the {known} observed steps"
        require(steps * (self.updates - 1) < known, "every_s", problem)
        return steps
