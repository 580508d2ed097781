"""Run a bundle: tracks and map in world coordinates -> futures, with NumPy and onnxruntime alone.

Scenes are localised by the functions that training uses; torch is not imported.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.forecast import Forecast
from trajpred.geometry import Pose
from trajpred.graph.agents import AgentFeatures, agent_features, focal_poses
from trajpred.onboard.bundle import GRAPHS, SIGNATURES, Bundle
from trajpred.onboard.lane_cache import LaneCache, SelectedLanes
from trajpred.scenario_batch import ScenarioBatch

#: The stages of a forecast, in order: keys of ``OnboardForecaster.stage_ms``.
STAGES = ("features", "lanes", "encoder", "decoder", "output")
#: A vehicle's processor is shared: waiting threads sleep instead of spinning and take small portions of work.
#: With the defaults of onnxruntime, two threads on a busy machine take 2 to 3 times as long as one.
THREADING = {"session.intra_op.allow_spinning": "0", "session.dynamic_block_base": "4"}


class OnboardTokens(NamedTuple):
    """The encoder's output, for planners that use features instead of futures.

    Attributes:
        track_id: ``[A]``; agent: ``[A, D]``.
        lane: ``[L]`` rows of the map: lane segments, then crossings; lane_context: ``[L, D]``.
    """

    track_id: NDArray[np.str_]
    agent: NDArray[np.float32]
    lane: NDArray[np.int64]
    lane_context: NDArray[np.float32]


@dataclass(frozen=True)
class LocalScene:
    """One scene as the input of the graphs.

    Attributes:
        origin: ``[2]`` metres, float64, map frame: the focal agent's last observed position.
        inputs: of encoder and decoder, by name (all but ``target``), padded.
    """

    scenario_id: str
    origin: NDArray[np.float64]
    agents: AgentFeatures
    lanes: SelectedLanes
    inputs: dict[str, NDArray[Any]]
    step_s: float


class OnboardForecaster:
    """Forecast whole scenes with a bundle; :class:`StreamingForecaster` adds the tracking of histories.

    Example:
        >>> forecaster = OnboardForecaster("bundle", threads=2)
        >>> forecast = forecaster.forecast(ScenarioBatch.of([scenario]))

    Args:
        bundle: folder or zip file.
        threads: of onnxruntime; 0 for one per core.
        providers: execution providers of onnxruntime, by default the CPU.

    Attributes:
        stage_ms: milliseconds that each of :data:`STAGES` took in the latest forecast.
        lanes: the map and its lane tokens, which are kept between calls.

    Raises: DataError if onnxruntime is missing, the bundle is damaged, or its graphs have other inputs.
    """

    def __init__(
        self, bundle: str | Path, *, threads: int = 0, providers: Sequence[str] = ("CPUExecutionProvider",)
    ) -> None:
        try:
            import onnxruntime  # optional: bundles are the only user
        except ImportError as error:
            raise DataError(f"bundles need onnxruntime ({error}): pip install onnxruntime") from None
        self.bundle = Bundle(bundle)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        for name, value in THREADING.items():
            options.add_session_config_entry(name, value)
        # onnxruntime keeps one memory plan per input size, without limit where sizes vary.
        options.enable_mem_pattern = self.bundle.sizes is not None
        self._sessions = {}
        for name in GRAPHS:
            content = self.bundle.read(f"{name}.onnx")
            try:
                session = onnxruntime.InferenceSession(content, options, providers=list(providers))
            except Exception as error:  # onnxruntime has its own class for every reason
                raise DataError(f"onnxruntime cannot load graph {name} ({error})", file=bundle) from None
            found = [port.name for port in session.get_inputs()]
            require(found == [port.name for port in SIGNATURES[name].inputs], name, f"has inputs {found}")
            self._sessions[name] = session
        self.lanes = LaneCache(self._encode_lanes, self.bundle.dim, self.bundle.features)
        self.stage_ms: dict[str, float] = dict.fromkeys(STAGES, 0.0)

    def __repr__(self) -> str:
        return f"OnboardForecaster({self.bundle!r})"

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

    def encode(self, scene: ScenarioBatch) -> OnboardTokens:
        """Return the encoder's tokens; arguments as for :meth:`forecast`."""
        local = self.localise(scene)
        agent, lane = self._encode(local).values()
        A, L = len(local.agents.track_id), len(local.lanes.row)
        return OnboardTokens(local.agents.track_id, agent[:A], local.lanes.row, lane[:L])

    def localise(self, scene: ScenarioBatch) -> LocalScene:
        """Compute the inputs of the graphs; lanes without a token are encoded. Raises: DataError."""
        require(len(scene) == 1, "scene", f"must be one scenario, is {len(scene)}")
        history, found = self.bundle.history, scene.num_observed
        require(found == history, "num_observed", f"is {found}, the bundle takes {history} steps")
        step_s, expected_s = float(scene.step_s[0]), self.bundle.step_s
        near = abs(step_s - expected_s) <= 0.1 * expected_s
        require(near, "step_s", f"is {step_s:g} s, the bundle takes {expected_s:g} s")
        self.stage_ms = dict.fromkeys(STAGES, 0.0)
        with self._timed("lanes"):
            self.lanes.set_map(scene.map)
        with self._timed("features"):
            origin = focal_poses(scene).position
            agents = agent_features(scene, origin, self.bundle.features)
        with self._timed("lanes"):
            lanes = self.lanes.select(agents, origin[0])
        with self._timed("features"):
            inputs = self._padded(agents, lanes) | {"step_s": np.array(step_s, np.float32)}
        return LocalScene(str(scene.scenario_id[0]), origin[0], agents, lanes, inputs, step_s)

    def run(self, graph: str, values: Mapping[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
        """Run a graph and return its outputs in order; ``values`` may hold more than its inputs."""
        feed = {port.name: values[port.name] for port in SIGNATURES[graph].inputs}
        outputs: list[NDArray[np.float32]] = self._sessions[graph].run(None, feed)
        return outputs

    def _padded(self, agents: AgentFeatures, lanes: SelectedLanes) -> dict[str, NDArray[Any]]:
        """Inputs of encoder and decoder, padded to the bundle's fixed sizes or to at least one lane."""
        A, L = self.bundle.sizes or (len(agents.track_id), max(len(lanes.row), 1))
        return {
            "history": pad(agents.history, A),
            "object_type": pad(agents.object_type, A),
            "agent_position": pad(agents.position, A),
            "agent_heading": pad(agents.heading, A),
            "agent_valid": np.arange(A) < len(agents.track_id),
            "agent_velocity": pad(agents.velocity, A),
            "agent_elapsed_s": pad(agents.elapsed_s, A),
            "lane_token": pad(lanes.token, L),
            "lane_position": pad(lanes.position, L),
            "lane_heading": pad(lanes.heading, L),
            "lane_valid": np.arange(L) < len(lanes.row),
            "lane_topology": np.pad(lanes.topology, (0, L - len(lanes.row))),
        }

    def _encode_lanes(self, **inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Compute lane tokens ``[L, D]``; the selection is never larger than the bundle's fixed size."""
        count = len(inputs["kind"])
        size = self.bundle.sizes[1] if self.bundle.sizes else count
        [tokens] = self.run("lane_encoder", {name: pad(values, size) for name, values in inputs.items()})
        return tokens[:count]

    def _encode(self, scene: LocalScene) -> dict[str, NDArray[np.float32]]:
        with self._timed("encoder"):
            outputs = self.run("encoder", scene.inputs)
        names = [port.name for port in SIGNATURES["encoder"].outputs]
        return dict(zip(names, outputs, strict=True))

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

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Add the time spent inside to ``stage_ms``."""
        start = time.perf_counter()
        yield
        self.stage_ms[stage] += (time.perf_counter() - start) * 1e3


def pad(values: NDArray[Any], size: int) -> NDArray[Any]:
    """Append zeros to ``values`` ``[N, ...]`` up to ``size`` rows."""
    missing = size - len(values)
    if not missing:
        return values
    return np.concatenate((values, np.zeros((missing, *values.shape[1:]), values.dtype)))
