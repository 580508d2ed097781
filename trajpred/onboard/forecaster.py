"""The vehicle's side: tracks and map in world coordinates -> futures, with NumPy and onnxruntime alone.

Localisation is done by the very functions that training uses. torch is not imported.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.forecast import Forecast
from trajpred.geometry import Pose
from trajpred.graph.agents import AgentFeatures, agent_features, focal_poses
from trajpred.onboard.bundle import GRAPHS, SIGNATURES, Bundle
from trajpred.onboard.lane_cache import LaneCache, SelectedLanes
from trajpred.scenario_batch import ScenarioBatch

#: The stages of a forecast, in order, as ``OnboardForecaster.stage_ms`` names them.
STAGES = ("features", "lanes", "encoder", "decoder", "output")
#: A vehicle's processor has other work: threads that wait sleep rather than spin, and they take work in small
#: portions. On a busy machine two threads otherwise take 2 to 3 times as long as one.
THREADING = {"session.intra_op.allow_spinning": "0", "session.dynamic_block_base": "4"}


class OnboardTokens(NamedTuple):
    """What the encoder says, for planners that want features rather than futures.

    Attributes:
        track_id: ``[A]``; agent: ``[A, D]``.
        lane: ``[L]`` lane segments and, counted on, crossings of the map; lane_context: ``[L, D]``.
    """

    track_id: NDArray[np.str_]
    agent: NDArray[np.float32]
    lane: NDArray[np.int64]
    lane_context: NDArray[np.float32]


@dataclass(frozen=True)
class LocalScene:
    """One scene as the graphs take it.

    Attributes:
        origin: ``[2]`` metres, float64: the focal agent where it was last seen, in the map's frame.
        inputs: of encoder and decoder by name (all but ``target``), padded.
    """

    origin: NDArray[np.float64]
    agents: AgentFeatures
    lanes: SelectedLanes
    inputs: dict[str, NDArray[Any]]
    step_s: float


class OnboardForecaster:
    """Runs a bundle.

    Args:
        bundle: its folder or zip file.
        threads: that onnxruntime computes with; 0 takes one for each core.
        providers: onnxruntime's execution providers, by default the CPU's.

    Attributes:
        stage_ms: milliseconds that each of :data:`STAGES` took in the latest forecast.
        lanes: the map as the model sees it; its tokens are kept from call to call.

    Raises: DataError if the bundle is damaged, or made for another kind of model.
    """

    def __init__(
        self, bundle: str | Path, *, threads: int = 0, providers: Sequence[str] = ("CPUExecutionProvider",)
    ) -> None:
        self.bundle = Bundle(bundle)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        for name, value in THREADING.items():
            options.add_session_config_entry(name, value)
        # It keeps a plan of the memory for every size that it meets: without end where sizes differ.
        options.enable_mem_pattern = self.bundle.sizes is not None
        self._sessions = {}
        for name in GRAPHS:
            content = self.bundle.graph(name)
            try:
                session = onnxruntime.InferenceSession(content, options, providers=list(providers))
            except Exception as error:  # onnxruntime has a class of its own for every reason
                raise DataError(f"is no graph that onnxruntime runs ({error})", file=bundle) from None
            found, known = [x.name for x in session.get_inputs()], SIGNATURES[name].inputs
            require(found == [x.name for x in known], name, f"takes {found}")
            self._sessions[name] = session
        self.lanes = LaneCache(self._encode_lanes, self.bundle.dim, self.bundle.features)
        self.stage_ms: dict[str, float] = dict.fromkeys(STAGES, 0.0)

    def forecast(
        self, scene: ScenarioBatch, targets: Sequence[str] | None = None, *, strict: bool = True
    ) -> Forecast:
        """Futures of a scene's agents in the frame of its map, float64.

        Args:
            scene: one scenario, as ``ScenarioBatch.of([scenario])`` makes it; what comes after its observed
                steps is not looked at. Its map is that of the calls before, if it is the same object.
            targets: track ids to predict; by default all agents of the scene.
            strict: refuse targets that are no agents of the scene; else they are left out.

        Raises: DataError if the scene's history has another length or time step, or a target is no agent.
        """
        located = self.localise(scene)
        agent, lane = self._encode(located)
        rows = self._rows(located.agents, targets, strict)
        if not len(rows):
            return self.empty_forecast(str(scene.scenario_id[0]))
        return self._decode(str(scene.scenario_id[0]), located, agent, lane, rows)

    def empty_forecast(self, scenario_id: str = "") -> Forecast:
        """A forecast of no agents, ``[0, K, F, 2]``."""
        path = np.zeros((0, self.bundle.modes, self.bundle.horizon, 2))
        none, along = np.zeros(0, np.str_), path[..., 0]
        return Forecast(scenario_id, none, path, along[..., 0], along, along, path)

    def encode(self, scene: ScenarioBatch) -> OnboardTokens:
        """The encoder's tokens alone; arguments as for :meth:`forecast`."""
        located = self.localise(scene)
        agent, lane = self._encode(located)
        A, L = len(located.agents.track_id), len(located.lanes.row)
        return OnboardTokens(located.agents.track_id, agent[:A], located.lanes.row, lane[:L])

    def localise(self, scene: ScenarioBatch) -> LocalScene:
        """Everything that is done before a graph runs, but for lanes that are new."""
        require(len(scene) == 1, "scene", f"must be one, are {len(scene)}")
        made, found = self.bundle.history, scene.num_observed
        require(found == made, "num_observed", f"is {found}, the bundle was made for {made}")
        step = float(scene.step_s[0])
        near = abs(step - self.bundle.step_s) <= 0.1 * self.bundle.step_s
        require(near, "step_s", f"is {step:g}, the bundle was made for {self.bundle.step_s:g}")
        self.stage_ms = dict.fromkeys(STAGES, 0.0)
        with self._timed("lanes"):
            self.lanes.set_map(scene.map)
        with self._timed("features"):
            origin = focal_poses(scene).position
            agents = agent_features(scene, origin, self.bundle.features)
        with self._timed("lanes"):
            lanes = self.lanes.near(agents, origin[0])
        with self._timed("features"):
            inputs = self._padded(agents, lanes) | {"step_s": np.array(step, np.float32)}
        return LocalScene(origin[0], agents, lanes, inputs, step)

    def _padded(self, agents: AgentFeatures, lanes: SelectedLanes) -> dict[str, NDArray[Any]]:
        """Inputs of encoder and decoder: of the bundle's fixed sizes, or of one lane at least."""
        A, L = self.bundle.sizes or (len(agents.track_id), max(len(lanes.row), 1))
        of_agents: dict[str, NDArray[Any]] = {
            "history": agents.history,
            "object_type": agents.object_type,
            "agent_position": agents.position,
            "agent_heading": agents.heading,
            "agent_valid": np.ones(len(agents.track_id), np.bool_),
            "agent_velocity": agents.velocity,
            "agent_elapsed_s": agents.elapsed_s,
        }
        of_lanes = {
            "lane_token": lanes.token,
            "lane_position": lanes.position,
            "lane_heading": lanes.heading,
            "lane_valid": np.ones(len(lanes.row), np.bool_),
        }
        more = L - len(lanes.row)
        inputs = {name: pad(x, A) for name, x in of_agents.items()}
        inputs |= {name: pad(x, L) for name, x in of_lanes.items()}
        return inputs | {"lane_topology": np.pad(lanes.topology, (0, more)) if more else lanes.topology}

    def _encode_lanes(self, **looks: NDArray[Any]) -> NDArray[np.float32]:
        """Tokens ``[L, D]`` of any number of lanes, in portions where the bundle's sizes are fixed."""
        count = len(looks["kind"])
        portion = self.bundle.sizes[1] if self.bundle.sizes else count
        tokens = [
            self.run("lane_encoder", {name: pad(x[i : i + portion], portion) for name, x in looks.items()})[0]
            for i in range(0, count, portion)
        ]
        return np.concatenate(tokens)[:count]

    def _encode(self, scene: LocalScene) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        with self._timed("encoder"):
            agent, lane = self.run("encoder", scene.inputs)
        return agent, lane

    def _rows(self, agents: AgentFeatures, targets: Sequence[str] | None, strict: bool) -> NDArray[np.int64]:
        if targets is None:
            return np.arange(len(agents.track_id))
        row = {name: i for i, name in enumerate(agents.track_id.tolist())}
        unknown = [name for name in targets if name not in row]
        told = f"are no agents of this scene: {', '.join(unknown)}"
        require(not (strict and unknown), "targets", told)
        return np.array([row[name] for name in dict.fromkeys(targets) if name in row], np.int64)

    def _decode(
        self,
        name: str,
        scene: LocalScene,
        agent: NDArray[np.float32],
        lane: NDArray[np.float32],
        rows: NDArray[np.int64],
    ) -> Forecast:
        with self._timed("decoder"):
            asked = pad(rows, self.bundle.sizes[0]) if self.bundle.sizes else rows
            tokens = {"agent_token": agent, "lane_context": lane, "target": asked}
            futures = [x[: len(rows)] for x in self.run("decoder", scene.inputs | tokens)]
        trajectory, scale, probability = futures
        agents = scene.agents
        with self._timed("output"):
            probability = probability.astype(np.float64)
            return Forecast.from_local(
                name,
                agents.track_id[rows],
                trajectory,
                probability / probability.sum(axis=1, keepdims=True),
                scale,
                pose=Pose(agents.position[rows] + scene.origin, agents.heading[rows]),
                velocity=agents.velocity[rows],
                elapsed_s=agents.elapsed_s[rows],
                step_s=scene.step_s,
            )

    def run(self, graph: str, values: Mapping[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
        """The outputs of a graph, in order; ``values`` may hold more than its inputs."""
        feed = {port.name: values[port.name] for port in SIGNATURES[graph].inputs}
        found: list[NDArray[np.float32]] = self._sessions[graph].run(None, feed)
        return found

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Adds to ``stage_ms``."""
        start = time.perf_counter()
        yield
        self.stage_ms[stage] += (time.perf_counter() - start) * 1e3


def pad(values: NDArray[Any], size: int) -> NDArray[Any]:
    """``values`` ``[N, ...]`` with zeros behind them up to ``size``."""
    more = size - len(values)
    if not more:
        return values
    return np.concatenate((values, np.zeros((more, *values.shape[1:]), values.dtype)))
