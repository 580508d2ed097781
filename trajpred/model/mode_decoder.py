"""The mode decoder: K mode tokens per agent propose a future, look again from its end, and refine it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.geometry import Pose, direction, norm, to_global
from trajpred.graph.config import LENGTH_SCALE
from trajpred.model.heads import CurveHead
from trajpred.model.joint_graph import JointGraph
from trajpred.model.mode_edges import MODE_EDGE_CHANNELS, edges_across, edges_around
from trajpred.model.prediction import Prediction, constant_velocity, scene_mean
from trajpred.model.scene_encoder import Evaluation, RelativePose, pose_bias
from trajpred.model.token_encoder import SceneTokens
from trajpred.nn import (
    DenseRelation,
    EdgeRelation,
    GraphAttention,
    GraphTransformerLayer,
    GroupRelation,
    mlp,
)

#: A mode that ends nearer than this (m) to where it starts keeps the agent's heading.
STANDING_M = 1.0


class ModeDecoder(nn.Module):
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
        super().__init__()
        self.horizon, self.dim, self.modes = horizon, dim, modes
        self.evaluation, self.joint = evaluation, joint
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
        scene, graph = tokens.joint, tokens.graph
        who = torch.arange(graph.num_agents, device=scene.device) if agents is None else agents
        poses = graph.poses[who]
        mode = self.joint_mode if joint else self.mode
        x = (tokens.agent[who, None] + mode.weight).flatten(0, 1)
        across = self._across(graph) if joint else None

        around = self._surroundings(graph, 0, poses, who, 1).repeat_receivers(self.modes)
        x = self._hear(0, x, scene, around, across)
        offset, scale = self._futures(self.propose_head, x)
        proposal = constant_velocity(batch, self.horizon)[who, None] + offset
        if not self.refine:
            return Prediction(proposal, scale, self._logits(x, batch, joint))

        anchored = proposal.detach()
        x = self.norm(x + self.proposal(anchored.flatten(0, 1).flatten(1) / LENGTH_SCALE))
        around = self._surroundings(graph, 1, end_pose(anchored, poses), who, self.modes)
        x = self._hear(1, x, scene, around, across)
        offset, final = self._futures(self.refine_head, x)
        return Prediction(anchored + offset, final, self._logits(x, batch, joint), proposal, scale)

    def _hear(
        self,
        stage: int,
        x: Tensor,
        scene: Tensor,
        around: EdgeRelation | DenseRelation,
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

    def _logits(self, x: Tensor, batch: HeteroData, joint: bool) -> Tensor:
        """``[A, K]``; with ``joint`` those of a scene, at each of its agents."""
        logits: Tensor = self.logit_head(x).reshape(-1, self.modes).float()
        scene = batch["agent"].batch
        return scene_mean(logits, scene, batch.num_graphs)[scene] if joint else logits

    def _surroundings(
        self, graph: JointGraph, stage: int, poses: Pose[Tensor], who: Tensor, each: int
    ) -> EdgeRelation | DenseRelation:
        """What lies near ``each`` poses of every agent of ``who``."""
        modes = graph.chosen(who).repeat(each)
        owner = who.repeat_interleave(each)
        index, features = edges_around(graph, poses, self.radius[stage], owner, modes)
        size = len(poses.heading)
        edges = EdgeRelation(index, self.bias[stage](features), len(graph), size, (graph.poses, poses))
        if self.evaluation == "edges":
            return edges
        return DenseRelation.of(edges, graph.padding, modes)

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
