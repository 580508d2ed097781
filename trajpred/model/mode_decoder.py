"""The mode decoder: K mode tokens per agent propose a future, look again from its end, and refine it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.geometry import Pose, direction, norm, to_global
from trajpred.graph.config import LENGTH_SCALE
from trajpred.model.heads import CurveHead, wide
from trajpred.model.joint_graph import JointGraph
from trajpred.model.mode_edges import MODE_EDGE_CHANNELS, edges_across, edges_around
from trajpred.model.prediction import Prediction, driving_on, scene_mean
from trajpred.model.scene_decoder import SceneDecoder
from trajpred.model.scene_encoder import Evaluation, RelativePose, pose_bias
from trajpred.model.token_encoder import SceneTokens
from trajpred.nn import (
    DenseRelation,
    EdgeRelation,
    GraphAttention,
    GraphTransformerLayer,
    GroupRelation,
    MatrixRelation,
    mlp,
)

#: A mode that ends nearer than this (m) to where it starts keeps the agent's heading.
STANDING_M = 1.0


class ModeDecoder(SceneDecoder):
    """Mode tokens on the same core as the encoder: mode ← scene, mode ↔ mode, twice.

    A proposal is a smooth offset from driving on at constant velocity. Each mode is then re-anchored at its
    proposed end point, a new pose (detached), hears what lies there, and refines.

    Args:
        horizon: future steps F.
        dim: channels of a token, the encoder's.
        heads: attention heads.
        modes: futures per agent K.
        degree: of the Bézier curves that futures and their scales are.
        propose_layers, refine_layers: pairs of mode ← scene and mode ↔ mode layers; with none to refine,
            the proposal is the answer.
        propose_radius_m, refine_radius_m: how far around its pose a mode hears.
        joint: also learn joint futures: a second set of mode embeddings through the same weights, whose
            modes hear the modes of the same index of other agents.
        dropout, drop_path, norm, evaluation, pose: as in :class:`~trajpred.model.scene_encoder.SceneEncoder`.
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
        dropout: float = 0.1,
        drop_path: float = 0.0,
        norm: Literal["post", "pre"] = "post",
        evaluation: Evaluation = "dense",
        pose: RelativePose = "both",
        joint: bool = False,
    ) -> None:
        super().__init__(horizon, dim, modes, joint)
        self.evaluation = evaluation
        self.radius = (propose_radius_m, refine_radius_m)
        self.mode = nn.Embedding(modes, dim)
        stages = 2 if refine_layers else 1
        self.bias = nn.ModuleList(pose_bias(MODE_EDGE_CHANNELS, heads, pose) for _ in range(stages))

        def one(poses: bool) -> GraphTransformerLayer:
            attention = GraphAttention(dim, heads, poses=poses and pose in ("both", "values"))
            return GraphTransformerLayer(attention, dim, dropout=dropout, drop_path=drop_path, norm=norm)

        def layers(count: int) -> nn.ModuleList:
            # mode ← scene with poses and mode ↔ mode without, in turns.
            return nn.ModuleList(one(poses) for _ in range(count) for poses in (True, False))

        self.propose, self.refine = layers(propose_layers), layers(refine_layers)
        self.propose_head = CurveHead(dim, horizon, degree)
        if refine_layers:
            self.refine_head = CurveHead(dim, horizon, degree)
            self.proposal = mlp(horizon * 2, dim, dim)
            self.norm = nn.LayerNorm(dim)
        self.logit_head = mlp(dim, dim, 1)
        if joint:
            self.joint_mode = nn.Embedding(modes, dim)
            self.across_bias = pose_bias(MODE_EDGE_CHANNELS, heads, pose)
            self.across = nn.ModuleList(one(True) for _ in range(stages))

    def forward(
        self, tokens: SceneTokens, batch: HeteroData, joint: bool = False, agents: Tensor | None = None
    ) -> Prediction:
        """Futures of the agents of ``batch`` from the encoder's ``tokens``.

        Args:
            joint: mode k of all agents of a scene is one possible world, and ``logits`` are the same for all
                of them.
            agents: ``[B]`` rows of those to predict, ascending; by default all, as joint futures need.

        Raises: ValueError if the decoder was made without joint modes, or asked for those of some agents.
        """
        if joint and not self.joint:
            raise ValueError("this decoder has no joint modes; make it with joint=True")
        if joint and agents is not None:
            raise ValueError("joint futures are those of all agents")
        graph, scene = tokens.graph, tokens.graph.scene
        who = torch.arange(graph.num_agents, device=scene.device) if agents is None else agents

        def around(stage: int, poses: Pose[Tensor]) -> EdgeRelation | DenseRelation:
            return self._surroundings(graph, stage, poses, who)

        start = driving_on(batch, self.horizon)[who]
        across = self._across(graph) if joint else None
        found = self.decode(tokens.agent[who], tokens.joint, graph.poses[who], start, around, across)
        if joint:  # every agent of a scene says the same
            scene = scene[: graph.num_agents]
            found.logits = scene_mean(found.logits, scene, batch.num_graphs)[scene]
        return found

    def decode(
        self,
        agent: Tensor,
        scene: Tensor,
        poses: Pose[Tensor],
        start: Tensor,
        around: Callable[[int, Pose[Tensor]], EdgeRelation | DenseRelation | MatrixRelation],
        across: EdgeRelation | DenseRelation | None = None,
    ) -> Prediction:
        """Futures of B agents, however relations are evaluated.

        Args:
            agent: ``[B, dim]`` their tokens; scene: ``[N, dim]`` all tokens.
            poses: ``[B, 2]``, ``[B]`` of the agents.
            start: ``[B, F, 2]`` metres, own frames: what the proposals are offsets from.
            around: stage (0 propose, 1 refine) and poses ``[M, 2]`` (those of the agents, or one of every
                mode) -> the relation by which they hear ``scene``.
            across: joint futures are wanted; the relation by which modes of several agents hear each other.
        """
        mode = self.mode if across is None else self.joint_mode
        x = (agent[:, None] + mode.weight).flatten(0, 1)
        x = self._hear(0, x, scene, around(0, poses).repeat_receivers(self.modes), across)
        offset, scale = self._futures(self.propose_head, x)
        proposal = start[:, None] + offset
        if not self.refine:
            return Prediction(proposal, scale, self._logits(x))

        anchored = proposal.detach()
        x = self.norm(x + self.proposal(anchored.flatten(0, 1).flatten(1) / LENGTH_SCALE))
        x = self._hear(1, x, scene, around(1, end_pose(anchored, poses)), across)
        offset, final = self._futures(self.refine_head, x)
        return Prediction(anchored + offset, final, self._logits(x), proposal, scale)

    def _hear(
        self,
        stage: int,
        x: Tensor,
        scene: Tensor,
        around: EdgeRelation | DenseRelation | MatrixRelation,
        across: EdgeRelation | DenseRelation | None,
    ) -> Tensor:
        layers, among = (self.propose, self.refine)[stage], GroupRelation(self.modes)
        for scene_layer, mode_layer in zip(layers[0::2], layers[1::2], strict=True):
            x = mode_layer(scene_layer(x, around, scene), among)
        return x if across is None else self.across[stage](x, across)

    def _futures(self, head: CurveHead, x: Tensor) -> tuple[Tensor, Tensor]:
        """Offset and scale of every mode, ``[A, K, F, 2]`` metres."""
        offset, scale = head(x)
        return offset.unflatten(0, (-1, self.modes)), scale.unflatten(0, (-1, self.modes))

    def _logits(self, x: Tensor) -> Tensor:
        """``[A, K]``."""
        return wide(self.logit_head(x)).reshape(-1, self.modes)

    def _surroundings(
        self, graph: JointGraph, stage: int, poses: Pose[Tensor], who: Tensor
    ) -> EdgeRelation | DenseRelation:
        """What lies near the poses of the agents ``who``, equally many of each."""
        size = len(poses.heading)
        each = size // max(len(who), 1)
        modes, owner = graph.chosen(who).repeat(each), who.repeat_interleave(each)
        index, features = edges_around(graph, poses, self.radius[stage], owner, modes)
        edges = EdgeRelation(index, self.bias[stage](features), len(graph), size, (graph.poses, poses))
        return edges if self.evaluation == "edges" else DenseRelation.of(edges, graph.padding, modes)

    def _across(self, graph: JointGraph) -> EdgeRelation | DenseRelation:
        """Mode k of an agent hears mode k of its neighbours, from where the agents stand."""
        index, features = edges_across(graph)
        size, agents = graph.num_agents, graph.poses[: graph.num_agents]
        edges = EdgeRelation(index, self.across_bias(features), size, size, (agents, agents))
        edges, padding = edges.copies(self.modes), graph.agents.copies(self.modes)
        return edges if self.evaluation == "edges" else DenseRelation.of(edges, padding, padding)


def end_pose(trajectory: Tensor, agents: Pose[Tensor]) -> Pose[Tensor]:
    """Pose at the end of each mode, in the common frame: ``[A·K, 2]``, ``[A·K]``.

    Args:
        trajectory: ``[A, K, F, 2]`` metres in the agents' frames, detached.
        agents: ``[A, 2]``, ``[A]``.
    """
    end = trajectory[:, :, -1]
    # Direction over the last second (10 steps), or as far back as there is.
    ahead = direction(end - trajectory[:, :, -min(11, trajectory.shape[2])])
    turn = torch.where(norm(end) < STANDING_M, torch.zeros_like(ahead), ahead)
    position = to_global(end, agents.position[:, None], agents.heading[:, None])
    return Pose(position.flatten(0, 1), (agents.heading[:, None] + turn).flatten())
