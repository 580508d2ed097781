"""Forecast: what is said about one scenario's future, by a model, a baseline or a predictions file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.geometry import direction, norm

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

    def rows(self, track_id: NDArray[np.str_]) -> NDArray[np.int64]:
        """For each of ``track_id`` its row here, -1 where it was not predicted."""
        row = {name: i for i, name in enumerate(self.track_id.tolist())}
        return np.array([row.get(name, -1) for name in track_id.tolist()], np.int64)


def _require_trajectory(trajectory: NDArray[np.float64]) -> None:
    planar = trajectory.ndim == 4 and trajectory.shape[3] == 2
    require(planar, "trajectory", f"must be [A, K, F, 2], is {trajectory.shape}")
