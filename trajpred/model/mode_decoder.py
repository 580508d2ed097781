"""The default decoder: K mode tokens per agent propose a future, re-anchor at its end point and refine it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.errors import require, require_not_negative
from trajpred.features.lane_futures import MODES
from trajpred.geometry import Pose
from trajpred.model.heads import CurveHead
from trajpred.model.mode_layers import ModeLayers, end_pose, scaled_paths
from trajpred.model.mode_relations import same_mode_edges, scene_edges
from trajpred.model.scene_decoder import Prediction, SceneDecoder, constant_velocity_of, scene_mean
from trajpred.model.scene_encoder import Evaluation, RelativePose
from trajpred.model.token_encoder import SceneTokens, require_sizes
from trajpred.model.token_graph import TokenGraph
from trajpred.nn import DenseRelation, EdgeRelation, GroupRelation, Padding, at_least_float32, mlp
from trajpred.nn.edge_attention import Operator

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
