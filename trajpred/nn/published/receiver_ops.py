"""Pooling and softmax over the items of each receiver, also with TF-GNN's signature for graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.utils import scatter

from trajpred.nn.segment import segment_softmax

#: ``f(graph, receiver_tag, edge_set_name=…, feature_value=…, **options)``, or with ``node_set_name``.
ReceiverOp = Callable[..., Tensor]
EdgeSetName = tuple[str, str, str]
#: The reduce types; several are joined by ``|``, and their results are then concatenated.
REDUCE_TYPES = ("sum", "mean", "max", "max_no_inf", "min", "min_no_inf", "prod")


def reduce_items(value: Tensor, receiver: Tensor, num_receivers: int, reduce_type: str = "sum") -> Tensor:
    """Reduce ``[items, ...]`` to ``[num_receivers, ...]`` by one of :data:`REDUCE_TYPES`.

    Receivers without items get 0 (sum, mean, and the types with ``_no_inf``), 1 (prod), or the lowest (max)
    or highest (min) finite number of the dtype. Raises: ValueError for another reduce type.
    """
    kinds = reduce_type.split("|") if isinstance(reduce_type, str) else [reduce_type]
    unknown = [kind for kind in kinds if kind not in REDUCE_TYPES]
    if unknown:
        known = ", ".join(REDUCE_TYPES)
        raise ValueError(f"reduce_type must be one of {known}, or several joined by '|', not {reduce_type!r}")
    parts = [_reduce(value, receiver, num_receivers, kind) for kind in kinds]
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def _reduce(value: Tensor, receiver: Tensor, num_receivers: int, kind: str) -> Tensor:
    name, _, zero = kind.partition("_")
    if zero or name in ("sum", "mean"):  # 0 without items, as in PyG
        return scatter(value, receiver, 0, num_receivers, name)
    limits = torch.finfo(value.dtype) if value.is_floating_point() else torch.iinfo(value.dtype)
    start = {"max": limits.min, "min": limits.max, "prod": 1}[name]
    index = receiver.reshape(-1, *[1] * (value.ndim - 1)).expand_as(value)
    how = {"max": "amax", "min": "amin", "prod": "prod"}[name]
    out = value.new_full((num_receivers, *value.shape[1:]), start)
    return out.scatter_reduce(0, index, value, how, include_self=True)


def softmax(
    graph: HeteroData,
    receiver_tag: int,
    *,
    edge_set_name: EdgeSetName | None = None,
    node_set_name: str | None = None,
    feature_value: Tensor,
) -> Tensor:
    """Normalise ``[items, ...]`` over the items of each receiver, TF-GNN's ``softmax``."""
    receiver, count = receivers(graph, receiver_tag, edge_set_name, node_set_name)
    return segment_softmax(feature_value, receiver, count)


def pool(
    graph: HeteroData,
    receiver_tag: int,
    *,
    edge_set_name: EdgeSetName | None = None,
    node_set_name: str | None = None,
    reduce_type: str = "sum",
    feature_value: Tensor,
) -> Tensor:
    """Reduce ``[items, ...]`` to the receivers, TF-GNN's ``pool``; see :func:`reduce_items`."""
    receiver, count = receivers(graph, receiver_tag, edge_set_name, node_set_name)
    return reduce_items(feature_value, receiver, count, reduce_type)


def receivers(
    graph: HeteroData, receiver_tag: int, edge_set_name: EdgeSetName | None, node_set_name: str | None
) -> tuple[Tensor, int]:
    """Return the receiver ``[items]`` of each item, and the number of receivers."""
    if receiver_tag == 2:  # the context: items belong to the graph of their store
        return _graph_of_items(graph, edge_set_name, node_set_name), rows(graph["context"])
    if edge_set_name is None:
        raise ValueError("edge_set_name is needed unless the receiver is the context")
    nodes = graph[edge_set_name[2 * receiver_tag]]
    return graph[edge_set_name].edge_index[receiver_tag], rows(nodes)


def rows(nodes: Any) -> int:
    """Count the nodes of a store whose features may have any names."""
    features = [value for key, value in nodes.items() if isinstance(value, Tensor) and key != "ptr"]
    return features[0].shape[0] if features else int(nodes.num_nodes)


def _graph_of_items(
    graph: HeteroData, edge_set_name: EdgeSetName | None, node_set_name: str | None
) -> Tensor:
    """Return the graph ``[items]`` of each item: of its store, or of an edge's source node."""
    store = graph[node_set_name] if edge_set_name is None else graph[edge_set_name]
    if "batch" in store:
        return store.batch
    if edge_set_name is None:
        return torch.zeros(rows(store), dtype=torch.int64)
    source, nodes = store.edge_index[0], graph[edge_set_name[0]]
    return nodes.batch[source] if "batch" in nodes else torch.zeros_like(source)


def plain_graph(
    receiver_tag: int, index: Tensor, origin: Tensor | None, num_receivers: int, num_senders: int
) -> tuple[HeteroData, EdgeSetName]:
    """Describe plain tensors as a graph: nodes ``sender`` and ``receiver``, and their edges.

    With the context as receiver, the items are the edges of ``("items", "to", "context")``.
    """
    graph = HeteroData()
    if origin is None:
        name = ("items", "to", "context")
        graph["context"].num_nodes = num_receivers
        graph[name].batch = index
        return graph, name
    ends, edges = ("sender", "receiver"), (origin, index)
    ends, edges = (ends, edges) if receiver_tag == 1 else (ends[::-1], edges[::-1])
    graph["sender"].num_nodes, graph["receiver"].num_nodes = num_senders, num_receivers
    name = (ends[0], "to", ends[1])
    graph[name].edge_index = torch.stack(edges)
    return graph, name
