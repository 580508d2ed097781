"""Continue recordings with futures drawn from a model, as labels for training six seconds ahead.

Argoverse 1 records only 3 s after the observed steps. To let a model learn longer horizons, a teacher trained
on the recorded seconds continues every training scene from its end.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.forecast import Forecast
from trajpred.data.geometry import direction, norm
from trajpred.data.motion import STANDING_SPEED, causal_velocity, hold_last
from trajpred.data.registry import imported, load_module, load_plugins
from trajpred.data.resample import same_step
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import Tracks
from trajpred.errors import require
from trajpred.model.checkpoint import read_checkpoint
from trajpred.model.pretrained import locate
from trajpred.predictors.checkpoint import CheckpointPredictor, display_name

#: Road users that moved less than STATIONARY_M in the last STATIONARY_S seconds are stationary. They stay
#: exactly where they are if their drawn future ends within STAYS_M: noise is not motion.
STATIONARY_S = 1.0
STATIONARY_M = 0.5
STAYS_M = 1.5


@dataclass(frozen=True)
class Continuation:
    """Continue scenarios by ``seconds`` with a teacher; a picklable function of scenarios.

    From the last recorded step on, each visible road user gets one of the teacher's futures, drawn by
    probability. Where the teacher's horizon ends, it predicts again from there. The draw depends only on
    ``seed`` and the ids of scenario and track.

    Attributes:
        teacher: path of a checkpoint, or name of pretrained weights.
        seconds: length of the continuation, whole steps of the teacher.
        seed: seed of the drawn futures.
        modules: modules named by ``--import``, which pool processes also import.

    Example:
        >>> longer = Continuation("argoverse-nano", seconds=6.0)(scenario)
        >>> longer.num_steps - scenario.num_steps, longer.continued
        (60, 60)
    """

    teacher: str
    seconds: float
    seed: int = 0
    modules: tuple[str, ...] = field(default_factory=lambda: tuple(imported.values()))

    def __post_init__(self) -> None:
        outside = f"must be more than 0 and at most 60 seconds, is {self.seconds}"
        require(0 < self.seconds <= 60, "continue_s", outside)
        step_s = _load(self.teacher, self.modules).step_s
        steps = self.seconds / step_s
        whole = f"must be a multiple of the teacher's {step_s:g} s, is {self.seconds:g}"
        require(abs(steps - round(steps)) < 1e-6, "continue_s", whole)

    @property
    def facts(self) -> dict[str, Any]:
        """Describe the continuation, for the manifest of a store.

        Raises: DataError if the teacher is not a checkpoint.
        """
        read_checkpoint(self.teacher)
        weights = hashlib.sha256(locate(self.teacher).read_bytes()).hexdigest()
        teacher = display_name(self.teacher)
        return {"seconds": self.seconds, "teacher": teacher, "sha256": weights[:16], "seed": self.seed}

    def __call__(self, scenario: Scenario) -> Scenario:
        """Return the scenario with continued steps at its end.

        Raises: DataError if the teacher has another time step than the scenario.
        """
        predictor = _load(self.teacher, self.modules)
        step_s = predictor.step_s
        other = f"{scenario.scenario_id} has steps of {scenario.step_s:g} s, the teacher of {step_s:g} s"
        require(same_step(scenario.step_s, step_s), "teacher", other)
        steps = round(self.seconds / step_s)
        total = scenario.num_steps + steps
        result = scenario
        while result.num_steps < total:
            if not result.tracks.valid[:, -1].any():
                result = _with_tracks(result, result.tracks.window(0, total))  # nobody is left to continue
                break
            observed = replace(result, num_observed=result.num_steps, continued=0)
            [forecast] = predictor.forecast([observed])
            keys = self._keys(result)
            tracks = _extend(result, forecast, keys, total - result.num_steps)
            result = _with_tracks(result, tracks)
        return replace(result, continued=scenario.continued + steps)

    def _keys(self, scenario: Scenario) -> NDArray[np.float64]:
        """Return a random number in [0, 1) for each track ``[A]``, independent of other tracks."""
        keys = np.zeros(len(scenario.tracks))
        for row, track_id in enumerate(scenario.tracks.track_id):
            text = f"{self.seed} {scenario.scenario_id} {scenario.num_steps} {track_id}"
            digest = hashlib.blake2b(text.encode(), digest_size=6).digest()
            keys[row] = int.from_bytes(digest, "big") / 2**48
        return keys


@lru_cache(maxsize=1)
def _load(teacher: str, modules: tuple[str, ...]) -> CheckpointPredictor:
    load_plugins()  # unknown in pool processes
    for module in modules:
        load_module(module)
    return CheckpointPredictor(teacher)


def _extend(scenario: Scenario, forecast: Forecast, draw: NDArray[np.float64], most: int) -> Tracks:
    """Append up to ``most`` steps of one future of each visible track, chosen by ``draw`` ``[A]``."""
    tracks = scenario.tracks
    steps = min(most, forecast.trajectory.shape[2])
    row = forecast.rows(tracks.track_id)
    continues = tracks.valid[:, -1] & (row >= 0)
    row = row[continues]

    cumulated = forecast.probability[row].cumsum(axis=1)
    mode = (cumulated < draw[continues, None] * cumulated[:, -1:]).sum(axis=1)
    path = forecast.trajectory[row, mode, :steps]

    last = tracks.position[continues, -1]
    stays = _stationary(tracks, scenario.step_s)[continues] & (norm(path[:, -1] - last) < STAYS_M)
    path = np.where(stays[:, None, None], last[:, None], path)

    future = np.zeros((len(tracks), steps, 2))
    future[continues] = path
    position = np.concatenate((tracks.position, future), axis=1)
    is_continued = np.repeat(continues[:, None], steps, axis=1)
    valid = np.concatenate((tracks.valid, is_continued), axis=1)

    velocity = causal_velocity(position, valid, scenario.step_s)[:, -steps:]
    moves = norm(velocity) > STANDING_SPEED
    heading = hold_last(direction(velocity), moves, tracks.heading[:, -1:])  # as before while stationary
    return replace(
        tracks,
        valid=valid,
        position=position,
        heading=np.concatenate((tracks.heading, np.where(is_continued, heading, 0.0)), axis=1),
        velocity=np.concatenate((tracks.velocity, velocity), axis=1),
    )


def _stationary(tracks: Tracks, step_s: float) -> NDArray[np.bool_]:
    """Return whether each track ``[A]`` has hardly moved within the last :data:`STATIONARY_S` seconds."""
    before = max(0, tracks.valid.shape[1] - 1 - round(STATIONARY_S / step_s))
    moved = norm(tracks.position[:, -1] - tracks.position[:, before])
    return tracks.valid[:, before] & (moved < STATIONARY_M)


def _with_tracks(scenario: Scenario, tracks: Tracks) -> Scenario:
    """Return the scenario with longer tracks; steps continue at its own rate."""
    added_steps = tracks.valid.shape[1] - scenario.num_steps
    after = np.round(np.arange(1, added_steps + 1) * scenario.step_s * 1e9).astype(np.int64)
    stamps = np.concatenate((scenario.timestamps_ns, scenario.timestamps_ns[-1] + after))
    return replace(scenario, timestamps_ns=stamps, tracks=tracks)
