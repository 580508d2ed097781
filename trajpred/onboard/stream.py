"""Encode or forecast from a tracker's detections, update by update. NumPy only.

Every update returns a result, with a reason for each road user that has none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from trajpred.data.forecast import Forecast
from trajpred.data.lane_map import LaneMap
from trajpred.data.tracks import EGO_ID
from trajpred.errors import DataError
from trajpred.onboard.detections import Detections, listed
from trajpred.onboard.encoder import OnboardEncoder, OnboardTokens
from trajpred.onboard.forecaster import OnboardForecaster, Rule, joined, rule_forecast
from trajpred.onboard.track_stream import TrackStream


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
        fallback = _without(missing, not_predicted.keys())
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
        """Add the futures that ``rule`` gives to those ``missing`` that were detected recently."""
        # No array of the ids: each would be as long as the longest.
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
    """Return the reasons of all ids but ``names``."""
    return {name: reason for name, reason in reasons.items() if name not in names}
