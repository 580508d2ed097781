"""A predictor's output for one scenario: :class:`Forecast` and :class:`Attention`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.checks import as_array, listed_names, row_of
from trajpred.data.geometry import Pose, direction, norm, to_global
from trajpred.data.motion import hold_last
from trajpred.data.scenario import Scenario
from trajpred.errors import require, require_shape

#: Steps shorter than this (metres) keep the previous heading.
STILL_STEP = 0.05
#: Tolerance within which the tracks of a joint forecast share their mode probabilities.
SAME_PROBABILITY = 1e-6


@dataclass(frozen=True)
class Forecast:
    """K predicted futures (modes) for each of A tracks of one scenario, in the city frame.

    Attributes:
        track_id: ``[A]`` strings.
        trajectory: ``[A, K, F, 2]`` metres; step f is ``f + 1`` steps after the last observed one.
        probability: ``[A, K]``, each row sums to 1.
        heading: ``[A, K, F]`` radians along each mode.
        speed: ``[A, K, F]`` m/s along each mode.
        scale: ``[A, K, F, 2]`` metres: Laplace scales along the axes of the track's own frame at its last
            observed pose (x ahead, y left); None if the predictor gives none.

    Example:
        >>> forecast = Forecast.from_trajectories(
        ...     "a", np.array(["car"]), np.array([[[[1.0, 0.0], [2.0, 0.0]]]]), np.array([[1.0]]),
        ...     origin=np.zeros((1, 2)), origin_heading=np.zeros(1), step_s=0.1)
        >>> forecast, forecast.speed.tolist()
        (Forecast(a: 1 tracks, 1 modes of 2 steps), [[[10.0, 10.0]]])
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
        track_id: Iterable[Any],
        trajectory: ArrayLike,
        probability: ArrayLike,
        *,
        origin: ArrayLike,
        origin_heading: ArrayLike,
        step_s: float,
        scale: ArrayLike | None = None,
    ) -> Forecast:
        """Derive the heading and speed along each mode from the steps of its trajectory.

        Args:
            origin: ``[A, 2]`` position at the last observed step, where the first step starts.
            origin_heading: ``[A]`` last observed heading, kept until the mode moves.
            step_s: seconds between steps.

        Raises: DataError if a shape or value is invalid.
        """
        path = as_array(trajectory, np.float64, "trajectory")
        _require_trajectory(path)
        A, K = path.shape[:2]
        ids = np.array(listed_names(track_id, "track_id"), np.str_)
        weight = as_array(probability, np.float64, "probability")
        here = as_array(origin, np.float64, "origin", (A, 2))
        ahead = as_array(origin_heading, np.float64, "origin_heading", (A,))
        spread = None if scale is None else as_array(scale, np.float64, "scale")
        start = np.broadcast_to(here[:, None, None], (A, K, 1, 2))
        step = np.diff(np.concatenate((start, path), axis=2), axis=2)
        length = norm(step)
        heading = hold_last(direction(step), length > STILL_STEP, ahead[:, None, None])
        speed = length / step_s
        return cls(scenario_id, ids, path, weight, heading, speed, spread).validate()

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
        """Convert a model's output, each track in its own frame, to the city frame in float64.

        Args:
            pose: ``[A, 2]`` and ``[A]``, last observed pose of each track, city frame.
            velocity: ``[A, 2]`` m/s at that pose, own frames.
            elapsed_s: ``[A]`` seconds from that pose to the last observed step.
            step_s: seconds between steps.
        """
        path = np.asarray(trajectory, np.float64)
        heading = np.asarray(pose.heading, np.float64)
        # Modes start at the last observed step; the last observation of a track may be earlier.
        elapsed = np.asarray(elapsed_s, np.float64)[:, None]
        moved = np.asarray(velocity, np.float64) * elapsed
        return cls.from_trajectories(
            scenario_id,
            track_id,
            to_global(path, pose.position[:, None, None], heading[:, None, None]),
            np.asarray(probability, np.float64),
            origin=to_global(moved, pose.position, heading),
            origin_heading=heading,
            step_s=step_s,
            scale=np.asarray(scale, np.float64),
        )

    def validate(self) -> Forecast:
        """Check shapes, finiteness and probabilities; return self. Raises: DataError."""
        _require_trajectory(self.trajectory)
        A, K, F, _ = self.trajectory.shape
        shapes = {
            "track_id": (A,),
            "trajectory": (A, K, F, 2),
            "probability": (A, K),
            "heading": (A, K, F),
            "speed": (A, K, F),
            "scale": (A, K, F, 2),
        }
        for name, values in self.arrays.items():
            require_shape(values, shapes[name], name)
            finite = name == "track_id" or bool(np.isfinite(values).all())
            require(finite, name, f"forecast of scenario {self.scenario_id} is not finite")
        require(bool((self.probability >= 0).all()), "probability", "has a negative entry")
        total = self.probability.sum(axis=1)
        require(bool(np.allclose(total, 1, atol=1e-3)), "probability", "does not sum to 1 over the modes")
        return self

    def __repr__(self) -> str:
        A, K, F, _ = self.trajectory.shape
        scales = "" if self.scale is None else ", with scales"
        return f"{type(self).__name__}({self.scenario_id}: {A} tracks, {K} modes of {F} steps{scales})"

    @property
    def arrays(self) -> dict[str, Any]:
        """The arrays by name, without the scales if there are none."""
        arrays: dict[str, Any] = {
            "track_id": self.track_id,
            "trajectory": self.trajectory,
            "probability": self.probability,
            "heading": self.heading,
            "speed": self.speed,
        }
        if self.scale is not None:
            arrays["scale"] = self.scale
        return arrays

    @property
    def has_worlds(self) -> bool:
        """Whether the forecast is joint: mode k of all tracks is one world, with one probability."""
        return bool((np.abs(self.probability - self.probability[:1]) <= SAME_PROBABILITY).all())

    def world(self, rank: int) -> Forecast:
        """Select the most probable world (``rank`` 0), the second (1), …: one mode of every track.

        The probability is not renormalised.

        Raises: DataError if the forecast is not joint or has no tracks, or if ``rank`` is not in 0 … K - 1.
        """
        K = self.probability.shape[1]
        require(len(self.track_id) > 0, "world", f"the forecast of {self.scenario_id} has no tracks")
        require(self.has_worlds, "world", "the forecast is not joint: its tracks differ in probabilities")
        require(0 <= rank < K, "world", f"must be 0 to {K - 1}, is {rank}")
        order = np.argsort(-self.probability[0], kind="stable")
        mode = order[rank : rank + 1]
        arrays = {name: array[:, mode] for name, array in self.arrays.items() if array.ndim > 1}
        return replace(self, **arrays)

    def first(self, steps: int) -> Forecast:
        """Keep the first ``steps`` future steps."""
        arrays = {name: array[:, :, :steps] for name, array in self.arrays.items() if array.ndim > 2}
        return replace(self, **arrays)

    def rows(self, track_id: NDArray[np.str_]) -> NDArray[np.int64]:
        """Return the row of each of ``track_id`` in this forecast, -1 for tracks without a prediction."""
        row = row_of(self.track_id.tolist())
        return np.array([row.get(name, -1) for name in track_id.tolist()], np.int64)

    def of(self, track_id: NDArray[np.str_]) -> Forecast:
        """Select the predicted ones among the tracks ``track_id``."""
        rows = self.rows(track_id)
        predicted = rows[rows >= 0]
        arrays = {name: array[predicted] for name, array in self.arrays.items()}
        return replace(self, **arrays)


class WithTruth(NamedTuple):
    """R tracks that were forecast and have a future, whose steps are those that both have.

    Attributes:
        rows: ``[R]`` of the scenario's tracks.
        trajectory: ``[R, K, F, 2]`` metres.
        probability: ``[R, K]``.
        truth: ``[R, F, 2]`` metres.
        valid: ``[R, F]``.
    """

    rows: NDArray[np.int64]
    trajectory: NDArray[np.float64]
    probability: NDArray[np.float64]
    truth: NDArray[np.float64]
    valid: NDArray[np.bool_]


def with_truth(
    forecast: Forecast, scenario: Scenario, rows: NDArray[np.int64], step: int | None = None
) -> WithTruth:
    """Select those of the tracks ``rows`` that have a forecast and a future.

    Args:
        step: at which the forecast was made; by default the last observed one.
    """
    tracks = scenario.tracks
    first = scenario.num_observed if step is None else step + 1
    future = slice(first, first + forecast.trajectory.shape[2])
    predicted = forecast.rows(tracks.track_id[rows])
    has_both = (predicted >= 0) & tracks.valid[rows, future].any(axis=1)
    rows = rows[has_both]
    predicted = predicted[has_both]
    truth = tracks.position[rows, future]
    return WithTruth(
        rows=rows,
        trajectory=forecast.trajectory[predicted, :, : truth.shape[1]],
        probability=forecast.probability[predicted],
        truth=truth,
        valid=tracks.valid[rows, future],
    )


def _require_trajectory(trajectory: NDArray[np.float64]) -> None:
    planar = trajectory.ndim == 4 and trajectory.shape[3] == 2
    require(planar, "trajectory", f"must be [A, K, F, 2], is {trajectory.shape}")


@dataclass(frozen=True)
class Attention:
    """Attention weights between the A agents of one scenario and from them to L lanes.

    Attributes:
        track_id: ``[A]`` strings: the receiving agents, and the first A senders.
        lane: ``[L]`` int64, the other senders: rows of the scenario's lane segments, followed by its
            crossings.
        weight: ``[layers, H, A, A + L]`` float32, attention of the receiver (third axis) to the sender (last
            axis), by layer and head. Sums to 1 over the senders, except where a layer also attends to what is
            no agent or lane; 0 for receivers without senders.
    """

    scenario_id: str
    track_id: NDArray[np.str_]
    lane: NDArray[np.int64]
    weight: NDArray[np.float32]

    def __repr__(self) -> str:
        layers, heads, A, _ = self.weight.shape
        size = f"{A} agents, {len(self.lane)} lanes, {layers} layers, {heads} heads"
        return f"Attention({self.scenario_id}: {size})"

    def shares(self, track_id: str) -> NDArray[np.float32]:
        """Average the weights ``[A + L]`` of one receiver over layers and heads.

        Raises: DataError if the track is not an agent of the model.
        """
        row = self.track_id == track_id
        problem = f"{track_id} is not an agent of the model in scenario {self.scenario_id}"
        require(bool(row.any()), "track", problem)
        mean: NDArray[np.float32] = self.weight[:, :, row.argmax()].mean(axis=(0, 1))
        return mean
