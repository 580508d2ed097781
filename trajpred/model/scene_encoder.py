"""Scene encoders: the graph of a batch's tokens, the base class of encoders, and the default encoder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.data.environment import in_repository
from trajpred.data.forecast import Attention
from trajpred.data.geometry import POSE_SCALE, Pose, relative_pose, unit_vector
from trajpred.data.lane_map import MARK_TYPES
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import DataError, require, require_not_negative
from trajpred.features.config import EDGE_POSE, HISTORY, LANE_KINDS, LANE_POINT, VALID, edge_channels
from trajpred.features.scene_graph import AGENT_TO_AGENT, EDGE_KINDS, RELATIONS, edge_features
from trajpred.model.attention import Pairs, recorded, records
from trajpred.nn import EdgeBias, Edges, GraphAttention, GraphTransformerLayer, Layout, mlp
from trajpred.nn.attention import reached_by
from trajpred.nn.segment import LOWEST

#: The page about users' own encoders and decoders.
PAGE = in_repository("docs/how-to/own-model.md")
#: How histories with missing steps are read, see :class:`AgentEncoder`.
Missing = Literal["zeros", "masked"]
#: Channels of :attr:`TokenGraph.features`.
EDGE_CHANNELS = len(edge_channels(EDGE_KINDS))
#: How attention is computed, see :attr:`trajpred.nn.Edges.dense`: ``dense`` is fast, ``edges`` is for scenes
#: with many nodes and few edges. The results are equal.
Evaluation = Literal["dense", "edges"]
#: Where relative poses enter: the scores (``bias``), the attended values (``values``), ``both`` or ``none``.
RelativePose = Literal["both", "bias", "values", "none"]


@dataclass
class TokenGraph:
    """The four relations of a batch as one edge list, built once per forward pass for encoder and decoder.

    Attributes:
        poses: ``[N, 2]`` metres and ``[N]`` radians, N = A + L, in the frame of each scene.
        index: ``[2, E]`` sender and receiver.
        kind: ``[E]`` index into ``EDGE_KINDS``.
        num_agent_edges: number of edges between agents, which come first.
        scene: ``[N]`` scene of each node.
        padding: layout of the nodes in their scenes, agents first.
        agents: layout of the agents without lanes.
        heading: ``[S]`` radians, of each scene's focal agent, whose position is the scene's origin.
        eigenvectors: :func:`~trajpred.nn.laplacian_positional_encoding` of the lane topology, ``[L, k]``, if
            the batch has it: it is computed with the batch, since ONNX cannot compute it.
        all_pairs: whether the edges are all pairs of nodes in one scene, including kind "none", so that no
            size depends on the data, as in an exported graph with fixed sizes.
    """

    poses: Pose[Tensor]
    index: Tensor
    kind: Tensor
    num_agent_edges: int
    scene: Tensor
    padding: Layout
    agents: Layout
    heading: Tensor
    eigenvectors: Tensor | None = None
    all_pairs: bool = False

    @classmethod
    def of(cls, batch: HeteroData) -> TokenGraph:
        """Build the graph of a batch of :func:`~trajpred.features.scene_graph.scene_graph`."""
        agent, lane = batch["agent"], batch["lane"]
        first_row = {"agent": 0, "lane": agent.num_nodes}
        senders = []
        receivers = []
        kinds = []
        for relation in RELATIONS:
            source, _, target = relation
            sender, receiver = batch[relation].edge_index
            senders.append(sender + first_row[source])
            receivers.append(receiver + first_row[target])
            kinds.append(batch[relation].edge_kind)
        agents = Layout.of(agent.batch, agent.ptr, getattr(agent, "_num_nodes", None))
        lanes = Layout.of(lane.batch, lane.ptr, getattr(lane, "_num_nodes", None))
        position = torch.cat((agent.position, lane.position))
        heading = torch.cat((agent.heading, lane.heading))
        return cls(
            poses=Pose(position, heading),
            index=torch.stack((torch.cat(senders), torch.cat(receivers))),
            kind=torch.cat(kinds),
            num_agent_edges=batch[AGENT_TO_AGENT].edge_kind.shape[0],
            scene=torch.cat((agent.batch, lane.batch)),
            padding=agents.beside(lanes),
            agents=agents,
            heading=batch.heading,
            eigenvectors=lane.eigenvectors if "eigenvectors" in lane else None,
            all_pairs="all_pairs" in batch,
        )

    @property
    def num_agents(self) -> int:
        return self.agents.num_nodes

    def layout_of(self, agents: Tensor) -> Layout:
        """Return the layout of a subset of the agents, ascending rows ``[B]``."""
        scene = self.scene[agents]
        zeros = self.agents.count.new_zeros(self.agents.scenes)
        count = zeros.index_add(0, scene, torch.ones_like(scene))
        pointer = torch.nn.functional.pad(count.cumsum(0), (1, 0))
        return Layout.of(scene, pointer)

    @cached_property
    def features(self) -> Tensor:
        """Relative poses and kinds of the edges, ``[E, EDGE_CHANNELS]``."""
        sender = self.poses.rows.index_select(1, self.index[0])
        receiver = self.poses.rows.index_select(1, self.index[1])
        return edge_features(sender, receiver, self.kind, len(EDGE_KINDS)).T

    @cached_property
    def focal_poses(self) -> Tensor:
        """Pose of every node in its focal agent's frame, ``[N, 4]``: scaled position, cosine, sine."""
        origin = torch.zeros_like(self.poses.position)
        focal = Pose(origin, self.heading[self.scene])
        relative = relative_pose(self.poses, focal)
        return torch.cat((relative.position / POSE_SCALE, unit_vector(relative.heading)), -1)


@dataclass
class SceneTokens:
    """The output of an encoder for a batch.

    Attributes:
        agent: ``[A, dim]``.
        lane: ``[L, dim]``.
        graph: poses and edges of the tokens.
    """

    agent: Tensor
    lane: Tensor
    graph: TokenGraph

    @property
    def nodes(self) -> Tensor:
        """Tokens of all agents of the batch, then of all lanes, ``[A + L, dim]``."""
        return torch.cat((self.agent, self.lane))


class _StridedConv(nn.Module):
    """Convolution over time of width 3 and stride 2, padded so that the last window ends at the last step.

    Features ``[A, T, C]`` are normalised over the channels and the ``observed`` steps ``[A, T, 1]``; missing
    steps are 0 like the padding, so that they do not change the others.
    """

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(fan_in, fan_out, 3, stride=2)
        self.norm = nn.GroupNorm(1, fan_out)

    def forward(self, x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features after the convolution, and which of its steps are observed."""
        padding = 2 - (x.shape[1] - 1) % 2
        x = nn.functional.pad(x, (0, 0, padding, 0))
        observed = nn.functional.pad(observed, (0, 0, padding, 0))
        # The maximum of each window; TensorRT has no pooling over one axis.
        first_two = torch.maximum(observed[:, :-2:2], observed[:, 1:-1:2])
        observed = torch.maximum(first_two, observed[:, 2::2])
        # As one product: on a CPU, conv1d takes 1.5 to 3 times as long for few agents and channels.
        windows = torch.cat((x[:, :-2:2], x[:, 1:-1:2], x[:, 2::2]), -1)
        kernel = self.conv.weight.transpose(1, 2).flatten(1)
        x = nn.functional.linear(windows, kernel, self.conv.bias)
        # Group norm with the mean and variance of only the observed steps.
        count = x.shape[2] * observed.sum(1, keepdim=True)
        weight = observed / count.clamp(min=1)
        x = x - (x * weight).sum((1, 2), keepdim=True)
        variance = (x * x * weight).sum((1, 2), keepdim=True)
        deviation = torch.sqrt(variance + self.norm.eps)
        x = torch.addcmul(self.norm.bias, x / deviation, self.norm.weight)
        return nn.functional.gelu(x) * observed, observed


class AgentEncoder(nn.Module):
    """Encode histories, each in its agent's frame, with three strided convolutions.

    The token combines the last and the maximum feature over time. Any history length works; 50 steps are
    reduced to 7.

    Args:
        dim: channels of a token.
        missing: steps not observed are ``masked``, so that leading ones have no effect, or read as ``zeros``.

    Shapes: history ``[A, T, len(HISTORY)]``, object type ``[A]`` -> ``[A, dim]``.
    """

    def __init__(self, dim: int, missing: Missing = "zeros") -> None:
        super().__init__()
        self.missing = missing
        widths = (len(HISTORY), dim // 2, dim, dim)
        self.halve = nn.ModuleList(_StridedConv(fan_in, fan_out) for fan_in, fan_out in pairwise(widths))
        self.object_type = nn.Embedding(len(OBJECT_TYPES), dim)
        self.out = nn.Linear(2 * dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, history: Tensor, object_type: Tensor) -> Tensor:
        x = history
        observed = history[..., VALID : VALID + 1]
        if self.missing != "masked":
            observed = torch.ones_like(observed)
        for layer in self.halve:
            x, observed = layer(x, observed)
        greatest = x.masked_fill(observed == 0, -1.0).amax(1)  # GELU is greater than -1
        summary = torch.cat((x[:, -1], greatest), -1)
        return self.norm(self.out(summary) + self.object_type(object_type))


class LaneEncoder(nn.Module):
    """Encode lane segments and crossings with a small PointNet (Qi et al. 2017).

    A per-point MLP and a maximum over the polyline, twice.

    Shapes: points ``[L, P, len(LANE_POINT)]``, kind and is_intersection ``[L]``, marks ``[L, 2]`` ->
    ``[L, dim]``.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.point = mlp(len(LANE_POINT), dim // 2, dim // 2)
        self.polyline = mlp(dim // 2, dim)
        self.context = nn.Linear(dim // 2, dim)
        self.kind = nn.Embedding(len(LANE_KINDS), dim)
        self.intersection = nn.Embedding(2, dim)
        self.left_mark = nn.Embedding(len(MARK_TYPES), dim)
        self.right_mark = nn.Embedding(len(MARK_TYPES), dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, points: Tensor, kind: Tensor, is_intersection: Tensor, marks: Tensor) -> Tensor:
        if points.is_cuda or torch.compiler.is_exporting():
            x = self._encode_shape(points)
        else:  # chunks whose activations fit into the CPU's cache are faster
            x = torch.cat([self._encode_shape(chunk) for chunk in points.split(128)])
        attributes = self.kind(kind) + self.intersection(is_intersection)
        x = x + attributes + self.left_mark(marks[:, 0])
        return self.norm(x + self.right_mark(marks[:, 1]))

    def _encode_shape(self, points: Tensor) -> Tensor:
        x = self.point(points)
        context = self.context(x.amax(1, keepdim=True))
        hidden = nn.functional.gelu(self.polyline(x) + context)
        return hidden.amax(1)


class TokenEncoder(nn.Module):
    """Encode a batch into one token per agent and lane. Subclass it for your own encoder.

    A subclass implements :meth:`interact`, which exchanges information between the tokens.

    Args:
        dim: channels of a token.
        agent: encoder of histories, by default :class:`AgentEncoder`.
        lane: encoder of polylines, by default :class:`LaneEncoder`.

    Example:
        >>> class MeanEncoder(TokenEncoder):
        ...     def interact(self, x, graph):  # the mean over the tokens of each scene
        ...         total = x.new_zeros(graph.padding.scenes, self.dim).index_add(0, graph.scene, x)
        ...         return x + (total / graph.padding.count[:, None])[graph.scene]
    """

    #: The attention modules whose weights :meth:`attention_weights` reports: ``GraphAttention``, or modules
    #: that return weights last if called with ``return_attention=True``.
    attending: ClassVar[tuple[type[nn.Module], ...]] = ()
    #: Number of columns of ``graph.eigenvectors`` that the encoder reads; batches of its scene contain them.
    num_eigenvectors: int = 0

    def __init__(self, dim: int = 128, agent: nn.Module | None = None, lane: nn.Module | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.agent = agent or AgentEncoder(dim)
        self.lane = lane or LaneEncoder(dim)

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        """Update the tokens of agents and lanes from each other: ``[A + L, dim]`` -> the same shape."""
        raise DataError(f"{type(self).__name__} must have an interact, see {PAGE}", field="encoder")

    def auxiliary_losses(self, batch: HeteroData) -> dict[str, Tensor]:
        """Return the encoder's own training losses by name, with weight 1 unless ``LossConfig`` has one."""
        return {}

    @property
    def has_attention(self) -> bool:
        """Whether :meth:`attention_weights` can be called."""
        return bool(self.attending)

    @torch.inference_mode()
    def attention_weights(self, batch: HeteroData) -> list[Attention]:
        """Return the attention weights of every layer and head, scene by scene, from one forward pass.

        Meant for evaluation mode. Layers are those of :attr:`attending`, in order of execution.

        Raises:
            DataError: if the encoder does not report attention.
        """
        require(self.has_attention, "encoder", f"{type(self).__name__} does not report attention")
        with recorded(self, self.attending) as attention:
            graph = self.encode(batch).graph
        layers = []
        for name, weight in attention:
            layers += self.attended(name, weight, graph, batch)
        return records(layers, batch)

    def attended(self, name: str, weight: Any, graph: TokenGraph, batch: HeteroData) -> list[Pairs]:
        """Assign the attention of a module to pairs of tokens: one entry per layer.

        By default, weights ``[E, H]`` belong to the edges of ``graph``, ``[E + N, H]`` also to a loop for
        every token, and ``[S, H, n, n]`` to the padded scenes, where leading rows that are not tokens are
        omitted.

        Args:
            name: name of the module, as in ``named_modules``.
            weight: its output.
            graph: graph of the tokens.
            batch: the encoded batch.
        """
        if weight.ndim == 4:
            n = graph.padding.size
            between_tokens = weight[..., -n:, -n:]
            return [Pairs.of_scenes(between_tokens, graph.padding, graph.num_agents)]
        num_loops = weight.shape[0] - graph.index.shape[1]
        loops = torch.arange(num_loops, device=weight.device).expand(2, -1)
        return [Pairs(torch.cat((graph.index, loops), 1), weight)]

    def encode(self, batch: HeteroData) -> SceneTokens:
        """Encode all agents and lanes of a batch (:func:`trajpred.features.scene_graph.scene_graph`)."""
        agent = batch["agent"]
        graph = TokenGraph.of(batch)
        agents = self.agent(agent.history, agent.object_type)
        lanes = self.encode_lanes(batch)
        tokens = torch.cat((agents, lanes))
        x = self.interact(tokens, graph)
        if not isinstance(x, Tensor) or (not torch.compiler.is_exporting() and x.shape != tokens.shape):
            problem = f"{type(self).__name__}.interact must return a tensor of the shape of its input"
            raise DataError(f"{problem}, see {PAGE}", field="encoder")
        return SceneTokens(x[: graph.num_agents], x[graph.num_agents :], graph)

    def encode_lanes(self, batch: HeteroData) -> Tensor:
        """Encode each lane of a batch on its own, ``[L, dim]``; existing tokens are returned."""
        lane = batch["lane"]
        if "token" in lane:
            return lane.token
        return self.lane(lane.points, lane.kind, lane.is_intersection, lane.marks)


def require_sizes(dim: int, heads: int, **layers: int) -> None:
    """Raise :class:`DataError` unless ``heads`` divides ``dim`` and the numbers of layers are valid."""
    require(heads > 0 and dim % heads == 0, "heads", f"must divide dim {dim}, is {heads}")
    require_not_negative(**layers)


def pose_bias(channels: int, heads: int, pose: RelativePose) -> EdgeBias:
    """Build the attention bias from edge features; without relative poses only the edge's kind enters."""
    if pose in ("both", "bias"):
        return EdgeBias(channels, heads)
    return EdgeBias(channels, heads, skip=len(EDGE_POSE))


class SceneEncoder(TokenEncoder):
    """Graph-transformer layers over all four relations at once.

    Agents and lanes are nodes of one graph, so each receiver weighs its lanes against its neighbours in a
    single softmax. The kind of an edge is part of its features.

    Args:
        dim: channels of a token.
        heads: attention heads.
        layers: graph-transformer layers.
        dropout: rate on residual branches.
        drop_path: stochastic depth, see :class:`~trajpred.nn.GraphTransformerLayer`.
        norm: ``post`` or ``pre`` layer normalisation.
        evaluation: see :data:`Evaluation`.
        pose: see :data:`RelativePose`.
        missing: see :class:`~trajpred.model.scene_encoder.AgentEncoder`.

    Example:
        >>> tokens = SceneEncoder(layers=2).encode(build_batch([scenario], SceneConfig()))
        >>> tokens.agent.shape
        torch.Size([61, 128])
    """

    attending: ClassVar = (GraphAttention,)

    def __init__(
        self,
        dim: int = 128,
        heads: int = 8,
        layers: int = 4,
        dropout: float = 0.1,
        drop_path: float = 0.0,
        norm: Literal["post", "pre"] = "post",
        evaluation: Evaluation = "dense",
        pose: RelativePose = "both",
        missing: Missing = "zeros",
    ) -> None:
        require_sizes(dim, heads, layers=layers)
        super().__init__(dim, AgentEncoder(dim, missing))
        self.heads = heads
        self.evaluation = evaluation
        self.bias = pose_bias(EDGE_CHANNELS, heads, pose)

        def layer() -> GraphTransformerLayer:
            attention = GraphAttention(dim, heads, poses=pose in ("both", "values"))
            return GraphTransformerLayer(attention, dim, dropout=dropout, drop_path=drop_path, norm=norm)

        self.layers = nn.ModuleList(layer() for _ in range(layers))

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        """Update all tokens over one edge list, whose bias is computed once for all layers."""
        bias = self.bias(graph.features.T)
        if graph.all_pairs:
            bias = bias.masked_fill(graph.kind == 0, LOWEST)
        edges = Edges(
            index=graph.index,
            bias=bias,
            senders=graph.padding,
            receivers=graph.padding,
            poses=(graph.poses, graph.poses),
            reached=reached_by(graph.index[1], graph.padding.num_nodes, graph.kind > 0),
            dense=self.evaluation == "dense",
        )
        for layer in self.layers:
            x = layer(x, edges)
        return x
