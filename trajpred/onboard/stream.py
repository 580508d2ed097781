"""Encode or forecast from a tracker's detections, update by update. NumPy only.

Every update returns a result, with a reason for each road user without one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.forecast import Forecast
from trajpred.data.lane_map import LaneMap
from trajpred.data.tracks import EGO_ID, Tracks
from trajpred.errors import DataError, quoted
from trajpred.features.agents import is_recent
from trajpred.onboard.detections import MAX_SPEED, MAX_TRACKS, Detections, ids_of, listed, validated
from trajpred.onboard.encoder import OnboardEncoder, OnboardTokens
from trajpred.onboard.forecaster import OnboardForecaster, Rule, joined, rule_forecast
from trajpred.onboard.history import SAME_UPDATE_S, HistoryTable, seconds_of

#: Distance (m) that a track may jump regardless of time: detections are noisy.
MAX_JUMP_M = 5.0
#: Seconds of uninterruptedly late updates after which the tracker's clock is assumed to have changed.
NEW_CLOCK_S = 0.5

Runtime = TypeVar("Runtime", bound=OnboardEncoder)
Result = TypeVar("Result")


class TrackStream(Generic[Runtime]):
    """Keep the history of every track; base class of the streaming runtimes.

    Updates may come at any rate. States keep their true times, and every update resamples them to the model's
    steps (of 0.1 s) up to the update, like :func:`~trajpred.data.resample.resample`.

    Args:
        runtime: an opened bundle.
        lane_map: initial map; :meth:`set_map` replaces it.
        ego_id: track at the centre of the scene, which matters if there are more agents or lanes than the
            model takes, or if the encoder uses positions in the ego's frame; without such a track, the most
            recently detected one stands in.

    Attributes:
        history: all remembered states.
        tracks: tracks detected recently enough to be agents, at the model's steps up to the latest update.
    """

    def __init__(self, runtime: Runtime, lane_map: LaneMap | None = None, ego_id: str = EGO_ID) -> None:
        self.runtime = runtime
        self.ego_id = ego_id
        bundle = runtime.bundle
        self.history = HistoryTable(bundle.history, bundle.step_s, MAX_TRACKS)
        self._warnings: list[str] = []
        self._latest_s = float("nan")
        self.tracks = self._recent_tracks()
        #: Time of the first of the latest updates if these were late.
        self._late_since_s = float("nan")
        self.map = LaneMap()
        if lane_map is not None:
            self.set_map(lane_map)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.runtime!r}, {self.map!r})"

    def set_map(self, lane_map: LaneMap) -> None:
        """Replace the map, for example by a new tile.

        If it is invalid, the current map stays, and the next update has a warning.
        """
        try:
            self.runtime.lanes.set_map(lane_map)
            self.map = lane_map
        except DataError as error:
            self._warnings.append(f"map rejected: {error}")

    def _add(self, timestamp_s: float, detections: Detections, warnings: list[str]) -> dict[str, str]:
        """Add the detections to the histories; return the reasons for rejections, by id."""
        warnings += self._warnings
        self._warnings = []
        if not isinstance(detections, Detections):
            warnings.append(f"detections omitted: they must be Detections, are {quoted(detections)}")
            detections = Detections([], [])
        track_id = ids_of(detections, warnings)
        omitted = dict.fromkeys(track_id, "its update was omitted")
        try:
            time_s = seconds_of(timestamp_s, self.history.step_s)
        except DataError as error:
            warnings.append(f"update omitted: {error}")
            return omitted
        repeated = time_s == self._latest_s
        if not self._advance(time_s, warnings):
            return omitted
        accepted = validated(track_id, detections, warnings)
        if accepted is None:
            return omitted
        states, rejected = accepted
        if repeated and self._detected_now(states.track_id):
            warnings.append("time did not advance: these detections replace those of the last update")
        known_problem = self.history.velocity_problem
        jumped = self.history.add(time_s, states, max_speed=MAX_SPEED, max_jump_m=MAX_JUMP_M)
        warnings += [f"track {name} jumped: its earlier history was dropped" for name in jumped]
        if self.history.velocity_problem != known_problem:
            warnings.append(self.history.velocity_problem)
        return rejected

    def _detected_now(self, track_id: NDArray[np.str_]) -> bool:
        """Return whether any of these tracks was detected at the latest update's time."""
        current = self.history.track_id[self._latest_s - self.history.last_seen_s() < SAME_UPDATE_S]
        return bool(np.isin(track_id, current).any())

    def _advance(self, timestamp_s: float, warnings: list[str]) -> bool:
        """Advance the histories to ``timestamp_s``; return False if the update must be ignored."""
        memory_s = self.history.memory_s
        passed = timestamp_s - self._latest_s
        is_late = -memory_s < passed < 0
        if is_late and not self._clock_changed(timestamp_s):
            warnings.append(f"time went back by {-passed:.3f} s: update omitted")
            return False
        self._late_since_s = float("nan")
        if 0 <= passed < memory_s:
            self.history.advance(timestamp_s)
        else:
            if not np.isnan(passed):
                change = "time went back by" if passed < 0 else "no update for"
                warnings.append(f"{change} {abs(passed):.1f} s: histories were reset")
            self.history.clear()
        self._latest_s = timestamp_s
        return True

    def _clock_changed(self, timestamp_s: float) -> bool:
        """Return whether updates have been late for :data:`NEW_CLOCK_S`, as after a step of the clock."""
        is_first = not timestamp_s >= self._late_since_s
        if is_first:
            self._late_since_s = timestamp_s
        return timestamp_s - self._late_since_s >= NEW_CLOCK_S

    def _run(
        self, call: Callable[[ScenarioBatch], Result], empty: Result, what: str, warnings: list[str]
    ) -> tuple[Result, dict[str, str], dict[str, float]]:
        """Call the runtime with the scene of this moment; ``empty`` is the result if there is none.

        Returns:
            The result, each track's reason for having none, and the milliseconds of each stage.
        """
        result = empty
        self.tracks = self._recent_tracks()
        reasons = self._reasons()
        scene = self._scene()
        if scene is None:
            return result, reasons, dict.fromkeys(self.runtime.STAGES, 0.0)
        try:
            result = call(scene)
        except Exception as error:  # onnxruntime has its own class for every reason
            warnings.append(f"{what} failed: {' '.join(str(error).split())}")
            reasons |= dict.fromkeys(self.tracks.track_id.tolist(), f"the {what} failed")
        return result, reasons, dict(self.runtime.stage_ms)

    def _scene(self) -> ScenarioBatch | None:
        """Return the recent tracks as a scene around the ego, or None without any."""
        tracks = self.tracks
        if not len(tracks):
            return None
        steps = tracks.valid.shape[1]
        ego = np.flatnonzero(tracks.track_id == self.ego_id)
        latest = np.argsort(-tracks.last_seen(steps), kind="stable")[:1]
        return ScenarioBatch(
            scenario_id=np.array([f"{self._latest_s:.3f}"]),
            step_s=np.array([self.history.step_s]),
            num_observed=steps,
            recorded=np.array([steps]),
            focal=ego if len(ego) else latest,
            tracks=tracks,
            track_scene=np.zeros(len(tracks), np.int64),
            map=self.map,
            lane_scene=np.zeros(len(self.map), np.int64),
            crossing_scene=np.zeros(len(self.map.crossing_id), np.int64),
        )

    def _recent_tracks(self) -> Tracks:
        """Return the tracks that were detected recently enough to be agents."""
        step_s = self.history.step_s
        memory_s = self.runtime.bundle.features.memory_s
        # A state counts for less than a step after its time.
        tracks = self.history.resampled(self._latest_s, memory_s + step_s)
        steps = tracks.valid.shape[1]
        last = tracks.last_seen(steps)
        elapsed_s = (steps - 1 - last) * step_s
        recent = (last >= 0) & is_recent(elapsed_s, step_s, memory_s)
        return tracks.take(np.flatnonzero(recent))

    def _reasons(self) -> dict[str, str]:
        """Return the reason why each track would have no result."""
        limit = self.runtime.bundle.features.max_agents
        excess = f"not among the nearest {limit} agents, the bundle's limit"
        reasons = dict.fromkeys(self.tracks.track_id.tolist(), excess)
        elapsed_s = self._latest_s - self.history.last_seen_s()
        for name, ago_s in zip(self.history.track_id.tolist(), elapsed_s.tolist(), strict=True):
            if name not in reasons:
                reasons[name] = f"not seen for {ago_s:.1f} s"
        return reasons


@dataclass(frozen=True, repr=False)
class OnboardForecast(Forecast):
    """A forecast with its diagnostics.

    Attributes:
        timestamp_s: time of the latest accepted update.
        not_predicted: reason by id, for each detected or remembered road user (or target, if given) without
            futures.
        fallback: by id, why the bundle did not predict the road users whose futures are the fallback's.
        warnings: problems of this update.
        stage_ms: milliseconds of each stage.
    """

    timestamp_s: float = float("nan")
    not_predicted: dict[str, str] = field(default_factory=dict)
    fallback: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    stage_ms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamedTokens(OnboardTokens):
    """The tokens of an update with its diagnostics.

    Attributes:
        timestamp_s, warnings, stage_ms: as in :class:`OnboardForecast`.
        not_encoded: reason by id, for each detected or remembered road user without a token.
    """

    timestamp_s: float = float("nan")
    not_encoded: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    stage_ms: dict[str, float] = field(default_factory=dict)


class StreamingForecaster(TrackStream[OnboardForecaster]):
    """Forecast at each update of a tracker.

    Args:
        runtime, lane_map, ego_id: as for :class:`TrackStream`.
        fallback: predicts recently detected tracks that the bundle does not predict: those beyond its limit
            on agents, or all if it fails. :func:`~trajpred.predictors.baselines.lane_following` or another
            function of a scenario and a number of steps. By default they have no futures.

    Example:
        >>> stream = StreamingForecaster(OnboardForecaster("bundle"), lane_map, fallback=lane_following)
        >>> forecast = stream.update(12.3, Detections(["car 7"], [[4.0, 7.5]]))
    """

    def __init__(
        self,
        runtime: OnboardForecaster,
        lane_map: LaneMap | None = None,
        ego_id: str = EGO_ID,
        fallback: Rule | None = None,
    ) -> None:
        super().__init__(runtime, lane_map, ego_id)
        self.fallback = fallback

    def update(
        self, timestamp_s: float, detections: Detections, targets: Sequence[str] | None = None
    ) -> OnboardForecast:
        """Add the detections at ``timestamp_s`` and forecast from there.

        Args:
            timestamp_s: seconds on any monotonic clock.
            targets: ids of the tracks to predict; by default all.

        Returns:
            Futures of the agents, ``[0, K, F, 2]`` if there are none. Invalid input never raises: it is
            omitted, with a warning.
        """
        warnings: list[str] = []
        rejected = self._add(timestamp_s, detections, warnings)
        names = self._targets(targets, warnings)
        forecast, reasons, stage_ms = self._run(
            lambda scene: self.runtime.forecast(scene, names, strict=False),
            self.runtime.empty_forecast(),
            "forecast",
            warnings,
        )
        reasons |= rejected
        if names is not None:
            reasons = {name: reasons.get(name, "not detected recently") for name in names}
        predicted = set(forecast.track_id.tolist())
        missing = _without(reasons, predicted)
        if self.fallback is not None and missing:
            forecast = self._complete(forecast, self.fallback, missing, warnings)
        completed = set(forecast.track_id.tolist()) - predicted
        not_predicted = _without(missing, completed)
        fallback = {name: reason for name, reason in missing.items() if name in completed}
        return OnboardForecast(
            **vars(forecast),
            timestamp_s=self._latest_s,
            not_predicted=not_predicted,
            fallback=fallback,
            warnings=tuple(warnings),
            stage_ms=stage_ms,
        )

    def _targets(self, targets: Sequence[str] | None, warnings: list[str]) -> list[str] | None:
        """Return the ids to predict, or None for all."""
        if targets is None:
            return None
        try:
            return listed(targets, "targets")
        except DataError as error:
            warnings.append(f"targets omitted, all tracks are predicted: {error}")
            return None

    def _complete(
        self, forecast: Forecast, rule: Rule, missing: dict[str, str], warnings: list[str]
    ) -> Forecast:
        """Add the futures by ``rule`` of those ``missing`` tracks that were detected recently."""
        # Not a NumPy array of ids: every entry would take the width of the longest.
        rows = np.flatnonzero([name in missing for name in self.tracks.track_id.tolist()])
        scene = self._scene()
        _, modes, horizon, _ = forecast.trajectory.shape
        if scene is None or not len(rows):
            return forecast
        try:
            return joined(forecast, rule_forecast(rule, scene, rows, modes, horizon))
        except Exception as error:  # any function may be given
            warnings.append(f"fallback failed: {' '.join(str(error).split())}")
            return forecast


class StreamingEncoder(TrackStream[OnboardEncoder]):
    """Encode at each update of a tracker; arguments as for :class:`TrackStream`.

    Example:
        >>> stream = StreamingEncoder(OnboardEncoder("bundle"), lane_map)
        >>> tokens = stream.update(12.3, Detections(["car 7"], [[4.0, 7.5]]))
        >>> tokens.agent, tokens.agent_position, tokens.lane, tokens.not_encoded
    """

    def update(self, timestamp_s: float, detections: Detections) -> StreamedTokens:
        """Add the detections at ``timestamp_s``, in seconds on any monotonic clock, and encode the scene.

        Returns:
            Tokens of the agents and lanes, none if there are no agents. Invalid input is omitted with a
            warning instead of raising.
        """
        warnings: list[str] = []
        rejected = self._add(timestamp_s, detections, warnings)
        runtime = self.runtime
        tokens, possible_reasons, stage_ms = self._run(
            runtime.encode, runtime.empty_tokens(), "encoder", warnings
        )
        encoded = set(tokens.track_id[tokens.agent_valid].tolist())
        return StreamedTokens(
            **vars(tokens),
            timestamp_s=self._latest_s,
            not_encoded=_without(possible_reasons | rejected, encoded),
            warnings=tuple(warnings),
            stage_ms=stage_ms,
        )


def _without(reasons: dict[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the reasons for all ids except ``names``."""
    return {name: reason for name, reason in reasons.items() if name not in names}
