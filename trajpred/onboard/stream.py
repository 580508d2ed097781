"""The tracker's side of the runtime: detections as they come, ten times a second, to a forecast each time.

NumPy only. Whatever comes in, there is a forecast, or a reason for every road user that has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.errors import DataError, as_array, encode
from trajpred.forecast import Forecast
from trajpred.geometry import norm, wrap_angle
from trajpred.lane_map import LaneMap
from trajpred.onboard.forecaster import STAGES, OnboardForecaster
from trajpred.onboard.history import HistoryTable, TimeGrid
from trajpred.onboard.lane_cache import FARTHEST
from trajpred.scenario import EGO_ID, OBJECT_TYPES
from trajpred.scenario_batch import ScenarioBatch

#: Faster than this (m/s) nothing moves on a road; a track that does is another object under the same id.
FASTEST = 100.0
#: And so far (m) a track may jump at any speed: detections are noisy.
JUMP_M = 5.0


#: Ids, positions, states (heading, velocity; NaN where not given) and types, as a history takes them.
States = tuple[NDArray[np.str_], NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]]


class Detections(NamedTuple):
    """What the tracker sees at one time, ``N`` road users, in the frame of the map.

    Attributes:
        track_id: N names; position: ``[N, 2]`` metres.
        heading: ``[N]`` radians; velocity: ``[N, 2]`` m/s. Where a tracker has none (not given, not finite,
            faster than :data:`FASTEST`), they are taken from the positions so far, as in training: as
            heading the latest direction of travel in the history, 0 for who stood all through it.
        object_type: N names of :data:`~trajpred.scenario.OBJECT_TYPES`; ``vehicle`` if not given.
    """

    track_id: Sequence[str]
    position: ArrayLike
    heading: ArrayLike | None = None
    velocity: ArrayLike | None = None
    object_type: Sequence[str] | None = None


@dataclass(frozen=True)
class OnboardForecast(Forecast):
    """A forecast, and what it does not say.

    Attributes:
        timestamp_s: of the latest update that counted.
        not_predicted: why each road user that was detected, or is remembered, has no futures here; where
            targets were given, of those.
        warnings: what was odd about this update.
        stage_ms: milliseconds of each stage.
    """

    timestamp_s: float = float("nan")
    not_predicted: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    stage_ms: dict[str, float] = field(default_factory=dict)


class StreamingForecaster:
    """Keeps the history of every track, and forecasts at each update.

    Updates may come at any rate; states are kept on the time grid of the model (a step of 0.1 s), and of
    several in one step the latest counts. The grid follows a tracker whose clock jitters or drifts.

    Args:
        forecaster: a loaded bundle.
        lane_map: to start with; :meth:`set_map` changes it.
        ego_id: track around which the nearest agents and lanes are kept where there are more than the bundle
            takes; the first one detected serves while there is none of that name.
    """

    def __init__(
        self, forecaster: OnboardForecaster, lane_map: LaneMap | None = None, ego_id: str = EGO_ID
    ) -> None:
        self.forecaster, self.ego_id = forecaster, ego_id
        bundle = forecaster.bundle
        self.history = HistoryTable(bundle.history, bundle.step_s)
        self._warnings: list[str] = []
        self._grid, self._latest_s = TimeGrid(bundle.step_s), float("nan")
        self.map = LaneMap()
        if lane_map is not None:
            self.set_map(lane_map)

    def set_map(self, lane_map: LaneMap) -> None:
        """The map from now on, a new tile for instance. A damaged one is told at the next update, and the map
        before stays."""
        try:
            self.forecaster.lanes.set_map(lane_map)
            self.map = lane_map
        except DataError as error:
            self._warnings.append(f"map not taken: {error}")

    def update(
        self, timestamp_s: float, detections: Detections, targets: Sequence[str] | None = None
    ) -> OnboardForecast:
        """Take in what was detected at ``timestamp_s`` and forecast from there.

        Args:
            timestamp_s: seconds on any clock that only goes forward.
            targets: ids of the tracks to predict, by default all.

        Returns:
            Futures of the agents; of nobody (``[0, K, F, 2]``) if there is none.
        """
        warnings, self._warnings = self._warnings, []
        names = _names(detections, warnings)
        refused, clean = dict.fromkeys(names, "its update was left out"), None
        if self._advance(timestamp_s, warnings):
            clean = self._clean(names, detections, warnings)
        if clean is not None:
            states, refused = clean
            jumped = self.history.add(*states, fastest=FASTEST, jump_m=JUMP_M)
            warnings += [f"track {name} jumped: its history before is forgotten" for name in jumped]
        return self._forecast(targets, refused, warnings)

    def _advance(self, timestamp_s: float, warnings: list[str]) -> bool:
        """Move the histories on to this time; False if the update cannot count."""
        if not np.isfinite(timestamp_s):
            warnings.append(f"timestamp {timestamp_s} is no time: update left out")
            return False
        whole = self.history.length * self.history.step_s
        passed = timestamp_s - self._latest_s
        if -whole < passed < 0:
            warnings.append(f"time went back by {-passed:.3f} s: update left out")
            return False
        if abs(passed) < whole:
            self.history.advance(self._grid.advance(timestamp_s))
        else:
            if not np.isnan(passed):
                told = "went back" if passed < 0 else "was lost"
                warnings.append(f"{abs(passed):.1f} s of time {told}: histories start anew")
            self.history.clear()
            self._grid.start(timestamp_s)
        self._latest_s = timestamp_s
        return True

    def _clean(
        self, track_id: Sequence[str], given: Detections, warnings: list[str]
    ) -> tuple[States, dict[str, str]] | None:
        """What can be used, and why the others cannot; None if nothing fits."""
        names, N = np.array(track_id, np.str_), len(track_id)
        try:
            position = _shaped(given.position, (N, 2), "position")
            heading = _shaped(given.heading, (N,), "heading")
            velocity = _shaped(given.velocity, (N, 2), "velocity")
            kind = _kinds(given.object_type, N, warnings)
        except (DataError, TypeError) as error:
            warnings.append(f"detections left out: {error}")
            return None
        usable = (np.abs(position) <= FARTHEST).all(axis=1)
        refused = dict.fromkeys(names[~usable].tolist(), "its position is not finite, or beyond any map")
        known, count = np.unique(names, return_counts=True)
        if (count > 1).any():
            told = ", ".join(known[count > 1].tolist())
            warnings.append(f"detected twice in one update, the first usable one counts: {told}")
        rows = np.flatnonzero(usable)
        rows = rows[np.sort(np.unique(names[rows], return_index=True)[1])]
        velocity = np.where(norm(velocity)[:, None] <= FASTEST, velocity, np.nan)
        heading = wrap_angle(np.where(np.isfinite(heading), heading, np.nan))
        state = np.concatenate((heading[:, None], velocity), axis=1)
        return (names[rows], position[rows], state[rows], kind[rows]), refused

    def _forecast(
        self, targets: Sequence[str] | None, refused: dict[str, str], warnings: list[str]
    ) -> OnboardForecast:
        batch, asked = self._scene(), None if targets is None else [str(name) for name in targets]
        found, stage_ms = self.forecaster.empty_forecast(), dict.fromkeys(STAGES, 0.0)
        reasons = self._reasons()
        if batch is not None:
            try:
                found = self.forecaster.forecast(batch, asked, strict=False)
            except Exception as error:  # onnxruntime has a class of its own for every reason
                warnings.append(f"forecast failed: {' '.join(str(error).split())}")
                recent = self.history.track_id[self._recent()].tolist()
                reasons |= dict.fromkeys(recent, "the forecast failed")
            stage_ms = self.forecaster.stage_ms
        reasons |= refused
        if asked is not None:
            reasons = {name: reasons.get(name, "it was not seen lately") for name in asked}
        predicted = set(found.track_id.tolist())
        return OnboardForecast(
            **vars(found),
            timestamp_s=self._latest_s,
            not_predicted={name: why for name, why in reasons.items() if name not in predicted},
            warnings=tuple(warnings),
            stage_ms=dict(stage_ms),
        )

    def _scene(self) -> ScenarioBatch | None:
        """The histories as a scene around the ego; None while nobody is remembered well enough."""
        history, recent = self.history, self._recent()
        if not recent.any():
            return None
        tracks = history.tracks()
        ego = np.flatnonzero(recent & (tracks.track_id == self.ego_id))
        focal = ego if len(ego) else np.argsort(history.steps_ago(), kind="stable")[:1]
        return ScenarioBatch(
            scenario_id=np.array([f"{self._latest_s:.3f}"]),
            step_s=np.array([history.step_s]),
            num_observed=history.length,
            focal=focal,
            tracks=tracks,
            track_scene=np.zeros(len(tracks), np.int64),
            map=self.map,
            lane_scene=np.zeros(len(self.map), np.int64),
            crossing_scene=np.zeros(len(self.map.crossing_id), np.int64),
        )

    def _recent(self) -> NDArray[np.bool_]:
        """``[A]``: whether a track was seen as lately as the model wants."""
        history, memory_s = self.history, self.forecaster.bundle.features.memory_s
        recent: NDArray[np.bool_] = history.steps_ago() * history.step_s <= memory_s + history.step_s / 10
        return recent

    def _reasons(self) -> dict[str, str]:
        """Why tracks that are remembered may have no futures."""
        history, most = self.history, self.forecaster.bundle.features.max_agents
        crowd = f"it is not among the nearest {most}, the most that the bundle takes"
        names, ago = history.track_id.tolist(), (history.steps_ago() * history.step_s).tolist()
        return {
            name: crowd if recent else f"not seen for {since:.1f} s"
            for name, since, recent in zip(names, ago, self._recent().tolist(), strict=True)
        }


def _names(given: Detections, warnings: list[str]) -> list[str]:
    """The ids as text; none, with a warning, where there is no list of them."""
    try:
        return [str(name) for name in given.track_id]
    except TypeError as error:
        warnings.append(f"detections left out: no list of ids ({error})")
        return []


def _kinds(given: Sequence[str] | None, count: int, warnings: list[str]) -> NDArray[np.int8]:
    """``[N]`` indices into ``OBJECT_TYPES``; what is not known there is unknown. Raises: DataError."""
    names = ["vehicle"] * count if given is None else [str(name) for name in given]
    if len(names) != count:
        raise DataError(f"has {len(names)} entries for {count} detections", field="object_type")
    strange = sorted(set(names) - set(OBJECT_TYPES))
    if strange:
        warnings.append(f"object types not known, taken for unknown: {', '.join(strange)}")
    return encode(
        [name if name in OBJECT_TYPES else "unknown" for name in names], OBJECT_TYPES, "object_type"
    )


def _shaped(values: ArrayLike | None, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    """As an array of that shape, NaN throughout if not given. Raises: DataError."""
    if values is None:
        return np.full(shape, np.nan)
    array = as_array(values, np.float64, name)
    array = array.reshape(shape) if not array.size and 0 in shape else array
    if array.shape != shape:
        raise DataError(f"has shape {array.shape} where {shape} is expected", field=name)
    return array
