"""A predictor's output for one scenario, :class:`Forecast` and :class:`Attention`; the merging of modes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.checks import as_array, listed_names, row_of
from trajpred.data.geometry import Pose, direction, namespace, norm, to_global
from trajpred.data.motion import hold_last
from trajpred.data.scenario import Scenario
from trajpred.errors import require, require_rows, require_shape

if TYPE_CHECKING:
    from torch import Tensor

#: Displacement per step (metres) below which the previous heading is kept.
STILL_STEP = 0.05
#: Tolerance within which the tracks of a joint forecast have equal mode probabilities.
SAME_PROBABILITY = 1e-6
#: Least weight of a mode in a mean; probabilities may be 0.
MIN_WEIGHT = 1e-9
#: Rounds of assignment to clusters. More rounds change mean errors over 4,007 scenes by less than a
#: millimetre.
ROUNDS = 3
#: Distance (metres, in the measure of :func:`cluster_modes`) below which :func:`join_modes` treats modes as
#: equally close.
JOINED_M = 1.0


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
            observed pose (x ahead, y left); None if the predictor has none.

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
        last_position = as_array(origin, np.float64, "origin", (A, 2))
        ahead = as_array(origin_heading, np.float64, "origin_heading", (A,))
        spread = None if scale is None else as_array(scale, np.float64, "scale")
        start = np.broadcast_to(last_position[:, None, None], (A, K, 1, 2))
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
        # Modes start at the last observed step; a track may have been last seen earlier.
        moved = np.asarray(velocity, np.float64) * np.asarray(elapsed_s, np.float64)[:, None]
        return cls.from_trajectories(
            scenario_id,
            track_id,
            to_global(path, pose.position[:, None, None], heading[:, None, None]),
            probability,
            origin=to_global(moved, pose.position, heading),
            origin_heading=heading,
            step_s=step_s,
            scale=scale,
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
            if name != "track_id":
                finite = bool(np.isfinite(values).all())
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
    def is_joint(self) -> bool:
        """Whether mode k of all tracks is one future of the scene, with one probability."""
        return bool((np.abs(self.probability - self.probability[:1]) <= SAME_PROBABILITY).all())

    def joint_mode(self, rank: int) -> Forecast:
        """Select the most probable joint mode (``rank`` 0), the second (1), …: one mode per track.

        The probability is not renormalised.

        Raises: DataError if the forecast is not joint or has no tracks, or if ``rank`` is not in 0 … K - 1.
        """
        K = self.probability.shape[1]
        require(len(self.track_id) > 0, "joint_mode", f"the forecast of {self.scenario_id} has no tracks")
        require(self.is_joint, "joint_mode", "the forecast is not joint: its tracks differ in probabilities")
        require(0 <= rank < K, "joint_mode", f"must be 0 to {K - 1}, is {rank}")
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
        """Select those of the tracks ``track_id`` that are predicted."""
        rows = self.rows(track_id)
        predicted = rows[rows >= 0]
        arrays = {name: array[predicted] for name, array in self.arrays.items()}
        return replace(self, **arrays)


class WithTruth(NamedTuple):
    """R tracks with a forecast and a true future, over the steps that both cover.

    Attributes:
        rows: ``[R]`` rows of the scenario's tracks.
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
    """Select those of the tracks ``rows`` that have a forecast and a true future.

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
            axis), by layer and head. Sums to 1 over the senders, unless a layer also attends to other tokens;
            0 for receivers without senders.
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
        return self.weight[:, :, row.argmax()].mean(axis=(0, 1))


# Merging of modes: clusters for forecasts of any predictors, smooth shares for the groups of a decoder.


def require_probabilities(values: NDArray[np.float64]) -> None:
    """Raise :class:`DataError` if an entry of ``[A, K]`` is negative or not finite."""
    usable = np.isfinite(values) & (values >= 0)
    require_rows(usable.all(axis=1), "probability", "contains a value that is negative or not finite")


def cluster_modes(
    path: NDArray[np.float64], probability: NDArray[np.float64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cluster each agent's modes by weighted k-means (Lloyd 1982).

    The distance combines the endpoints and, with four times the weight, the positions at half the horizon:
    modes differ by an acceleration or a turn, whose effect grows with the square of time. The first centre is
    the most probable mode; each further one is the mode with the largest product of probability and squared
    distance to the centres so far.

    Args:
        path: ``[A, M, F, 2]`` metres.
        probability: ``[A, M]``.
        count: the number of clusters K, at most M.

    Returns:
        ``[A, K, M]`` the share of each mode in each cluster, rows sum to 1 (a cluster without members becomes
        the mode nearest to its centre, with probability 0); ``[A, K]`` the clusters' probabilities.

    Raises: DataError if there are fewer modes than clusters, or a probability is negative or not finite.
    """
    M = path.shape[1]
    require(count <= M, "modes", f"{M} futures cannot be merged to {count}")
    require_probabilities(probability)
    end = _ends(path)
    centre = _first_centres(end, probability, count)
    for _ in range(ROUNDS):
        closest = _squared_distance(end, centre).argmin(2)
        member = np.eye(count)[closest].swapaxes(1, 2)  # [A, K, M]
        share = member * probability.clip(MIN_WEIGHT)[:, None]
        total = share.sum(2)[..., None]
        share = share / total.clip(MIN_WEIGHT)
        centre = np.where(total > 0, share @ end, centre)
    nearest = np.eye(M)[_squared_distance(centre, end).argmin(2)]
    cluster_probability = (member * probability[:, None]).sum(2)
    return np.where(total > 0, share, nearest), cluster_probability


def _first_centres(
    end: NDArray[np.float64], probability: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """Choose ``[A, K, 4]`` initial centres that are probable and far apart."""
    row = np.arange(len(end))
    centres: list[NDArray[np.float64]] = []
    value = probability
    nearest = np.full_like(probability, np.inf)
    for _ in range(count):
        centres.append(end[row, value.argmax(1)])
        distance = _squared_distance(end, centres[-1][:, None])[..., 0]
        nearest = np.minimum(nearest, distance)
        value = probability * nearest
    return np.stack(centres, 1)


def join_modes(path: Tensor, probability: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Merge each agent's modes softly into its last ``count``, by the distance of :func:`cluster_modes`.

    Mode j belongs to the last mode k with a share of 1 / (σ² + d_jk²), normalised over k, where σ is
    :data:`JOINED_M`: the memberships of fuzzy c-means with m = 2 (Bezdek 1981), kept finite. Unlike clusters,
    these shares are a smooth function of the paths, even for distant modes: nearly equal scenes have nearly
    equal modes, and a decoder learns through them.

    Takes and returns the same as :func:`cluster_modes`.
    """
    weight = probability.clamp(MIN_WEIGHT)
    end = _ends(path)
    first = path.shape[1] - count  # of the last modes
    closeness = 1 / (JOINED_M**2 + _squared_distance(end[:, :first], end[:, first:]))
    share = closeness / closeness.sum(2, keepdim=True)
    merged = (share * weight[:, :first, None]).swapaxes(1, 2)
    centres = weight[:, first:].diag_embed()
    member = namespace(path).concatenate((merged, centres), 2)
    total = member.sum(2)
    return member / total[..., None], total


def _ends(path: Any) -> Any:
    """Return the positions for computing distances: ``[A, M, F, 2]`` -> ``[A, M, 4]`` metres."""
    middle = (path.shape[2] - 1) // 2
    return namespace(path).concatenate((path[:, :, middle], path[:, :, -1] / 4), -1)


def _squared_distance(a: Any, b: Any) -> Any:
    """Compute squared distances: ``[A, M, 4]``, ``[A, K, 4]`` -> ``[A, M, K]`` square metres."""
    return ((a[:, :, None] - b[:, None]) ** 2).sum(-1)
