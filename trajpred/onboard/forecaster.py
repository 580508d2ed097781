"""Run a bundle: tracks and map in world coordinates -> futures, with NumPy and onnxruntime alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.geometry import Pose
from trajpred.graph.agents import AgentFeatures
from trajpred.onboard.bundle import GRAPHS
from trajpred.onboard.encoder import LocalScene, OnboardEncoder, pad
from trajpred.scenario_batch import ScenarioBatch


class OnboardForecaster(OnboardEncoder):
    """Forecast whole scenes with a bundle; :class:`StreamingForecaster` adds the tracking of histories.

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
            scene: one scenario, ``ScenarioBatch.of([scenario])``; only its observed steps are used. A map
                object that is the same as in the previous call is not processed again.
            targets: track ids to predict, by default all agents of the scene.
            strict: raise for targets that are not agents of the scene, instead of omitting them.

        Raises: DataError if history length or time step differ from the bundle's, or for such a target.
        """
        local = self.localise(scene)
        tokens = self._encode(local)
        rows = self._rows(local.agents, targets, strict)
        return self._decode(local, tokens, rows) if len(rows) else self.empty_forecast(local.scenario_id)

    def empty_forecast(self, scenario_id: str = "") -> Forecast:
        """Return a forecast of no agents, ``[0, K, F, 2]``."""
        path = np.zeros((0, self.bundle.modes, self.bundle.horizon, 2))
        track_id, per_step = np.zeros(0, np.str_), path[..., 0]
        return Forecast(scenario_id, track_id, path, path[..., 0, 0], per_step, per_step, path)

    def _rows(self, agents: AgentFeatures, targets: Sequence[str] | None, strict: bool) -> NDArray[np.int64]:
        if targets is None:
            return np.arange(len(agents.track_id))
        row = {name: i for i, name in enumerate(agents.track_id.tolist())}
        unknown = [name for name in targets if name not in row]
        require(not (strict and unknown), "targets", f"not agents of this scene: {', '.join(unknown)}")
        return np.array([row[name] for name in dict.fromkeys(targets) if name in row], np.int64)

    def _decode(
        self, scene: LocalScene, tokens: dict[str, NDArray[np.float32]], rows: NDArray[np.int64]
    ) -> Forecast:
        with self._timed("decoder"):
            target = pad(rows, self.bundle.sizes[0]) if self.bundle.sizes else rows
            outputs = self.run("decoder", scene.inputs | tokens | {"target": target})
            trajectory, scale, probability = (values[: len(rows)] for values in outputs)
        agents = scene.agents
        with self._timed("output"):
            probability = probability.astype(np.float64)
            return Forecast.from_local(
                scene.scenario_id,
                agents.track_id[rows],
                trajectory,
                probability / probability.sum(axis=1, keepdims=True),
                scale,
                pose=Pose(agents.position[rows] + scene.origin, agents.heading[rows]),
                velocity=agents.velocity[rows],
                elapsed_s=agents.elapsed_s[rows],
                step_s=scene.step_s,
            )
