"""The default decoder: proposes modes, anchors each at its endpoint, and refines it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.data.geometry import Pose, direction, to_global
from trajpred.errors import require, require_not_negative
from trajpred.features.config import LENGTH_SCALE
from trajpred.features.lane_futures import MODES
from trajpred.features.relations import edge_features
from trajpred.model.heads import CurveHead
from trajpred.model.scene_decoder import Prediction, SceneDecoder, constant_velocity_of, scene_mean
from trajpred.model.scene_encoder import Evaluation, RelativePose, pose_bias
from trajpred.model.token_encoder import SceneTokens, require_sizes
from trajpred.model.token_graph import MODE_EDGE_CHANNELS, MODE_EDGE_KINDS, TokenGraph, radius_edges
from trajpred.nn import (
    DenseRelation,
    EdgeAttention,
    EdgeRelation,
    GraphAttention,
    GraphTransformerLayer,
    GroupRelation,
    Padding,
    at_least_float32,
    mlp,
)
from trajpred.nn.edge_attention import Operator


def scene_edges(
    graph: TokenGraph,
    poses: Pose[Tensor],
    radius_m: float,
    agents: Tensor,
    modes: Padding,
    bias: Callable[[Tensor, Tensor], Tensor],
) -> EdgeRelation:
    """Relate the tokens of the scene to M poses within a radius.

    Args:
        poses: ``[M, 2]``, ``[M]`` of the modes.
        agents: ``[M]``, the row of each pose's agent.
        modes: padding of the poses.
        bias: maps the features ``[C, E]`` and the fading ``[E]`` of the edges to ``[heads, E]``.
    """
    index, features, fading = radius_edges(graph, poses, radius_m, agents, modes)
    return EdgeRelation(
        index=index,
        bias=bias(features, fading).T,
        num_senders=graph.num_nodes,
        num_receivers=poses.heading.shape[0],
        poses=(graph.poses, poses),
        features=features.T,
        complete=True,
    )


def same_mode_edges(graph: TokenGraph, modes: int, bias: Callable[[Tensor], Tensor]) -> EdgeRelation:
    """Relate mode k of an agent's neighbours to its own mode k, at the agents' poses.

    Args:
        modes: K, the number of modes of each agent.
        bias: maps the features ``[C, E]`` of the edges between agents to ``[heads, E]``.
    """
    index = graph.index[:, : graph.num_agent_edges]
    kind = torch.full_like(index[0], MODE_EDGE_KINDS.index("agent"))
    sender = graph.poses.rows.index_select(1, index[0])
    receiver = graph.poses.rows.index_select(1, index[1])
    features = edge_features(sender, receiver, kind, len(MODE_EDGE_KINDS))
    agents = graph.poses[: graph.num_agents]
    edges = EdgeRelation(
        index=index,
        bias=bias(features).T,
        num_senders=graph.num_agents,
        num_receivers=graph.num_agents,
        poses=(agents, agents),
        features=features.T,
    )
    return edges.with_copies(modes)


#: Displacement (m) around which the heading of the agent fades in as the direction of a mode.
STATIONARY_M = 2.0
#: Displacement (m) of the last second around which the direction of the whole mode fades in.
STOPPED_M = 1.0
#: Steps of the last second of a mode, and the one before them.
LAST_STEPS = 11


@dataclass(frozen=True)
class ModeLayers:
    """Builder of the decoder's layers and attention biases; attributes are the decoder's arguments."""

    dim: int
    heads: int
    dropout: float
    drop_path: float
    norm: Literal["post", "pre"]
    pose: RelativePose
    attention: Operator | Literal["graph_attention"]

    @property
    def published(self) -> bool:
        """Whether the operator is a published one, which reads features instead of bias and poses."""
        return self.attention != "graph_attention"

    def bias(self) -> nn.Module:
        """Build the map from edge features to one additive score per head."""
        if self.published:
            return NoBias()
        return pose_bias(MODE_EDGE_CHANNELS, self.heads, self.pose)

    def layer(self, poses: bool) -> GraphTransformerLayer:
        """Build one layer, over a relation with or without ``poses``."""
        operator: nn.Module
        if self.attention == "graph_attention":
            reads_poses = poses and self.pose in ("both", "values")
            operator = GraphAttention(self.dim, self.heads, poses=reads_poses)
        else:
            channels = MODE_EDGE_CHANNELS if poses else 0
            operator = EdgeAttention(self.attention, self.dim, self.heads, channels)
        return GraphTransformerLayer(
            operator,
            self.dim,
            dropout=self.dropout,
            drop_path=self.drop_path,
            norm=self.norm,
        )

    def pairs(self, count: int) -> nn.ModuleList:
        """Build ``count`` pairs: mode ← scene with poses, then mode ↔ mode without."""
        layers = nn.ModuleList()
        for _ in range(count):
            layers.append(self.layer(poses=True))
            layers.append(self.layer(poses=False))
        return layers


class NoBias(nn.Module):
    """The bias of published operators, which read the features themselves: zeros ``[1, E]``."""

    def forward(self, features: Tensor) -> Tensor:
        return features.new_zeros(1, features.shape[1])


def scaled_paths(trajectory: Tensor) -> Tensor:
    """``[A, K, F, 2]`` metres -> ``[A · K, 2 · F]``, in the unit that the networks read."""
    return trajectory.flatten(0, 1).flatten(1) / LENGTH_SCALE


def end_pose(trajectory: Tensor, agents: Pose[Tensor]) -> Pose[Tensor]:
    """Return the pose at the end of each mode in the common frame, ``[A·K, 2]`` and ``[A·K]``.

    Args:
        trajectory: ``[A, K, F, 2]`` metres in the frames of the ``agents``, detached.
        agents: their poses, ``[A]``.
    """
    # Short displacements have no meaningful direction. The direction of the whole mode, and then that of the
    # agent, fade in smoothly: a threshold would make the heading of stopping modes jump.
    end = trajectory[:, :, -1]
    start_of_last = trajectory[:, :, -min(LAST_STEPS, trajectory.shape[2])]
    last = end - start_of_last
    ahead = nn.functional.pad(_fading(end, STATIONARY_M), (0, 1))
    turn = direction(last + _fading(last, STOPPED_M) * end + ahead)
    agent_position = agents.position[:, None]
    agent_heading = agents.heading[:, None]
    position = to_global(end, agent_position, agent_heading)
    heading = agent_heading + turn
    return Pose(position.flatten(0, 1), heading.flatten())


def _fading(displacement: Tensor, scale: float) -> Tensor:
    """Weigh displacements ``[..., 2]`` by a Gaussian, ``[..., 1]``: 1 at 0, near 0 beyond ``scale``."""
    squared = (displacement**2).sum(-1, keepdim=True)
    return torch.exp(-squared / scale**2)


#: What modes start from.
Start = Literal["velocity", "lanes"]


class ModeDecoder(SceneDecoder):
    """Mode tokens on the encoder's core: mode ← scene and mode ↔ mode layers in two stages.

    A proposal is a smooth offset from constant velocity, or from a future along the lanes. Each mode is then
    re-anchored at its proposed end point as a new (detached) pose, attends to the scene around it, and
    refines the trajectory.

    Args:
        degree: of the Bézier curves of trajectories and scales.
        propose_layers: pairs of mode ← scene and mode ↔ mode layers before the proposal.
        refine_layers: pairs after it; without any the proposal is the prediction.
        propose_radius_m: radius around the agent within which a mode attends to the scene.
        refine_radius_m: radius around the end of its proposal, likewise.
        refine_at: the share of the horizon after which modes are re-anchored.
        starts: what modes start from: ``velocity``, constant velocity; ``lanes``, mode k from the agent's
            k-th most probable of six futures along the lanes (those after the sixth from the first again).
            Several are as many groups of ``modes``, which are merged to one. Joint modes have the first.
        joint: also learn joint futures: a second set of mode embeddings through the same weights, where a
            mode also attends to the modes of the same index of other agents.
        attention: the operator of all layers, :class:`~trajpred.nn.GraphAttention` or, by name, a published
            one (:class:`~trajpred.nn.EdgeAttention`), which reads relative poses as features of the edges.
        heads: attention heads.
        dropout: rate on residual branches.
        drop_path: stochastic depth, as in :class:`~trajpred.model.SceneEncoder`.
        norm: likewise.
        evaluation: likewise, of ``GraphAttention``.
        pose: likewise, of ``GraphAttention``.
    """

    def __init__(
        self,
        horizon: int = 60,
        dim: int = 128,
        heads: int = 8,
        modes: int = 6,
        degree: int = 8,
        propose_layers: int = 2,
        refine_layers: int = 1,
        propose_radius_m: float = 60.0,
        refine_radius_m: float = 30.0,
        refine_at: float = 1.0,
        dropout: float = 0.1,
        drop_path: float = 0.0,
        norm: Literal["post", "pre"] = "post",
        evaluation: Evaluation = "dense",
        pose: RelativePose = "both",
        starts: Sequence[Start] = ("velocity",),
        joint: bool = False,
        attention: Operator | Literal["graph_attention"] = "graph_attention",
    ) -> None:
        require_sizes(dim, heads, propose_layers=propose_layers, refine_layers=refine_layers)
        require_not_negative(propose_radius_m=propose_radius_m, refine_radius_m=refine_radius_m)
        super().__init__(horizon, dim, modes, joint)
        choices = get_args(Start)
        valid = len(starts) > 0 and all(start in choices for start in starts)
        require(valid, "starts", f"must list any of {', '.join(choices)}, is {list(starts)}")
        require(0 < refine_at <= 1, "refine_at", f"must be more than 0 and at most 1, is {refine_at}")
        self.published = attention != "graph_attention"
        self.evaluation = "edges" if self.published else evaluation
        self.starts = tuple(starts)
        self.radius = (propose_radius_m, refine_radius_m)
        self.refine_step = max(1, round(refine_at * horizon))
        build = ModeLayers(
            dim=dim,
            heads=heads,
            dropout=dropout,
            drop_path=drop_path,
            norm=norm,
            pose=pose,
            attention=attention,
        )
        stages = 2 if refine_layers else 1
        self.mode = nn.Embedding(modes * len(starts), dim)
        self.bias = nn.ModuleList(build.bias() for _ in range(stages))
        self.propose = build.pairs(propose_layers)
        self.refine = build.pairs(refine_layers)
        self.propose_head = CurveHead(dim, horizon, degree)
        if refine_layers:
            self.refine_head = CurveHead(dim, horizon, degree)
            self.proposal = mlp(horizon * 2, dim, dim)
            self.norm = nn.LayerNorm(dim)
        self.logit_head = mlp(dim, dim, 1)
        if "lanes" in starts:
            self.anchor = mlp(horizon * 2, dim, dim)
            self.anchor_norm = nn.LayerNorm(dim)
        if joint:
            self.joint_mode = nn.Embedding(modes, dim)
            self.across_bias = build.bias()
            self.across = nn.ModuleList(build.layer(poses=True) for _ in range(stages))

    @property
    def anchor_steps(self) -> int:
        return self.horizon if "lanes" in self.starts else 0

    def forward(
        self, tokens: SceneTokens, batch: HeteroData, joint: bool = False, agents: Tensor | None = None
    ) -> Prediction:
        """Predict as :class:`SceneDecoder`.

        Raises:
            ValueError: if the decoder has no joint modes, or joint futures of some agents are requested.
        """
        if joint and not self.joint:
            raise ValueError("this decoder has no joint modes; build it with joint=True")
        if joint and agents is not None:
            raise ValueError("joint futures are predicted for all agents")
        graph = tokens.graph
        if agents is None:
            rows = torch.arange(graph.num_agents, device=graph.scene.device)
            padding = graph.agents
        else:
            rows = agents
            padding = graph.padding_of(agents)

        def scene_relation(stage: int, poses: Pose[Tensor]) -> EdgeRelation | DenseRelation:
            return self._scene_relation(graph, stage, poses, rows, padding)

        steady = constant_velocity_of(batch, self.horizon)
        start = self.start(batch["agent"].anchors, steady)
        prediction = self.decode(
            agent=tokens.agent[rows],
            nodes=tokens.nodes,
            poses=graph.poses[rows],
            start=start[rows],
            scene_relation=scene_relation,
            agent_relation=self._agent_relation(graph) if joint else None,
        )
        if joint:  # one probability per world
            scene = graph.scene[: graph.num_agents]
            prediction.logits = scene_mean(prediction.logits, scene, batch.num_graphs)[scene]
        return prediction

    def decode(
        self,
        agent: Tensor,
        nodes: Tensor,
        poses: Pose[Tensor],
        start: Tensor,
        scene_relation: Callable[[int, Pose[Tensor]], EdgeRelation | DenseRelation],
        agent_relation: EdgeRelation | DenseRelation | None = None,
    ) -> Prediction:
        """Predict the futures of B agents, independent of how relations are represented.

        Args:
            agent: ``[B, dim]`` tokens of the agents.
            nodes: ``[N, dim]`` tokens of the scene.
            poses: ``[B, 2]``, ``[B]`` of the agents.
            start: ``[B, 1, F, 2]``, or of each mode ``[B, M, F, 2]``; metres, own frames. Proposals are
                offsets from it.
            scene_relation: maps a stage (0 propose, 1 refine) and poses (of the B agents, or of all B·M
                modes) to the relation mode ← scene.
            agent_relation: relation between the modes of several agents; if given, futures are joint.
        """
        mode = self.mode if agent_relation is None else self.joint_mode
        count = mode.num_embeddings
        start = start[:, :count]  # joint modes are as many as the first group
        x = (agent[:, None] + mode.weight).flatten(0, 1)  # [B·M, dim]
        if self.anchor_steps:
            x = self.anchor_norm(x + self.anchor(scaled_paths(start)))
        relation = scene_relation(0, poses).repeat_receivers(count)
        x = self._attend(0, x, nodes, relation, agent_relation)
        offset, scale = _futures(self.propose_head, x, count)
        proposal = start + offset
        groups = count // self.modes
        if not self.refine:  # without layers
            return Prediction(proposal, scale, self._logits(x, count), groups=groups)

        fixed = proposal.detach()
        x = self.norm(x + self.proposal(scaled_paths(fixed)))
        end = end_pose(fixed[:, :, : self.refine_step], poses)
        x = self._attend(1, x, nodes, scene_relation(1, end), agent_relation)
        offset, final_scale = _futures(self.refine_head, x, count)
        return Prediction(
            trajectory=fixed + offset,
            scale=final_scale,
            logits=self._logits(x, count),
            proposal=proposal,
            proposal_scale=scale,
            groups=groups,
        )

    def start(self, anchors: Tensor, steady: Tensor) -> Tensor:
        """Return what proposals are offsets from, see :meth:`decode`.

        Args:
            anchors: ``[A, 6, F, 2]`` futures along the lanes.
            steady: ``[A, F, 2]`` futures at constant velocity.
        """
        if self.starts == ("velocity",):
            return steady[:, None]
        lanes = anchors
        if self.modes != MODES:
            mode = torch.arange(self.modes, device=anchors.device) % MODES
            lanes = anchors[:, mode]
        velocity = steady[:, None].expand(-1, self.modes, -1, -1)
        starts = {"lanes": lanes, "velocity": velocity}
        return torch.cat([starts[start] for start in self.starts], 1)

    def _attend(
        self,
        stage: int,
        x: Tensor,
        nodes: Tensor,
        scene_relation: EdgeRelation | DenseRelation,
        agent_relation: EdgeRelation | DenseRelation | None,
    ) -> Tensor:
        layers = self.propose if stage == 0 else self.refine
        modes = GroupRelation(self.modes)
        for scene_layer, mode_layer in zip(layers[0::2], layers[1::2], strict=True):
            x = scene_layer(x, scene_relation, nodes)
            x = mode_layer(x, modes)
        if agent_relation is None:
            return x
        across: Tensor = self.across[stage](x, agent_relation)
        return across

    def _logits(self, x: Tensor, count: int) -> Tensor:
        return at_least_float32(self.logit_head(x)).reshape(-1, count)

    def _scene_relation(
        self, graph: TokenGraph, stage: int, poses: Pose[Tensor], agents: Tensor, padding: Padding
    ) -> EdgeRelation | DenseRelation:
        """Relate the scene to the poses of the rows ``agents``, the same number of poses for each."""
        num_poses = poses.heading.shape[0]
        repeats = num_poses // max(agents.shape[0], 1)
        modes = padding.repeat(repeats)
        edges = scene_edges(
            graph=graph,
            poses=poses,
            radius_m=self.radius[stage],
            agents=agents.repeat_interleave(repeats),
            modes=modes,
            bias=partial(self.scene_bias, stage),
        )
        if self.evaluation == "edges":
            return edges
        return DenseRelation.of(edges, graph.padding, modes)

    def scene_bias(self, stage: int, features: Tensor, fading: Tensor) -> Tensor:
        """Compute the bias ``[heads, ...]`` of the attention of modes to the scene, in batches and exported.

        Args:
            stage: 0 propose, 1 refine.
            features: ``[C, ...]`` of the edges.
            fading: ``[...]`` term that fades edges out towards the radius.
        """
        bias: Tensor = self.bias[stage](features) + fading
        return bias

    def _agent_relation(self, graph: TokenGraph) -> EdgeRelation | DenseRelation:
        """Relate mode k of an agent's neighbours to its own mode k, at the agents' poses."""
        edges = same_mode_edges(graph, self.modes, self.across_bias)
        if self.evaluation == "edges":
            return edges
        return DenseRelation.of(edges, graph.agents, graph.agents)


def _futures(head: CurveHead, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return offsets and scales ``[B, count, F, 2]``."""
    offset, scale = head(x)
    return offset.unflatten(0, (-1, count)), scale.unflatten(0, (-1, count))
