"""The mode decoder: mode tokens that attend to the scene and to each other, in two stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.data.geometry import Pose, direction, to_global
from trajpred.errors import require, require_not_negative
from trajpred.features.config import LENGTH_SCALE, edge_channels
from trajpred.features.lane_futures import MODES
from trajpred.features.scene_graph import distances, edge_features
from trajpred.model.scene_decoder import (
    CurveHead,
    Prediction,
    SceneDecoder,
    constant_velocity_of,
)
from trajpred.model.scene_encoder import (
    Evaluation,
    RelativePose,
    SceneTokens,
    TokenGraph,
    pose_bias,
    require_sizes,
)
from trajpred.nn import (
    EdgeAttention,
    Edges,
    GraphAttention,
    GraphTransformerLayer,
    Layout,
    at_least_float32,
    mlp,
)
from trajpred.nn.attention import reached_by
from trajpred.nn.edge_attention import Operator
from trajpred.nn.segment import LOWEST, segment_mean

#: Displacement (m) around which the heading of the agent fades in as the direction of a mode.
STATIONARY_M = 2.0
#: Displacement (m) of the last second around which the direction of the whole mode fades in.
STOPPED_M = 1.0
#: Steps of the last second of a mode, and the one before them.
LAST_STEPS = 11
#: Outer fraction of the radius in which attention fades out.
FADE = 0.2
#: What a mode attends to: its own agent, other agents, lanes.
MODE_EDGE_KINDS = ("own", "agent", "lane")
MODE_EDGE_CHANNELS = len(edge_channels(MODE_EDGE_KINDS))


def scaled_paths(trajectory: Tensor) -> Tensor:
    """Flatten and scale paths for the networks: ``[A, K, F, 2]`` metres -> ``[A · K, 2 · F]``."""
    return trajectory.flatten(0, 1).flatten(1) / LENGTH_SCALE


def end_pose(trajectory: Tensor, agents: Pose[Tensor]) -> Pose[Tensor]:
    """Return the pose at the end of each mode in the common frame, ``[A·K, 2]`` and ``[A·K]``.

    Args:
        trajectory: ``[A, K, F, 2]`` metres in the frames of the ``agents``, detached.
        agents: poses of the agents, ``[A]``.
    """
    # Short displacements have no meaningful direction: the direction of the whole mode, and then the agent's,
    # fade in smoothly. A threshold would make the heading of stopping modes jump.
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
    return torch.exp(-(squared / scale**2).clamp(max=80.0))  # beyond it, exp gives slow denormal numbers


def all_pairs(rows: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return row and column of every cell of a matrix, row by row: ``[rows · columns]`` each."""
    row = torch.arange(rows, device=device).repeat_interleave(columns)
    return row, torch.arange(columns, device=device).repeat(rows)


def radius_edges(
    graph: TokenGraph, poses: Pose[Tensor], radius: float, agents: Tensor, modes: Layout
) -> tuple[Tensor, Tensor, Tensor]:
    """Connect each pose to the nodes within ``radius`` metres and to its own agent.

    Args:
        graph: graph whose nodes are the senders.
        poses: ``[M]``, the receivers.
        radius: in metres.
        agents: ``[M]`` agent of each pose, ascending.
        modes: layout of the poses in their scenes.

    Returns:
        ``index [2, E]`` sorted by receiver, features ``[MODE_EDGE_CHANNELS, E]``, and a term ``[E]`` to add
        to the scores: 0, falling from 80 % of the radius to -14 at the radius, so that no future jumps by
        metres when a node crosses it; 0 for the own agent. With ``graph.all_pairs``, all pairs are returned,
        and those that are not edges get :data:`~trajpred.nn.segment.LOWEST`.
    """
    # Infinity and NaN keep padding apart from everything, including other padding.
    receivers = modes.pad(poses.position, fill=torch.inf)
    senders = graph.padding.pad(graph.poses.position, fill=torch.nan)
    if torch.compiler.is_exporting():  # ONNX has no cdist
        distance = distances(receivers, senders)
    else:
        distance = torch.cdist(receivers, senders, compute_mode="donot_use_mm_for_euclid_dist")
    own_pair = modes.slot * graph.padding.size + graph.padding.within.index_select(0, agents)
    near = (distance <= radius).flatten().index_fill(0, own_pair, True).view(distance.shape)
    if graph.all_pairs:
        row, column = all_pairs(modes.size, graph.padding.size, near.device)
        scene = torch.zeros_like(row)
    else:
        scene, row, column = near.nonzero(as_tuple=True)
    if torch.compiler.is_exporting():
        torch._check(scene.shape[0] > 0)  # each mode has its own agent; PyG's GATConv asks
    receiver = modes.node(scene, row)
    sender = graph.padding.node(scene, column)
    is_own = sender == agents.index_select(0, receiver)
    kind = 1 + (sender >= graph.num_agents).long()
    kind.masked_fill_(is_own, 0)
    sender_rows = graph.poses.rows.index_select(1, sender)
    receiver_rows = poses.rows.index_select(1, receiver)
    features = edge_features(sender_rows, receiver_rows, kind, len(MODE_EDGE_KINDS))
    left = (distance[scene, row, column] - radius) / (-FADE * radius)
    fading = left.clamp(1e-6, 1.0).log().masked_fill_(is_own, 0.0)
    if graph.all_pairs:
        fading = fading.masked_fill(~near.flatten(), LOWEST)
    return torch.stack((sender, receiver)), features, fading


#: Initial trajectories of modes.
Start = Literal["velocity", "lanes"]


class ModeDecoder(SceneDecoder):
    """Mode tokens on the encoder's core: mode ← scene and mode ↔ mode layers in two stages.

    A proposal is a smooth offset from constant velocity, or from a future along the lanes. Each mode is then
    re-anchored at its proposed endpoint as a new (detached) pose, attends to the scene around it, and refines
    the trajectory.

    Args:
        degree: degree of the Bézier curves for trajectories and scales.
        propose_layers: pairs of mode ← scene and mode ↔ mode layers before the proposal.
        refine_layers: pairs of layers after the proposal; without any, the proposal is the prediction.
        propose_radius_m: radius around the agent within which a mode attends to the scene.
        refine_radius_m: radius around the end of its proposal, for the refinement.
        refine_at: fraction of the horizon at which modes are re-anchored.
        starts: what modes start from: ``velocity``, constant velocity; ``lanes``, for mode k the agent's k-th
            most probable of six futures along the lanes (cyclically after the sixth). Each entry gives a
            group of ``modes`` modes; groups are merged into one. Joint modes use the first.
        joint: also learn joint futures: a second set of mode embeddings through the same weights, where a
            mode also attends to the modes of the same index of other agents.
        attention: the operator of all layers, :class:`~trajpred.nn.GraphAttention` or, by name, a published
            one (:class:`~trajpred.nn.EdgeAttention`), which reads relative poses as features of the edges.
        heads: attention heads.
        dropout: rate on residual branches.
        drop_path: stochastic depth, as in :class:`~trajpred.model.SceneEncoder`.
        norm: as in :class:`~trajpred.model.SceneEncoder`.
        evaluation: see :data:`~trajpred.model.scene_encoder.Evaluation`; for ``GraphAttention`` only.
        pose: see :data:`~trajpred.model.scene_encoder.RelativePose`; for ``GraphAttention`` only.
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
        #: Whether the operator is a published one, which reads edge features instead of bias and poses.
        self.published = attention != "graph_attention"
        self.evaluation = evaluation
        self.starts = tuple(starts)
        self.anchor_steps = horizon if "lanes" in starts else 0
        self.radius = (propose_radius_m, refine_radius_m)
        self.refine_step = max(1, round(refine_at * horizon))

        def layer(poses: bool) -> GraphTransformerLayer:
            operator: nn.Module
            if attention == "graph_attention":
                operator = GraphAttention(dim, heads, poses=poses and pose in ("both", "values"))
            else:
                operator = EdgeAttention(attention, dim, heads, MODE_EDGE_CHANNELS if poses else 0)
            return GraphTransformerLayer(operator, dim, dropout=dropout, drop_path=drop_path, norm=norm)

        def layers(count: int) -> nn.ModuleList:
            """Build ``count`` pairs: mode ← scene with poses, then mode ↔ mode without."""
            return nn.ModuleList(layer(poses=number % 2 == 0) for number in range(2 * count))

        stages = 2 if refine_layers else 1
        self.mode = nn.Embedding(modes * len(starts), dim)
        self.bias = nn.ModuleList()
        if not self.published:
            self.bias.extend(pose_bias(MODE_EDGE_CHANNELS, heads, pose) for _ in range(stages))
        self.propose = layers(propose_layers)
        self.refine = layers(refine_layers)
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
            if not self.published:
                self.across_bias = pose_bias(MODE_EDGE_CHANNELS, heads, pose)
            self.across = nn.ModuleList(layer(poses=True) for _ in range(stages))

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
            layout = graph.agents
        else:
            rows = agents
            layout = graph.layout_of(agents)
        mode = self.joint_mode if joint else self.mode
        count = mode.num_embeddings
        nodes = tokens.nodes
        poses = graph.poses[rows]
        across = self._agent_edges(graph) if joint else None
        steady = constant_velocity_of(batch, self.horizon)
        start = self.start(batch["agent"].anchors, steady)[rows, :count]  # joint modes are the first group

        x = (tokens.agent[rows][:, None] + mode.weight).flatten(0, 1)  # [B · count, dim]
        if self.anchor_steps:
            x = self.anchor_norm(x + self.anchor(scaled_paths(start)))
        edges = self._scene_edges(0, graph, poses, rows, layout).repeat_receivers(count)
        x = self._attend(0, x, nodes, edges, across)
        offset, scale = self.propose_head(x.unflatten(0, (-1, count)))  # [B, count, F, 2]
        trajectory = start + offset
        proposal = None
        proposal_scale = None
        if self.refine:  # has layers
            proposal = trajectory
            proposal_scale = scale
            fixed = proposal.detach()
            x = self.norm(x + self.proposal(scaled_paths(fixed)))
            end = end_pose(fixed[:, :, : self.refine_step], poses)
            edges = self._scene_edges(1, graph, end, rows.repeat_interleave(count), layout.repeat(count))
            x = self._attend(1, x, nodes, edges, across)
            offset, scale = self.refine_head(x.unflatten(0, (-1, count)))
            trajectory = fixed + offset
        logits = at_least_float32(self.logit_head(x)).reshape(-1, count)
        if joint:  # one probability per joint mode
            scene = graph.scene[: graph.num_agents]
            logits = segment_mean(logits, scene, batch.num_graphs)[scene]
        groups = count // self.modes
        return Prediction(trajectory, scale, logits, proposal, proposal_scale, groups)

    def start(self, anchors: Tensor, steady: Tensor) -> Tensor:
        """Return the starts of proposals: ``[A, 1, F, 2]`` for all modes, or ``[A, M, F, 2]`` for each.

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

    def _attend(self, stage: int, x: Tensor, nodes: Tensor, scene: Edges, across: Edges | None) -> Tensor:
        """Update the modes ``x`` of a stage from the ``scene``, whose tokens are ``nodes``, and each other.

        With ``across``, a mode also attends to the modes of the same index of other agents.
        """
        layers = self.propose if stage == 0 else self.refine
        modes = Edges.within_groups(x, self.modes)
        for scene_layer, mode_layer in zip(layers[0::2], layers[1::2], strict=True):
            x = scene_layer(x, scene, nodes)
            x = mode_layer(x, modes)
        if across is None:
            return x
        by_mode = x.unflatten(0, (-1, self.modes)).unbind(1)
        attended = [self.across[stage](mode, across) for mode in by_mode]
        return torch.stack(attended, 1).flatten(0, 1)

    def _scene_edges(
        self, stage: int, graph: TokenGraph, poses: Pose[Tensor], agents: Tensor, layout: Layout
    ) -> Edges:
        """Relate the tokens of the scene to poses within the radius.

        Args:
            stage: 0 propose, 1 refine.
            poses: ``[M]`` of the modes.
            agents: ``[M]``, the row of each pose's agent.
            layout: of the poses.
        """
        index, features, fading = radius_edges(graph, poses, self.radius[stage], agents, layout)
        return Edges(
            index=index,
            bias=None if self.published else self.bias[stage](features) + fading,
            senders=graph.padding,
            receivers=layout,
            poses=(graph.poses, poses),
            features=features.T,
            dense=self.evaluation == "dense",
        )

    def _agent_edges(self, graph: TokenGraph) -> Edges:
        """Relate neighbouring agents, whose modes of the same index attend to each other, at their poses."""
        index = graph.index[:, : graph.num_agent_edges]
        kind = torch.full_like(index[0], MODE_EDGE_KINDS.index("agent"))
        sender = graph.poses.rows.index_select(1, index[0])
        receiver = graph.poses.rows.index_select(1, index[1])
        features = edge_features(sender, receiver, kind, len(MODE_EDGE_KINDS))
        agents = graph.poses[: graph.num_agents]
        return Edges(
            index=index,
            bias=None if self.published else self.across_bias(features),
            senders=graph.agents,
            receivers=graph.agents,
            poses=(agents, agents),
            features=features.T,
            reached=reached_by(index[1], graph.num_agents),
            dense=self.evaluation == "dense",
        )
