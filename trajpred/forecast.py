"""Forecast: what is said about one scenario's future, by a model, a baseline or a predictions file."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.geometry import Pose, direction, norm, to_global

#: Shorter steps than this (metres) tell no direction; the heading before them is kept.
STILL_STEP = 0.05
#: Probabilities that differ by no more are the same: tracks that share them have worlds.
SAME_PROBABILITY = 1e-6


@dataclass(frozen=True)
class Forecast:
    """K possible futures for each of A tracks of one scenario, in the city frame.

    Attributes:
        scenario_id: the scenario.
        track_id: ``[A]`` strings.
        trajectory: ``[A, K, F, 2]`` metres; step f is ``f + 1`` steps after the last observed one.
        probability: ``[A, K]``, each row sums to 1.
        heading: ``[A, K, F]`` radians along each mode.
        speed: ``[A, K, F]`` m/s along each mode.
        scale: ``[A, K, F, 2]`` metres: Laplace scales along the axes of the track's own frame at its last
            observed pose (x ahead, y left); None where the predictor gives none.
    """

    scenario_id: str
    track_id: NDArray[np.str_]
    trajectory: NDArray[np.float64]
    probability: NDArray[np.float64]
    heading: NDArray[np.float64]
    speed: NDArray[np.float64]
    scale: NDArray[np.float64] | None = None

    @classmethod
    def from_trajectories(
        cls,
        scenario_id: str,
        track_id: NDArray[np.str_],
        trajectory: NDArray[np.float64],
        probability: NDArray[np.float64],
        *,
        origin: NDArray[np.float64],
        origin_heading: NDArray[np.float64],
        step_s: float,
        scale: NDArray[np.float64] | None = None,
    ) -> Forecast:
        """Add the headings and speeds along each mode, from steps of the trajectory.

        Args:
            trajectory: ``[A, K, F, 2]``, see the class; likewise ``probability``, ``scale``.
            origin: ``[A, 2]`` last observed position, from which the first step starts.
            origin_heading: ``[A]`` last observed heading, kept until the mode moves.
            step_s: seconds between steps.
        """
        _require_trajectory(trajectory)
        A, K, F, _ = trajectory.shape
        require(origin.shape == (A, 2), "origin", f"must be [{A}, 2], is {origin.shape}")
        turned = origin_heading.shape == (A,)
        require(turned, "origin_heading", f"must be [{A}], is {origin_heading.shape}")
        start = np.broadcast_to(origin[:, None, None], (A, K, 1, 2))
        step = np.diff(np.concatenate((start, trajectory), axis=2), axis=2)
        moving = norm(step) > STILL_STEP
        latest = np.maximum.accumulate(np.where(moving, np.arange(F), -1), axis=2)
        along = np.take_along_axis(direction(step), np.maximum(latest, 0), axis=2)
        heading = np.where(latest >= 0, along, origin_heading[:, None, None])
        speed = norm(step) / step_s
        return cls(scenario_id, track_id, trajectory, probability, heading, speed, scale).validate()

    @classmethod
    def from_local(
        cls,
        scenario_id: str,
        track_id: NDArray[np.str_],
        trajectory: NDArray[np.floating],
        probability: NDArray[np.floating],
        scale: NDArray[np.floating],
        *,
        pose: Pose[np.ndarray],
        velocity: NDArray[np.floating],
        elapsed_s: NDArray[np.floating],
        step_s: float,
    ) -> Forecast:
        """From a model's own words, each track in its own frame, to the city frame in float64.

        Args:
            trajectory: ``[A, K, F, 2]`` metres, own frames; likewise ``probability``, ``scale``.
            pose: ``[A, 2]``, ``[A]`` where each track was last seen, city frame.
            velocity: ``[A, 2]`` m/s there, own frames.
            elapsed_s: ``[A]`` seconds since then at the last observed step.
        """
        path, weight, width, speed, heading = (
            np.asarray(x, np.float64) for x in (trajectory, probability, scale, velocity, pose.heading)
        )
        # The first step starts at the last observed one, which may lie after the track was last seen.
        start = to_global(speed * np.asarray(elapsed_s, np.float64)[:, None], pose.position, heading)
        return cls.from_trajectories(
            scenario_id,
            track_id,
            to_global(path, pose.position[:, None, None], heading[:, None, None]),
            weight,
            origin=start,
            origin_heading=heading,
            step_s=step_s,
            scale=width,
        )

    def validate(self) -> Forecast:
        """Check shapes, finiteness and that probabilities sum to 1; returns itself. Raises: DataError."""
        _require_trajectory(self.trajectory)
        A, K, F, _ = self.trajectory.shape
        shapes = {"track_id": (A,), "trajectory": (A, K, F, 2), "probability": (A, K)}
        shapes |= {"heading": (A, K, F), "speed": (A, K, F)} | (
            {"scale": (A, K, F, 2)} if self.scale is not None else {}
        )
        for name, shape in shapes.items():
            values = getattr(self, name)
            require(values.shape == shape, name, f"has shape {values.shape} where {shape} is expected")
            finite = name == "track_id" or bool(np.isfinite(values).all())
            require(finite, name, f"forecast of scenario {self.scenario_id} is not finite")
        require(bool((self.probability >= 0).all()), "probability", "has a negative entry")
        total = self.probability.sum(axis=1)
        require(bool(np.allclose(total, 1, atol=1e-3)), "probability", "does not sum to 1 over the modes")
        return self

    def __repr__(self) -> str:
        A, K, F, _ = self.trajectory.shape
        scales = "" if self.scale is None else ", with scales"
        return f"Forecast({self.scenario_id}: {A} tracks, {K} modes of {F} steps{scales})"

    @property
    def has_worlds(self) -> bool:
        """Whether mode k of all tracks is one future of the scene: they share their probabilities."""
        return bool((np.abs(self.probability - self.probability[:1]) <= SAME_PROBABILITY).all())

    def world(self, rank: int) -> Forecast:
        """The likeliest world (``rank`` 0), the next one (1) …: one mode of every track.

        Its probability stays what it was among the K, so that it is not 1.

        Raises: DataError if the tracks do not share their probabilities, or for a rank beyond K - 1.
        """
        K = self.probability.shape[1]
        require(
            self.has_worlds, "world", "the forecast has none: its tracks do not share their probabilities"
        )
        require(0 <= rank < K, "world", f"must be 0 to {K - 1}, is {rank}")
        mode = np.argsort(-self.probability[0], kind="stable")[rank : rank + 1]
        chosen = {"trajectory", "probability", "heading", "speed", "scale"}
        values = {name: getattr(self, name) for name in chosen}
        return replace(self, **{n: v[:, mode] for n, v in values.items() if v is not None})

    def rows(self, track_id: NDArray[np.str_]) -> NDArray[np.int64]:
        """For each of ``track_id`` its row here, -1 where it was not predicted."""
        row = {name: i for i, name in enumerate(self.track_id.tolist())}
        return np.array([row.get(name, -1) for name in track_id.tolist()], np.int64)


def _require_trajectory(trajectory: NDArray[np.float64]) -> None:
    planar = trajectory.ndim == 4 and trajectory.shape[3] == 2
    require(planar, "trajectory", f"must be [A, K, F, 2], is {trajectory.shape}")
