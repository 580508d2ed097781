"""Perturbations: functions that remove or disturb a part of a scenario's input.

The future stays as recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trajpred.data.geometry import norm
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import add_noise, correlated, derive_states
from trajpred.data.scenario import Scenario
from trajpred.data.splits import PERTURBATION, hashed_id
from trajpred.data.tracks import OBJECT_TYPES, UNKNOWN_TYPE, TrackCategory, Tracks
from trajpred.errors import require

#: Length of a gap in seconds.
GAP_S = 0.5
#: Fraction of other agents to remove.
REMOVED_FRACTION = 0.5
#: Standard deviation in metres of the noise on positions, unless the name states one.
NOISE_M = 0.2
#: Stands for the road user nearest to the focal agent in :func:`road_users`.
NEAREST = "nearest"
#: Object types that are not road users.
STATIC_TYPES = [
    OBJECT_TYPES.index(name) for name in ("static", "background", "construction", "riderless_bicycle")
]


def without_map(scenario: Scenario) -> Scenario:
    """Remove the map."""
    return replace(scenario, map=LaneMap())


def without_attribute(scenario: Scenario, attribute: str) -> Scenario:
    """Remove the lanes' ``boundaries``, ``marks`` or ``lane_types``, or the ``crossings``."""
    return replace(scenario, map=scenario.map.without([attribute]))


def without_classes(scenario: Scenario) -> Scenario:
    """Make every track's object type unknown."""
    unknown = np.full_like(scenario.tracks.object_type, UNKNOWN_TYPE)
    return replace(scenario, tracks=replace(scenario.tracks, object_type=unknown))


def derived_states(scenario: Scenario) -> Scenario:
    """Derive the observed headings and velocities from the positions, as for data without them."""
    tracks = derive_states(scenario.tracks, scenario.num_observed, scenario.step_s)
    return replace(scenario, tracks=tracks)


def short_history(scenario: Scenario, seconds: float) -> Scenario:
    """Keep the last ``seconds`` of the history, at least one step.

    Raises:
        DataError: the history is shorter.
    """
    steps = round(seconds / scenario.step_s)
    recorded = scenario.num_observed
    longest = f"must be more than 0 and at most the {recorded * scenario.step_s:g} s of the scenarios"
    require(seconds > 0 and steps <= recorded, "history", longest)
    valid = scenario.tracks.valid.copy()
    valid[:, : recorded - max(1, steps)] = False
    return _keep_states(scenario, valid)


def gap(scenario: Scenario) -> Scenario:
    """Hide all tracks for :data:`GAP_S` before the last observed step, at which they are seen again."""
    now = scenario.num_observed - 1
    first = max(0, now - round(GAP_S / scenario.step_s) + 1)
    valid = scenario.tracks.valid.copy()
    valid[:, first:now] = False
    return _keep_states(scenario, valid)


def fewer_agents(scenario: Scenario) -> Scenario:
    """Hide the history of a :data:`REMOVED_FRACTION` of the tracks that are neither focal nor scored."""
    tracks = scenario.tracks
    drawn = _random(scenario).random(len(tracks)) < REMOVED_FRACTION
    removed = (tracks.category < TrackCategory.SCORED) & drawn
    valid = tracks.valid.copy()
    valid[removed, : scenario.num_observed] = False
    return _keep_states(scenario, valid)


def noisy(scenario: Scenario, metres: float = NOISE_M) -> Scenario:
    """Add Gaussian noise with a standard deviation of ``metres`` to the observed x and y."""
    noise = metres * _normal(scenario)
    return replace(scenario, tracks=add_noise(scenario.tracks, noise))


def slowly_noisy(scenario: Scenario, metres: float = NOISE_M) -> Scenario:
    """Add Gaussian noise correlated over a second, with a standard deviation of ``metres``."""
    noise = metres * correlated(_normal(scenario), scenario.step_s)
    return replace(scenario, tracks=add_noise(scenario.tracks, noise))


def _normal(scenario: Scenario) -> NDArray[np.float64]:
    """Draw standard normal numbers ``[A, T, 2]`` for the observed steps."""
    shape = (len(scenario.tracks), scenario.num_observed, 2)
    return _random(scenario).normal(size=shape)


def without(scenario: Scenario, tracks: Sequence[str]) -> Scenario:
    """Remove the ``tracks``, given by id, from history and future.

    Raises: DataError if one is the focal track, or not in this scenario.
    """
    track_id = scenario.tracks.track_id
    for name in tracks:
        missing = f"track {name!r} is not in scenario {scenario.scenario_id}"
        require(bool((track_id == name).any()), "without", missing)
        focal = f"track {name!r} is the focal one, which cannot be removed"
        require(name != scenario.focal_id, "without", focal)
    valid = scenario.tracks.valid & ~np.isin(track_id, list(tracks))[:, None]
    return _keep_states(scenario, valid)


def road_users(scenario: Scenario, names: Sequence[str]) -> list[str]:
    """Replace ``"nearest"`` in a list of track ids by the id of the road user nearest to the focal agent.

    Distances are between centres at the last observed step. Raises: DataError if there is no other road user.
    """
    return [_nearest(scenario) if name == NEAREST else name for name in names]


def _nearest(scenario: Scenario) -> str:
    tracks = scenario.tracks
    now = scenario.num_observed - 1
    present = tracks.valid[:, now] & ~np.isin(tracks.object_type, STATIC_TYPES)
    present[scenario.focal] = False
    problem = f"scenario {scenario.scenario_id} has no road user besides the focal agent"
    require(bool(present.any()), "without", problem)
    last = scenario.last_seen[scenario.focal]
    distance = norm(tracks.position[:, now] - tracks.position[scenario.focal, last])
    nearest = np.where(present, distance, np.inf).argmin()
    return str(tracks.track_id[nearest])


#: The perturbations by name, in the order of the tables.
PERTURBATIONS: dict[str, Callable[[Scenario], Scenario]] = {
    "no-map": without_map,
    "no-boundaries": partial(without_attribute, attribute="boundaries"),
    "no-marks": partial(without_attribute, attribute="marks"),
    "no-crossings": partial(without_attribute, attribute="crossings"),
    "no-lane-types": partial(without_attribute, attribute="lane_types"),
    "no-classes": without_classes,
    "derived-states": derived_states,
    "gap": gap,
    "fewer-agents": fewer_agents,
    "noise": noisy,
    "slow-noise": slowly_noisy,
}
#: Perturbations whose name may be followed by a standard deviation in metres: ``noise:0.1``.
SIZED: dict[str, Callable[..., Scenario]] = {"noise": noisy, "slow-noise": slowly_noisy}
#: What ``all`` stands for: each perturbation, and noise combinations of two quality levels of trackers.
ALL = [*PERTURBATIONS, "noise:0.1", "noise:0.1+derived-states", "noise+derived-states"]
#: Separator between names of perturbations applied together.
TOGETHER = "+"


def perturbation(name: str) -> Callable[[Scenario], Scenario]:
    """Return a perturbation by name, or several applied together: ``noise:0.1+derived-states``.

    Raises:
        DataError: there is none with that name, or the noise is not a number of metres.
    """
    parts = [_perturbation(part) for part in name.split(TOGETHER)]

    def perturb(scenario: Scenario) -> Scenario:
        for part in parts:
            scenario = part(scenario)
        return scenario

    return perturb


def _perturbation(name: str) -> Callable[[Scenario], Scenario]:
    """Find a perturbation by name, such as ``noise`` or ``noise:0.1``. Raises: DataError."""
    base, colon, size = name.partition(":")
    names = ", ".join([*PERTURBATIONS, "all"])
    require(base in PERTURBATIONS, "perturb", f"{base!r} is not one of {names}")
    if not colon:
        return PERTURBATIONS[base]
    sized = f"{name!r}: only {' and '.join(SIZED)} have a size"
    require(base in SIZED, "perturb", sized)
    try:
        metres = float(size)
    except ValueError:
        metres = math.nan
    meant = f"{name!r}: the noise must be a number of metres, as in {base}:0.1"
    require(0 < metres < math.inf, "perturb", meant)
    return partial(SIZED[base], metres=metres)


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
    return np.random.default_rng(hashed_id(scenario.scenario_id, PERTURBATION))
