"""Tracks and map in world coordinates -> futures, by a bundle or a rule, with only NumPy and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.checks import row_of
from trajpred.data.forecast import Forecast
from trajpred.data.geometry import Pose
from trajpred.data.scenario import Scenario
from trajpred.errors import require
from trajpred.features.agents import AgentFeatures
from trajpred.onboard.bundle import GRAPHS
from trajpred.onboard.encoder import LocalScene, OnboardEncoder, pad

#: A function that forecasts a scenario's observed tracks for a number of steps, such as
#: :func:`trajpred.predictors.baselines.lane_following`.
Rule = Callable[[Scenario, int], Forecast]
#: Growth (m/s) of the Laplace scales ahead and to the left if a rule gives none: the mean errors of the mode
#: that ends nearest to the truth. This and :data:`CONFIDENCE_POWER` fit lane following after 3 s for all
#: agents of 500 and 400 Argoverse 1 scenes.
SCALE_RATE = np.array([0.4, 0.2])
#: Power of a rule's probabilities: lane following's most probable mode is the nearest in 41 % of cases; its
#: probability is 56 % on average, and 42 % with this power (fitted on other scenes).
CONFIDENCE_POWER = 0.6


class OnboardForecaster(OnboardEncoder):
    """Forecast whole scenes with a bundle; :class:`StreamingForecaster` also keeps histories.

    Arguments, attributes and errors are those of :class:`OnboardEncoder`; the bundle needs a decoder.

    Example:
        >>> forecaster = OnboardForecaster("bundle", threads=2)
        >>> forecast = forecaster.forecast(ScenarioBatch.of([scenario]))
    """

    STAGES: ClassVar[tuple[str, ...]] = ("features", "lanes", "encoder", "decoder", "output")
    GRAPHS: ClassVar[tuple[str, ...]] = GRAPHS

    def forecast(
        self, scene: ScenarioBatch, targets: Sequence[str] | None = None, *, strict: bool = True
    ) -> Forecast:
        """Predict the agents of a scene, in the frame of its map, float64.

        Args:
            scene: one scenario, ``ScenarioBatch.of([scenario])``; only its observed steps are used. The map
                object of the previous call is not processed again.
            targets: track ids to predict; by default all agents of the scene.
            strict: raise for targets that are not agents of the scene, instead of omitting them.

        Raises: DataError if history length or time step differ from the bundle's, or for such a target.
        """
        local = self.localise(scene)
        tokens = self._encode(local)
        rows = self._rows(local.agents, targets, strict)
        if not len(rows):
            return self.empty_forecast(local.scenario_id)
        return self._decode(local, tokens, rows)

    def empty_forecast(self, scenario_id: str = "") -> Forecast:
        """Return a forecast of no agents, ``[0, K, F, 2]``."""
        path = np.zeros((0, self.bundle.modes, self.bundle.horizon, 2))
        per_step = path[..., 0]
        return Forecast(
            scenario_id=scenario_id,
            track_id=np.zeros(0, np.str_),
            trajectory=path,
            probability=path[..., 0, 0],
            heading=per_step,
            speed=per_step,
            scale=path,
        )

    def _rows(self, agents: AgentFeatures, targets: Sequence[str] | None, strict: bool) -> NDArray[np.int64]:
        """Return the rows of the targets among the agents, see :meth:`forecast`."""
        if targets is None:
            return np.arange(len(agents.track_id))
        row_of_agent = row_of(agents.track_id.tolist())
        rows: list[int] = []
        unknown: list[str] = []
        for name in dict.fromkeys(targets):
            if name in row_of_agent:
                rows.append(row_of_agent[name])
            else:
                unknown.append(name)
        require(not (strict and unknown), "targets", f"not agents of this scene: {', '.join(unknown)}")
        return np.array(rows, np.int64)

    def _decode(
        self, scene: LocalScene, tokens: dict[str, NDArray[np.float32]], rows: NDArray[np.int64]
    ) -> Forecast:
        """Decode the agents ``rows`` into a forecast in the frame of the map."""
        with self._timed("decoder"):
            target = pad(rows, self.bundle.sizes[0]) if self.bundle.sizes else rows
            outputs = self.run("decoder", scene.inputs | tokens | {"target": target})
        trajectory, scale, probability = outputs
        agents = scene.agents
        with self._timed("output"):
            probability = probability[: len(rows)].astype(np.float64)
            return Forecast.from_local(
                scene.scenario_id,
                agents.track_id[rows],
                trajectory[: len(rows)],
                probability / probability.sum(axis=1, keepdims=True),
                scale[: len(rows)],
                pose=Pose(agents.position[rows] + scene.origin, agents.heading[rows]),
                velocity=agents.velocity[rows],
                elapsed_s=agents.elapsed_s[rows],
                step_s=scene.step_s,
            )


def rule_forecast(
    rule: Rule, scene: ScenarioBatch, rows: NDArray[np.int64], modes: int, horizon: int
) -> Forecast:
    """Forecast the tracks ``rows`` of one scene by ``rule``, as ``modes`` modes of ``horizon`` steps.

    Excess modes are dropped, least probable first; missing ones are copies of the last mode with probability
    0. Probabilities are raised to :data:`CONFIDENCE_POWER` and sum to 1.
    """
    # At least two steps: a single stamp would not define the step length.
    scene = scene.window(max(scene.num_observed, 2), 0)
    tracks = scene.tracks.take(rows)
    stamps = np.round(np.arange(scene.num_observed) * scene.step_s[0] * 1e9).astype(np.int64)
    scene_id = str(scene.scenario_id[0])
    scenario = Scenario(
        scenario_id=scene_id,
        city="",
        timestamps_ns=stamps,
        num_observed=scene.num_observed,
        focal_id=str(tracks.track_id[0]),
        tracks=tracks,
        map=scene.map,
    )
    forecast = rule(scenario, horizon)
    order = np.argsort(-forecast.probability, axis=1, kind="stable")
    missing_modes = max(0, modes - order.shape[1])
    order = np.pad(order, ((0, 0), (0, missing_modes)), mode="edge")[:, :modes]
    agent = np.arange(len(order))[:, None]
    arrays: dict[str, Any] = {}
    for name, values in forecast.arrays.items():
        if values.ndim > 1:  # all but the ids
            arrays[name] = values[agent, order]
    weight = arrays.pop("probability") ** CONFIDENCE_POWER
    weight[:, forecast.probability.shape[1] :] = 0.0
    time = np.arange(1, horizon + 1) * scene.step_s[0]
    arrays.setdefault("scale", np.broadcast_to(time[:, None] * SCALE_RATE, arrays["trajectory"].shape))
    weight = weight / weight.sum(axis=1, keepdims=True)
    return Forecast(scene_id, forecast.track_id, probability=weight, **arrays).validate()


def joined(first: Forecast, second: Forecast) -> Forecast:
    """Concatenate two forecasts with scales, of different tracks with equal numbers of modes and steps."""
    arrays: dict[str, Any] = {}
    for name, values in first.arrays.items():
        arrays[name] = np.concatenate((values, second.arrays[name]))
    return Forecast(first.scenario_id, **arrays)
