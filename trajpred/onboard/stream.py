"""Encode or forecast from a tracker's detections, update by update. NumPy only.

Every update returns a result, with a reason for each road user that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError
from trajpred.forecast import Forecast
from trajpred.lane_map import LaneMap
from trajpred.onboard.detections import MAX_SPEED, MAX_TRACKS, Detections, ids_of, listed, validated
from trajpred.onboard.encoder import OnboardEncoder, OnboardTokens
from trajpred.onboard.forecaster import OnboardForecaster, Rule, joined, rule_forecast
from trajpred.onboard.history import HistoryTable, TimeGrid
from trajpred.scenario import EGO_ID
from trajpred.scenario_batch import ScenarioBatch

#: Distance (m) that a track may jump at any speed: detections are noisy.
MAX_JUMP_M = 5.0

Runtime = TypeVar("Runtime", bound=OnboardEncoder)
Result = TypeVar("Result")


@dataclass(frozen=True, repr=False)
class OnboardForecast(Forecast):
    """A forecast with its diagnostics.

    Attributes:
        timestamp_s: of the latest accepted update.
        not_predicted: reason by id, for each detected or remembered road user (or target, where targets
            were given) without futures.
        fallback: by id, why the bundle did not predict those whose futures are the fallback's.
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


class TrackStream(Generic[Runtime]):
    """Keep the history of every track; base class of the streaming runtimes.

    Updates may come at any rate. States are kept on the model's time grid (steps of 0.1 s), which follows
    the tracker's clock; of several updates in one step the latest counts.

    Args:
        runtime: an opened bundle.
        lane_map: initial map; :meth:`set_map` replaces it.
        ego_id: track at the centre of the scene, which matters where there are more agents or lanes than the
            model takes, or where the encoder uses positions in the ego's frame; the most recently detected
            track stands in while there is no such id.
    """

    def __init__(self, runtime: Runtime, lane_map: LaneMap | None = None, ego_id: str = EGO_ID) -> None:
        self.runtime, self.ego_id = runtime, ego_id
        bundle = runtime.bundle
        self.history = HistoryTable(bundle.history, bundle.step_s, MAX_TRACKS)
        self._grid = TimeGrid(bundle.step_s)
        self._warnings: list[str] = []
        self._latest_s = float("nan")
        self.map = LaneMap()
        if lane_map is not None:
            self.set_map(lane_map)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.runtime!r}, {self.map!r})"

    def set_map(self, lane_map: LaneMap) -> None:
        """Replace the map, for instance by a new tile. If it is invalid, the current one stays and the next
        update has a warning."""
        try:
            self.runtime.lanes.set_map(lane_map)
            self.map = lane_map
        except DataError as error:
            self._warnings.append(f"map rejected: {error}")

    def _add(self, timestamp_s: float, detections: Detections, warnings: list[str]) -> dict[str, str]:
        """Add the detections to the histories; return why others were rejected, by id."""
        warnings += self._warnings
        self._warnings = []
        track_id = ids_of(detections, warnings)
        rejected, accepted = dict.fromkeys(track_id, "its update was omitted"), None
        if self._advance(timestamp_s, warnings):
            accepted = validated(track_id, detections, warnings)
        if accepted is not None:
            states, rejected = accepted
            jumped = self.history.add(states, max_speed=MAX_SPEED, max_jump_m=MAX_JUMP_M)
            warnings += [f"track {name} jumped: its earlier history was dropped" for name in jumped]
        return rejected

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

    def _run(
        self, call: Callable[[ScenarioBatch], Result], empty: Result, what: str, warnings: list[str]
    ) -> tuple[Result, dict[str, str], dict[str, float]]:
        """Call the runtime with the scene of this moment; ``empty`` is the result if there is none.

        Returns the result, why each remembered track may have none, and the milliseconds of each stage.
        """
        result, reasons, scene = empty, self._reasons(), self._scene()
        if scene is None:
            return result, reasons, dict.fromkeys(self.runtime.STAGES, 0.0)
        try:
            result = call(scene)
        except Exception as error:  # onnxruntime has its own class for every reason
            warnings.append(f"{what} failed: {' '.join(str(error).split())}")
            recent = self.history.track_id[self._recent()].tolist()
            reasons |= dict.fromkeys(recent, f"the {what} failed")
        return result, reasons, dict(self.runtime.stage_ms)

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
            recorded=np.array([history.length]),
            focal=ego if len(ego) else latest,
            tracks=tracks,
            track_scene=np.zeros(len(tracks), np.int64),
            map=self.map,
            lane_scene=np.zeros(len(self.map), np.int64),
            crossing_scene=np.zeros(len(self.map.crossing_id), np.int64),
        )

    def _recent(self) -> NDArray[np.bool_]:
        """Return ``[A]`` whether each track was detected recently enough to be an agent."""
        step_s, memory_s = self.history.step_s, self.runtime.bundle.features.memory_s
        recent: NDArray[np.bool_] = self.history.steps_since_seen() * step_s <= memory_s + step_s / 10
        return recent

    def _reasons(self) -> dict[str, str]:
        """Return why each remembered track would have no result."""
        limit = self.runtime.bundle.features.max_agents
        excess = f"not among the nearest {limit} agents, the bundle's limit"
        seconds = (self.history.steps_since_seen() * self.history.step_s).tolist()
        tracks = zip(self.history.track_id.tolist(), seconds, self._recent().tolist(), strict=True)
        return {name: excess if recent else f"not seen for {ago:.1f} s" for name, ago, recent in tracks}


class StreamingForecaster(TrackStream[OnboardForecaster]):
    """Forecast at each update of a tracker.

    Args:
        runtime, lane_map, ego_id: as for :class:`TrackStream`.
        fallback: predicts the tracks that were detected recently and that the bundle does not predict: those
            beyond its number of agents, or all if it fails. By default they have no futures.
            :func:`~trajpred.predictors.baselines.lane_following` or another function of a scenario and a
            number of steps.

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
            timestamp_s: seconds, on any monotonic clock.
            targets: ids of the tracks to predict, by default all.

        Returns:
            Futures of the agents, ``[0, K, F, 2]`` if there are none. Invalid input never raises: it is
            omitted, with a warning.
        """
        warnings: list[str] = []
        rejected = self._add(timestamp_s, detections, warnings)
        names = None if targets is None else listed(targets)
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
        missing = {name: reason for name, reason in reasons.items() if name not in predicted}
        if self.fallback is not None and missing:
            forecast = self._complete(forecast, self.fallback, missing, warnings)
        completed = set(forecast.track_id.tolist()) - predicted
        return OnboardForecast(
            **vars(forecast),
            timestamp_s=self._latest_s,
            not_predicted={name: reason for name, reason in missing.items() if name not in completed},
            fallback={name: reason for name, reason in missing.items() if name in completed},
            warnings=tuple(warnings),
            stage_ms=stage_ms,
        )

    def _complete(
        self, forecast: Forecast, rule: Rule, missing: dict[str, str], warnings: list[str]
    ) -> Forecast:
        """Add the futures that ``rule`` gives to those ``missing`` that were detected recently."""
        rows = np.flatnonzero(self._recent() & np.isin(self.history.track_id, list(missing)))
        scene, modes, horizon = self._scene(), *forecast.trajectory.shape[1:3]
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
            Tokens of the agents and lanes, none if there are no agents. Invalid input never raises: it is
            omitted, with a warning.
        """
        warnings: list[str] = []
        rejected = self._add(timestamp_s, detections, warnings)
        runtime = self.runtime
        tokens, reasons, stage_ms = self._run(runtime.encode, runtime.empty_tokens(), "encoder", warnings)
        encoded = set(tokens.track_id.tolist())
        return StreamedTokens(
            **vars(tokens),
            timestamp_s=self._latest_s,
            not_encoded={name: why for name, why in (reasons | rejected).items() if name not in encoded},
            warnings=tuple(warnings),
            stage_ms=stage_ms,
        )
