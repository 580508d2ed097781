"""Forecast from a tracker's detections, update by update. NumPy only.

Every update returns a forecast, with a reason for each road user that has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.errors import MAX_NAME, DataError, as_array, encode, is_name, quoted, require, shortened
from trajpred.forecast import Forecast
from trajpred.geometry import norm, wrap_angle
from trajpred.lane_map import LaneMap
from trajpred.onboard.forecaster import STAGES, OnboardForecaster
from trajpred.onboard.history import HistoryTable, States, TimeGrid
from trajpred.onboard.lane_cache import MAX_COORDINATE
from trajpred.scenario import EGO_ID, OBJECT_TYPES
from trajpred.scenario_batch import ScenarioBatch

#: Fastest road user (m/s). A track that moves faster is another object under the same id.
MAX_SPEED = 100.0
#: Distance (m) that a track may jump at any speed: detections are noisy.
MAX_JUMP_M = 5.0
#: Number of tracks in an update, and of tracks remembered: those not seen for longest are forgotten first.
MAX_TRACKS = 2_000


class Detections(NamedTuple):
    """Detections of ``N`` road users at one time, in the frame of the map.

    Attributes:
        track_id: N ids; position: ``[N, 2]`` metres.
        heading: ``[N]`` radians; velocity: ``[N, 2]`` m/s. Where missing, not finite or faster than
            :data:`MAX_SPEED`, they are derived from the positions so far, as in training: the heading is the
            latest direction of travel in the history, 0 for tracks that never moved in it.
        object_type: N names of :data:`~trajpred.scenario.OBJECT_TYPES`, by default ``vehicle``.
    """

    track_id: Sequence[str]
    position: ArrayLike
    heading: ArrayLike | None = None
    velocity: ArrayLike | None = None
    object_type: Sequence[str] | None = None


@dataclass(frozen=True, repr=False)
class OnboardForecast(Forecast):
    """A forecast with its diagnostics.

    Attributes:
        timestamp_s: of the latest accepted update.
        not_predicted: reason by id, for each detected or remembered road user (or target, where targets
            were given) without futures.
        warnings: problems of this update.
        stage_ms: milliseconds of each stage.
    """

    timestamp_s: float = float("nan")
    not_predicted: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    stage_ms: dict[str, float] = field(default_factory=dict)


class StreamingForecaster:
    """Keep the history of every track and forecast at each update.

    Updates may come at any rate. States are kept on the model's time grid (steps of 0.1 s), which follows
    the tracker's clock; of several updates in one step the latest counts.

    Example:
        >>> stream = StreamingForecaster(OnboardForecaster("bundle"), lane_map)
        >>> forecast = stream.update(12.3, Detections(["car 7"], [[4.0, 7.5]]))

    Args:
        forecaster: an opened bundle.
        lane_map: initial map; :meth:`set_map` replaces it.
        ego_id: track at the centre of the scene, which matters where there are more agents or lanes than the
            model takes; the most recently detected track stands in while there is no such id.
    """

    def __init__(
        self, forecaster: OnboardForecaster, lane_map: LaneMap | None = None, ego_id: str = EGO_ID
    ) -> None:
        self.forecaster, self.ego_id = forecaster, ego_id
        bundle = forecaster.bundle
        self.history = HistoryTable(bundle.history, bundle.step_s, MAX_TRACKS)
        self._grid = TimeGrid(bundle.step_s)
        self._warnings: list[str] = []
        self._latest_s = float("nan")
        self.map = LaneMap()
        if lane_map is not None:
            self.set_map(lane_map)

    def __repr__(self) -> str:
        return f"StreamingForecaster({self.forecaster!r}, {self.map!r})"

    def set_map(self, lane_map: LaneMap) -> None:
        """Replace the map, for instance by a new tile. If it is invalid, the current one stays and the next
        update has a warning."""
        try:
            self.forecaster.lanes.set_map(lane_map)
            self.map = lane_map
        except DataError as error:
            self._warnings.append(f"map rejected: {error}")

    def update(
        self, timestamp_s: float, detections: Detections, targets: Sequence[str] | None = None
    ) -> OnboardForecast:
        """Add the detections at ``timestamp_s`` and forecast from there.

        Args:
            timestamp_s: seconds, on any monotonic clock.
            targets: ids of the tracks to predict, by default all.

        Returns:
            Futures of the agents, ``[0, K, F, 2]`` if there are none. Invalid input never raises: it is
            omitted, with a warning.
        """
        warnings, self._warnings = self._warnings, []
        track_id = _ids(detections, warnings)
        rejected, accepted = dict.fromkeys(track_id, "its update was omitted"), None
        if self._advance(timestamp_s, warnings):
            accepted = _validated(track_id, detections, warnings)
        if accepted is not None:
            states, rejected = accepted
            jumped = self.history.add(states, max_speed=MAX_SPEED, max_jump_m=MAX_JUMP_M)
            warnings += [f"track {name} jumped: its earlier history was dropped" for name in jumped]
        return self._forecast(targets, rejected, warnings)

    def _advance(self, timestamp_s: float, warnings: list[str]) -> bool:
        """Advance the histories to ``timestamp_s``; return False if the update has to be omitted."""
        if not np.isfinite(timestamp_s):
            warnings.append(f"timestamp {timestamp_s} is not finite: update omitted")
            return False
        memory_s = self.history.length * self.history.step_s
        passed = timestamp_s - self._latest_s
        if -memory_s < passed < 0:
            warnings.append(f"time went back by {-passed:.3f} s: update omitted")
            return False
        if abs(passed) < memory_s:
            self.history.advance(self._grid.advance(timestamp_s))
        else:
            if not np.isnan(passed):
                change = "time went back by" if passed < 0 else "no update for"
                warnings.append(f"{change} {abs(passed):.1f} s: histories were reset")
            self.history.clear()
            self._grid.start(timestamp_s)
        self._latest_s = timestamp_s
        return True

    def _forecast(
        self, targets: Sequence[str] | None, rejected: dict[str, str], warnings: list[str]
    ) -> OnboardForecast:
        target_ids = None if targets is None else [str(name) for name in targets]
        forecast, stage_ms = self.forecaster.empty_forecast(), dict.fromkeys(STAGES, 0.0)
        reasons = self._reasons()
        scene = self._scene()
        if scene is not None:
            try:
                forecast = self.forecaster.forecast(scene, target_ids, strict=False)
            except Exception as error:  # onnxruntime has its own class for every reason
                warnings.append(f"forecast failed: {' '.join(str(error).split())}")
                recent = self.history.track_id[self._recent()].tolist()
                reasons |= dict.fromkeys(recent, "the forecast failed")
            stage_ms = self.forecaster.stage_ms
        reasons |= rejected
        if target_ids is not None:
            reasons = {name: reasons.get(name, "not detected recently") for name in target_ids}
        predicted = set(forecast.track_id.tolist())
        return OnboardForecast(
            **vars(forecast),
            timestamp_s=self._latest_s,
            not_predicted={name: reason for name, reason in reasons.items() if name not in predicted},
            warnings=tuple(warnings),
            stage_ms=dict(stage_ms),
        )

    def _scene(self) -> ScenarioBatch | None:
        """Return the histories as a scene around the ego, or None if no track is recent."""
        history, recent = self.history, self._recent()
        if not recent.any():
            return None
        tracks = history.tracks()
        ego = np.flatnonzero(recent & (tracks.track_id == self.ego_id))
        latest = np.argsort(history.steps_since_seen(), kind="stable")[:1]
        return ScenarioBatch(
            scenario_id=np.array([f"{self._latest_s:.3f}"]),
            step_s=np.array([self._grid.measured_step_s]),
            num_observed=history.length,
            focal=ego if len(ego) else latest,
            tracks=tracks,
            track_scene=np.zeros(len(tracks), np.int64),
            map=self.map,
            lane_scene=np.zeros(len(self.map), np.int64),
            crossing_scene=np.zeros(len(self.map.crossing_id), np.int64),
        )

    def _recent(self) -> NDArray[np.bool_]:
        """Return ``[A]`` whether each track was detected recently enough to be an agent."""
        step_s, memory_s = self.history.step_s, self.forecaster.bundle.features.memory_s
        recent: NDArray[np.bool_] = self.history.steps_since_seen() * step_s <= memory_s + step_s / 10
        return recent

    def _reasons(self) -> dict[str, str]:
        """Return why each remembered track would have no futures."""
        limit = self.forecaster.bundle.features.max_agents
        excess = f"not among the nearest {limit} agents, the bundle's limit"
        seconds = (self.history.steps_since_seen() * self.history.step_s).tolist()
        tracks = zip(self.history.track_id.tolist(), seconds, self._recent().tolist(), strict=True)
        return {name: excess if recent else f"not seen for {ago:.1f} s" for name, ago, recent in tracks}


def _ids(detections: Detections, warnings: list[str]) -> list[str]:
    """Return the ids as text, or none with a warning if they are not a list."""
    try:
        return [str(name) for name in detections.track_id]
    except TypeError as error:
        warnings.append(f"detections omitted: track_id is not a list ({error})")
        return []


def _validated(
    ids: list[str], detections: Detections, warnings: list[str]
) -> tuple[States, dict[str, str]] | None:
    """Return the usable states and why the others are not, or None if the shapes do not fit."""
    N = len(ids)
    try:
        require(N <= MAX_TRACKS, "track_id", f"has {N:,} entries, more than {MAX_TRACKS:,}")
        position = _shaped(detections.position, (N, 2), "position")
        heading = _shaped(detections.heading, (N,), "heading")
        velocity = _shaped(detections.velocity, (N, 2), "velocity")
        object_type = _object_types(detections.object_type, N, warnings)
    except (DataError, TypeError) as error:
        warnings.append(f"detections omitted: {error}")
        return None
    track_id = np.array([name if is_name(name) else "" for name in ids], np.str_)
    near, named = (np.abs(position) <= MAX_COORDINATE).all(axis=1), track_id != ""
    far, nameless = (
        f"its position is not finite or beyond {MAX_COORDINATE:g} m",
        f"its id is not 1 to {MAX_NAME} printable characters",
    )
    usable = near & named
    rejected = {ids[row]: far if named[row] else nameless for row in np.flatnonzero(~usable)}
    unique, count = np.unique(track_id[named], return_counts=True)
    if (count > 1).any():
        duplicates = shortened(", ".join(unique[count > 1].tolist()))
        warnings.append(f"duplicate ids, the first usable detection counts: {duplicates}")
    rows = np.flatnonzero(usable)
    rows = rows[np.sort(np.unique(track_id[rows], return_index=True)[1])]
    velocity = np.where(norm(velocity)[:, None] <= MAX_SPEED, velocity, np.nan)
    heading = wrap_angle(np.where(np.isfinite(heading), heading, np.nan))
    motion = np.concatenate((heading[:, None], velocity), axis=1)
    return States(track_id[rows], position[rows], motion[rows], object_type[rows]), rejected


def _object_types(names: Sequence[str] | None, count: int, warnings: list[str]) -> NDArray[np.int8]:
    """Return ``[N]`` indices into ``OBJECT_TYPES``; other names become ``unknown``. Raises: DataError."""
    names = ["vehicle"] * count if names is None else [str(name) for name in names]
    if len(names) != count:
        raise DataError(f"has {len(names)} entries for {count} detections", field="object_type")
    other = sorted(set(names) - set(OBJECT_TYPES))
    if other:
        warnings.append(f"object types treated as unknown: {shortened(', '.join(map(quoted, other)))}")
    return encode([x if x in OBJECT_TYPES else "unknown" for x in names], OBJECT_TYPES, "object_type")


def _shaped(values: ArrayLike | None, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    """Return ``values`` as an array of ``shape``, NaN if they are None. Raises: DataError."""
    if values is None:
        return np.full(shape, np.nan)
    array = as_array(values, np.float64, name)
    array = array.reshape(shape) if not array.size and 0 in shape else array
    if array.shape != shape:
        raise DataError(f"has shape {array.shape} where {shape} is expected", field=name)
    return array
