"""Signs of wrong frames and units: road users beside the lanes, velocities that contradict positions.

Counts can be added over scenarios. The limits were measured on real data with a correct map and frame.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from trajpred.data.geometry import norm
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import DRIVING_SPEED, compared_velocities, contradicting, contradiction
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES, Tracks

#: The object types of road users that drive on lanes.
DRIVERS = tuple(OBJECT_TYPES.index(name) for name in ("vehicle", "bus", "motorcyclist", "cyclist"))
#: Least share of moving road users on a lane of their direction. Argoverse 1 has 0.98, Argoverse 2 0.84 to
#: 0.93 (Sensor logs 0.90 and 0.92), nuScenes 0.88 and 1.00, NGSIM 0.98 and 1.00. With maps moved by 5 m
#: Argoverse has 0.46 to 0.61, by 10 m 0.26 to 0.34, by 55 m 0.00 to 0.18.
LEAST_ON_LANES = 0.7


class Plausibility(NamedTuple):
    """Counts of one or several scenarios.

    Attributes:
        on_lane: moving road users except pedestrians on a lane of their direction, at the last observed step.
        moving: all moving road users except pedestrians, if there is a map.
        contradicting: moving states whose velocity contradicts the positions of the last second.
        compared: all moving states.
        unplaced: road users seen within a second before and after the last observed step, but not at it: they
            are neither predicted nor scored.
        passing: all road users seen within a second before and after it.

    Example:
        >>> Plausibility(on_lane=2, moving=40).problems()[0]
        'only 5 % of 40 moving road users are on a lane of their direction: check frame and origin of the map'
    """

    on_lane: int = 0
    moving: int = 0
    contradicting: int = 0
    compared: int = 0
    unplaced: int = 0
    passing: int = 0

    @classmethod
    def of(cls, scenario: Scenario) -> Plausibility:
        """Count the states of a scenario."""
        return cls.of_tracks(scenario.tracks, scenario.num_observed - 1, scenario.step_s, scenario.map)

    @classmethod
    def of_tracks(cls, tracks: Tracks, now: int, step_s: float, lane_map: LaneMap) -> Plausibility:
        """Count the states of tracks at steps of ``step_s`` seconds; ``now`` is the last observed step."""
        velocity = tracks.velocity[:, now]
        is_moving = (
            tracks.valid[:, now] & np.isin(tracks.object_type, DRIVERS) & (norm(velocity) > DRIVING_SPEED)
        )
        rows = np.flatnonzero(is_moving)
        has_map = len(lane_map) > 0
        on_lane = lane_map.carries(tracks.position[rows, now], velocity[rows])
        velocities = compared_velocities(tracks.position, tracks.velocity, tracks.valid, step_s)
        is_odd, is_compared = contradicting(*velocities)
        moving = len(rows) if has_map else 0
        second = max(1, round(1 / step_s))
        seen_before = tracks.valid[:, max(now - second, 0) : now + 1].any(axis=1)
        passing = seen_before & tracks.valid[:, now + 1 : now + 1 + second].any(axis=1)
        unplaced = passing & ~tracks.valid[:, now]
        return cls(
            on_lane=int(on_lane.sum()),
            moving=moving,
            contradicting=int(is_odd.sum()),
            compared=int(is_compared.sum()),
            unplaced=int(unplaced.sum()),
            passing=int(passing.sum()),
        )

    @classmethod
    def sum(cls, counts: Iterable[Iterable[int]]) -> Plausibility:
        """Add up the counts of scenarios."""
        total = np.zeros(len(cls._fields), np.int64)
        for row in counts:
            total += cls(*row)
        return cls(*total.tolist())

    @property
    def lanes(self) -> str:
        """The road users on lanes, in words; "" without a map or moving road users."""
        if not self.moving:
            return ""
        return f"{self.on_lane / self.moving:.0%} of {self.moving:,} moving road users on lanes"

    @property
    def gaps(self) -> str:
        """The road users without a state at the last observed step, in words; "" if there are none."""
        if not self.unplaced:
            return ""
        return f"{self.unplaced:,} of {self.passing:,} road users without a state at the last observed step"

    def problems(self) -> list[str]:
        """Describe what is rare in real data."""
        sentences: list[str] = []
        # With few road users, up to two standard deviations less may be chance.
        chance = 2 * (LEAST_ON_LANES * (1 - LEAST_ON_LANES) * self.moving) ** 0.5
        if self.on_lane < LEAST_ON_LANES * self.moving - chance:
            share = f"only {self.on_lane / self.moving:.0%} of {self.moving:,} moving road users"
            sentences.append(f"{share} are on a lane of their direction: check frame and origin of the map")
        problem = contradiction(self.contradicting, self.compared)
        if problem:
            sentences.append(problem)
        return sentences
