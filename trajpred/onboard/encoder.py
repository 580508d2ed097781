"""Run the encoder of a bundle: tracks and map in world coordinates -> tokens.

Uses only NumPy and onnxruntime, not torch; scenes are localised by the functions used in training.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.geometry import laplacian_eigenvectors
from trajpred.data.resample import same_step
from trajpred.errors import DataError, require
from trajpred.features.agents import AgentFeatures, agent_features, focal_poses
from trajpred.onboard.bundle import ENCODER_GRAPHS, SIGNATURES, Bundle, Port, Signature
from trajpred.onboard.lane_cache import LaneCache, SelectedLanes

#: A vehicle's processor is shared: waiting threads sleep instead of spinning and take small portions of work.
#: With onnxruntime's defaults, two threads on a busy machine take 2 to 3 times as long as one.
THREADING = {"session.intra_op.allow_spinning": "0", "session.dynamic_block_base": "4"}
#: The types of ports by onnxruntime's names.
DTYPES = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(bool)": "bool"}
#: Agent fields that the graphs take as inputs named ``agent_*``.
AGENT_STATE = ("position", "heading", "velocity", "elapsed_s", "anchors")


@dataclass(frozen=True)
class OnboardTokens:
    """The encoder's output for one scene, for planners with their own head.

    With fixed sizes, A and L are those of the bundle and the last rows are padding; otherwise every row is
    valid.

    Attributes:
        scenario_id: id of the scene.
        track_id: ``[A]``, empty for padding.
        agent: ``[A, D]`` tokens, 0 for padding.
        agent_position: ``[A, 2]`` metres, float64: last observed position in the frame of the map.
        agent_heading: ``[A]`` radians, last observed heading in the frame of the map.
        agent_valid: ``[A]`` bool, False for padding.
        lane_row: ``[L]`` rows of the map: lane segments, then crossings; -1 for padding.
        lane: ``[L, D]`` tokens, 0 for padding.
        lane_position: ``[L, 2]`` metres, float64: midpoint in the frame of the map.
        lane_heading: ``[L]`` radians: direction at the midpoint.
        lane_valid: ``[L]`` bool, False for padding.
    """

    scenario_id: str
    track_id: NDArray[np.str_]
    agent: NDArray[np.float32]
    agent_position: NDArray[np.float64]
    agent_heading: NDArray[np.float32]
    agent_valid: NDArray[np.bool_]
    lane_row: NDArray[np.int64]
    lane: NDArray[np.float32]
    lane_position: NDArray[np.float64]
    lane_heading: NDArray[np.float32]
    lane_valid: NDArray[np.bool_]


@dataclass(frozen=True)
class LocalScene:
    """One scene as the input of the graphs.

    Attributes:
        origin: ``[2]`` metres, float64, map frame: the focal agent's last observed position.
        inputs: padded inputs of encoder and decoder, by name (all but ``target``).
    """

    scenario_id: str
    origin: NDArray[np.float64]
    agents: AgentFeatures
    lanes: SelectedLanes
    inputs: dict[str, NDArray[Any]]
    step_s: float


class OnboardEncoder:
    """Encode whole scenes with a bundle; :class:`StreamingEncoder` also keeps histories.

    Example:
        >>> encoder = OnboardEncoder("bundle", threads=2)
        >>> tokens = encoder.encode(ScenarioBatch.of([scenario]))
        >>> tokens.agent, tokens.agent_position, tokens.agent_valid

    Args:
        bundle: folder or zip file, with or without a decoder.
        threads: threads of onnxruntime; 0 for one per core.
        providers: execution providers of onnxruntime; by default the CPU.

    Attributes:
        stage_ms: milliseconds of each of ``STAGES`` in the latest call.
        lanes: the map and its lane tokens, kept between calls.

    Not thread-safe, since lanes are kept between calls: use one encoder per thread.

    Raises: DataError if onnxruntime is missing or lacks a provider, the bundle is damaged, or its graphs
        contradict the inputs, outputs or sizes in ``bundle.json``.
    """

    #: The stages of a call, in order: keys of ``stage_ms``.
    STAGES: ClassVar[tuple[str, ...]] = ("features", "lanes", "encoder", "output")
    #: The graphs that are loaded.
    GRAPHS: ClassVar[tuple[str, ...]] = ENCODER_GRAPHS

    def __init__(
        self, bundle: str | Path, *, threads: int = 0, providers: Sequence[str] = ("CPUExecutionProvider",)
    ) -> None:
        try:
            import onnxruntime  # optional: bundles are the only user
        except ImportError as error:
            raise DataError(f"bundles need onnxruntime ({error}): pip install onnxruntime") from None
        self.bundle = Bundle(bundle)
        if not set(self.GRAPHS) <= set(self.bundle.graphs):
            advice = "use OnboardEncoder, or export the whole model without --part"
            raise DataError(f"contains the encoder alone: {advice}", file=bundle)
        available = onnxruntime.get_available_providers()
        for provider in providers:  # onnxruntime would continue without it
            missing = f"{provider} is not in this onnxruntime, which has {', '.join(available)}"
            require(provider in available, "providers", missing)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        for name, value in THREADING.items():
            options.add_session_config_entry(name, value)
        # onnxruntime keeps one memory plan per input size, without limit if sizes vary.
        options.enable_mem_pattern = self.bundle.sizes is not None
        self._sessions: dict[str, Any] = {}
        #: Names of the inputs of each graph.
        self._inputs: dict[str, list[str]] = {}
        for name in self.GRAPHS:
            content = self.bundle.read(f"{name}.onnx")
            try:
                session = onnxruntime.InferenceSession(content, options, providers=list(providers))
            except Exception as error:  # onnxruntime has its own class for every reason
                raise DataError(f"onnxruntime cannot load graph {name} ({error})", file=bundle) from None
            signature = Signature(_ports(session.get_inputs()), _ports(session.get_outputs()))
            self.bundle.require_signature(name, signature)
            self._sessions[name] = session
            self._inputs[name] = [port.name for port in signature.inputs]
        self.lanes = LaneCache(self.bundle.dim, self.bundle.features)
        self.stage_ms: dict[str, float] = dict.fromkeys(self.STAGES, 0.0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bundle!r})"

    def encode(self, scene: ScenarioBatch) -> OnboardTokens:
        """Encode the agents and lanes of a scene.

        Args:
            scene: one scenario, ``ScenarioBatch.of([scenario])``; only its observed steps are used. The map
                object of the previous call is not processed again.

        Raises: DataError if history length or time step differ from the bundle's.
        """
        local = self.localise(scene)
        tokens = self._encode(local)
        with self._timed("output"):
            padded = self.bundle.sizes is not None
            return _tokens(local, tokens["agent_token"], tokens["lane_context"], padded)

    def empty_tokens(self) -> OnboardTokens:
        """Return tokens of no agents and lanes; with fixed sizes, of padding only."""
        A, L = self.bundle.sizes or (0, 0)
        nodes: dict[str, Any] = {}
        for name, size in (("agent", A), ("lane", L)):
            nodes[name] = np.zeros((size, self.bundle.dim), np.float32)
            nodes[f"{name}_position"] = np.zeros((size, 2))
            nodes[f"{name}_heading"] = np.zeros(size, np.float32)
            nodes[f"{name}_valid"] = np.zeros(size, np.bool_)
        return OnboardTokens("", np.full(A, "", np.str_), lane_row=np.full(L, -1), **nodes)

    def localise(self, scene: ScenarioBatch) -> LocalScene:
        """Compute the graphs' inputs, relative to the focal agent's position; encode new lanes.

        Raises: DataError if it is not one scenario, or has another time step.
        """
        require(len(scene) == 1, "scene", f"must be one scenario, is {len(scene)}")
        step_s = float(scene.step_s[0])
        expected_s = self.bundle.step_s
        differing = f"is {step_s:g} s, the bundle takes {expected_s:g} s"
        require(same_step(step_s, expected_s), "step_s", differing)
        self.stage_ms = dict.fromkeys(self.STAGES, 0.0)
        with self._timed("lanes"):
            self.lanes.set_map(scene.map)
        with self._timed("features"):
            scene = scene.window(self.bundle.history)
            focal = focal_poses(scene, self.lanes.routes)
            agents = agent_features(scene, self.lanes.routes, focal.position, self.bundle.features)
        origin = focal.position[0]
        with self._timed("lanes"):
            lanes = self.lanes.select(agents, origin, self._encode_lanes)
        with self._timed("features"):
            inputs = self._padded(agents, lanes)
            inputs["step_s"] = np.array(step_s, np.float32)
            inputs["scene_heading"] = np.array(focal.heading[0], np.float32)
        return LocalScene(str(scene.scenario_id[0]), origin, agents, lanes, inputs, step_s)

    def run(self, graph: str, values: Mapping[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
        """Run a graph and return its outputs in order; ``values`` may hold more than its inputs."""
        feed = {name: values[name] for name in self._inputs[graph]}
        return self._sessions[graph].run(None, feed)

    def _padded(self, agents: AgentFeatures, lanes: SelectedLanes) -> dict[str, NDArray[Any]]:
        """Return the inputs of encoder and decoder, padded to the bundle's sizes or to at least one lane."""
        num_agents = len(agents.track_id)
        num_lanes = len(lanes.row)
        A, L = self.bundle.sizes or (num_agents, max(num_lanes, 1))
        inputs = {
            "history": pad(agents.history, A),
            "object_type": pad(agents.object_type, A),
            "agent_valid": np.arange(A) < num_agents,
            "lane_token": pad(lanes.token, L),
            "lane_position": pad(lanes.position, L),
            "lane_heading": pad(lanes.heading, L),
            "lane_valid": np.arange(L) < num_lanes,
            "lane_topology": np.pad(lanes.topology, (0, L - num_lanes)),
        }
        for name in AGENT_STATE:
            inputs[f"agent_{name}"] = pad(getattr(agents, name), A)
        if self.bundle.eigenvectors:
            vectors = laplacian_eigenvectors(lanes.topology > 0, self.bundle.eigenvectors)
            inputs["lane_eigenvectors"] = pad(vectors.astype(np.float32), L)
        return inputs

    def _encode_lanes(self, **inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Compute lane tokens ``[L, D]``; the selection is never larger than the bundle's fixed size."""
        count = len(inputs["kind"])
        size = self.bundle.sizes[1] if self.bundle.sizes else count
        padded = {name: pad(values, size) for name, values in inputs.items()}
        [tokens] = self.run("lane_encoder", padded)
        return tokens[:count]

    def _encode(self, scene: LocalScene) -> dict[str, NDArray[np.float32]]:
        with self._timed("encoder"):
            outputs = self.run("encoder", scene.inputs)
        names = [port.name for port in SIGNATURES["encoder"].outputs]
        return dict(zip(names, outputs, strict=True))

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Add the time spent inside to ``stage_ms``."""
        start = time.perf_counter()
        yield
        self.stage_ms[stage] += (time.perf_counter() - start) * 1e3


def _tokens(
    scene: LocalScene, agent: NDArray[np.float32], lane: NDArray[np.float32], padded: bool
) -> OnboardTokens:
    """Return the tokens with their poses in the map's frame; without ``padded`` only valid rows."""
    track_id = scene.agents.track_id
    lane_row = scene.lanes.row
    A = len(agent) if padded else len(track_id)
    L = len(lane) if padded else len(lane_row)
    nodes: dict[str, Any] = {}
    for name, token, size in (("agent", agent, A), ("lane", lane, L)):
        position = scene.inputs[f"{name}_position"][:size]
        valid = scene.inputs[f"{name}_valid"][:size]
        nodes[name] = np.where(valid[:, None], token[:size], np.float32(0))
        nodes[f"{name}_position"] = np.where(valid[:, None], position + scene.origin, 0.0)
        nodes[f"{name}_heading"] = scene.inputs[f"{name}_heading"][:size]
        nodes[f"{name}_valid"] = valid
    return OnboardTokens(
        scene.scenario_id,
        np.concatenate((track_id, np.full(A - len(track_id), ""))),
        lane_row=np.concatenate((lane_row, np.full(L - len(lane_row), -1))),
        **nodes,
    )


def _ports(values: Sequence[Any]) -> tuple[Port, ...]:
    """Return the inputs or outputs of an onnxruntime session."""
    return tuple(Port(value.name, DTYPES.get(value.type, value.type), value.shape, "") for value in values)


def pad(values: NDArray[Any], size: int) -> NDArray[Any]:
    """Append zeros to ``values`` ``[N, ...]`` up to ``size`` rows."""
    missing = size - len(values)
    if not missing:
        return values
    return np.concatenate((values, np.zeros((missing, *values.shape[1:]), values.dtype)))
