"""The default decoder: K mode tokens per agent propose a future, re-anchor at its end point and refine it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.errors import require, require_not_negative
from trajpred.features.channels import LENGTH_SCALE
from trajpred.features.lane_futures import MODES
from trajpred.features.relations import edge_features
from trajpred.geometry import Pose, direction, to_global
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

#: What modes start from.
Start = Literal["velocity", "lanes"]
#: Displacement (m) around which the heading of the agent fades in as the direction of a mode.
STATIONARY_M = 2.0
#: Displacement (m) of the last second around which the direction of the whole mode fades in.
STOPPED_M = 1.0


class ModeDecoder(SceneDecoder):
    """Mode tokens on the encoder's core: mode ← scene and mode ↔ mode layers in two stages.

    A proposal is a smooth offset from constant velocity, or from a future along the lanes. Each mode is then
    re-anchored at its proposed end point as a new (detached) pose, attends to the scene around it, and
    refines the trajectory.

    Args:
        degree: of the Bézier curves of trajectories and scales.
        propose_layers, refine_layers: pairs of mode ← scene and mode ↔ mode layers; without refinement
            layers the proposal is the prediction.
        propose_radius_m, refine_radius_m: radius around its pose within which a mode attends to the scene.
        refine_at: the share of the horizon after which modes are re-anchored.
        starts: what modes start from: ``velocity``, constant velocity; ``lanes``, mode k from the agent's
            k-th most probable of six futures along the lanes (those after the sixth from the first again).
            Several are as many groups of ``modes``, which are merged to one. Joint modes have the first.
        joint: also learn joint futures: a second set of mode embeddings through the same weights, where a
            mode also attends to the modes of the same index of other agents.
        attention: the operator of all layers, :class:`~trajpred.nn.GraphAttention` or, by name, a published
            one (:class:`~trajpred.nn.EdgeAttention`), which reads relative poses as features of the edges.
        heads, dropout, drop_path, norm, evaluation, pose: as in :class:`~trajpred.model.SceneEncoder`; the
            last two are of ``GraphAttention``.
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
        known = len(starts) > 0 and all(start in get_args(Start) for start in starts)
        require(known, "starts", f"must list any of {', '.join(get_args(Start))}, is {list(starts)}")
        self.published = attention != "graph_attention"
        self.evaluation, self.starts = "edges" if self.published else evaluation, tuple(starts)
        self.radius = (propose_radius_m, refine_radius_m)
        require(0 < refine_at <= 1, "refine_at", f"must be more than 0 and at most 1, is {refine_at}")
        self.refine_step = max(1, round(refine_at * horizon))
        self.mode = nn.Embedding(modes * len(starts), dim)
        stages = 2 if refine_layers else 1

        def bias() -> nn.Module:
            return NoBias() if self.published else pose_bias(MODE_EDGE_CHANNELS, heads, pose)

        self.bias = nn.ModuleList(bias() for _ in range(stages))

        def layer(poses: bool) -> GraphTransformerLayer:
            operator: nn.Module
            if attention == "graph_attention":
                operator = GraphAttention(dim, heads, poses=poses and pose in ("both", "values"))
            else:
                operator = EdgeAttention(attention, dim, heads, MODE_EDGE_CHANNELS if poses else 0)
            return GraphTransformerLayer(operator, dim, dropout=dropout, drop_path=drop_path, norm=norm)

        def pairs(count: int) -> nn.ModuleList:
            # mode ← scene with poses, then mode ↔ mode without.
            return nn.ModuleList(layer(poses) for _ in range(count) for poses in (True, False))

        self.propose, self.refine = pairs(propose_layers), pairs(refine_layers)
        self.propose_head = CurveHead(dim, horizon, degree)
        if refine_layers:
            self.refine_head = CurveHead(dim, horizon, degree)
            self.proposal = mlp(horizon * 2, dim, dim)
            self.norm = nn.LayerNorm(dim)
        self.logit_head = mlp(dim, dim, 1)
        if "lanes" in starts:
            self.anchor, self.anchor_norm = mlp(horizon * 2, dim, dim), nn.LayerNorm(dim)
        if joint:
            self.joint_mode = nn.Embedding(modes, dim)
            self.across_bias = bias()
            self.across = nn.ModuleList(layer(True) for _ in range(stages))

    @property
    def anchor_steps(self) -> int:
        return self.horizon if "lanes" in self.starts else 0

    def forward(
        self, tokens: SceneTokens, batch: HeteroData, joint: bool = False, agents: Tensor | None = None
    ) -> Prediction:
        """Predict as :class:`SceneDecoder`.

        Raises: ValueError if the decoder has no joint modes, or joint futures of some agents are requested.
        """
        if joint and not self.joint:
            raise ValueError("this decoder has no joint modes; build it with joint=True")
        if joint and agents is not None:
            raise ValueError("joint futures are predicted for all agents")
        graph, scene = tokens.graph, tokens.graph.scene
        rows = torch.arange(graph.num_agents, device=scene.device) if agents is None else agents
        padding = graph.agents if agents is None else graph.padding_of(agents)

        def scene_relation(stage: int, poses: Pose[Tensor]) -> EdgeRelation | DenseRelation:
            return self._scene_relation(graph, stage, poses, rows, padding)

        prediction = self.decode(
            tokens.agent[rows],
            tokens.nodes,
            graph.poses[rows],
            self.start(batch["agent"].anchors, constant_velocity_of(batch, self.horizon))[rows],
            scene_relation,
            self._agent_relation(graph) if joint else None,
        )
        if joint:  # one probability per world
            scene = scene[: graph.num_agents]
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
            scene_relation: maps a stage (0 propose, 1 refine) and poses ``[M, 2]`` (of the agents, or of all
                modes) to the relation mode ← scene.
            agent_relation: relation between the modes of several agents, which selects joint futures.
        """
        mode = self.mode if agent_relation is None else self.joint_mode
        count, start = mode.num_embeddings, start[:, : mode.num_embeddings]
        x = (agent[:, None] + mode.weight).flatten(0, 1)
        if self.anchor_steps:
            x = self.anchor_norm(x + self.anchor(start.flatten(0, 1).flatten(1) / LENGTH_SCALE))
        relation = scene_relation(0, poses).repeat_receivers(count)
        x = self._attend(0, x, nodes, relation, agent_relation)
        offset, scale = _futures(self.propose_head, x, count)
        proposal, groups = start + offset, count // self.modes
        if not self.refine:
            return Prediction(proposal, scale, self._logits(x, count), groups=groups)

        anchored = proposal.detach()
        x = self.norm(x + self.proposal(anchored.flatten(0, 1).flatten(1) / LENGTH_SCALE))
        x = self._attend(
            1,
            x,
            nodes,
            scene_relation(1, end_pose(anchored[:, :, : self.refine_step], poses)),
            agent_relation,
        )
        offset, final = _futures(self.refine_head, x, count)
        return Prediction(anchored + offset, final, self._logits(x, count), proposal, scale, groups)

    def start(self, anchors: Tensor, steady: Tensor) -> Tensor:
        """Return what proposals are offsets from, see :meth:`decode`.

        Args:
            anchors: ``[A, 6, F, 2]`` futures along the lanes; steady: ``[A, F, 2]`` at constant velocity.
        """
        if self.starts == ("velocity",):
            return steady[:, None]
        mode = torch.arange(self.modes, device=anchors.device) % MODES
        lanes = anchors if self.modes == MODES else anchors[:, mode]
        starts = {"lanes": lanes, "velocity": steady[:, None].expand(-1, self.modes, -1, -1)}
        return torch.cat([starts[start] for start in self.starts], 1)

    def _attend(
        self,
        stage: int,
        x: Tensor,
        nodes: Tensor,
        scene_relation: EdgeRelation | DenseRelation,
        agent_relation: EdgeRelation | DenseRelation | None,
    ) -> Tensor:
        layers, modes = (self.propose, self.refine)[stage], GroupRelation(self.modes)
        for scene_layer, mode_layer in zip(layers[0::2], layers[1::2], strict=True):
            x = mode_layer(scene_layer(x, scene_relation, nodes), modes)
        return x if agent_relation is None else self.across[stage](x, agent_relation)

    def _logits(self, x: Tensor, count: int) -> Tensor:
        return at_least_float32(self.logit_head(x)).reshape(-1, count)

    def _scene_relation(
        self, graph: TokenGraph, stage: int, poses: Pose[Tensor], agents: Tensor, padding: Padding
    ) -> EdgeRelation | DenseRelation:
        """Relation from the scene to the poses of the rows ``agents``, the same number of poses for each."""
        size = poses.heading.shape[0]
        repeats = size // max(agents.shape[0], 1)
        modes, owner = padding.repeat(repeats), agents.repeat_interleave(repeats)
        index, features, fading = radius_edges(graph, poses, self.radius[stage], owner, modes)
        bias = self.scene_bias(stage, features, fading).T
        edges = EdgeRelation(
            index, bias, graph.num_nodes, size, (graph.poses, poses), features.T, complete=True
        )
        return edges if self.evaluation == "edges" else DenseRelation.of(edges, graph.padding, modes)

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
        """Relation from mode k of an agent's neighbours to its own mode k, at the agents' poses."""
        index = graph.index[:, : graph.num_agent_edges]
        kind = torch.full_like(index[0], MODE_EDGE_KINDS.index("agent"))
        sender, receiver = (graph.poses.rows.index_select(1, end) for end in index)
        features = edge_features(sender, receiver, kind, len(MODE_EDGE_KINDS))
        size, agents = graph.num_agents, graph.poses[: graph.num_agents]
        bias = self.across_bias(features).T
        edges = EdgeRelation(index, bias, size, size, (agents, agents), features.T).with_copies(self.modes)
        return edges if self.evaluation == "edges" else DenseRelation.of(edges, graph.agents, graph.agents)


class NoBias(nn.Module):
    """The bias of published operators, which read the features themselves: zeros ``[1, E]``."""

    def forward(self, features: Tensor) -> Tensor:
        return features.new_zeros(1, features.shape[1])


def _futures(head: CurveHead, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return offsets and scales ``[A, count, F, 2]``."""
    offset, scale = head(x)
    return offset.unflatten(0, (-1, count)), scale.unflatten(0, (-1, count))


def end_pose(trajectory: Tensor, agents: Pose[Tensor]) -> Pose[Tensor]:
    """Return the pose at the end of each mode in the common frame, ``[A·K, 2]`` and ``[A·K]``.

    ``trajectory``: ``[A, K, F, 2]`` metres in the frames of the ``agents``, detached.
    """
    # Directions of short displacements are rounding. Thresholds would turn modes that stop at once.
    end = trajectory[:, :, -1]
    last = end - trajectory[:, :, -min(11, trajectory.shape[2])]
    ahead = nn.functional.pad(_fading(end, STATIONARY_M), (0, 1))
    turn = direction(last + _fading(last, STOPPED_M) * end + ahead)
    position = to_global(end, agents.position[:, None], agents.heading[:, None])
    return Pose(position.flatten(0, 1), (agents.heading[:, None] + turn).flatten())


def _fading(displacement: Tensor, scale: float) -> Tensor:
    return torch.exp(-(displacement**2).sum(-1, keepdim=True) / scale**2)
