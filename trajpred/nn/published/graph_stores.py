"""The stores of a graph (PyG's ``HeteroData``): features by name, edge sets, and the graph of each item."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

#: ``(source, name, target)`` of an edge set, or its middle.
EdgeSetName = str | tuple[str, str, str]


def batch_of_nodes(nodes: Any, sender: Tensor | None, context: Tensor) -> Tensor:
    """Return the graph of each node: that of its store, otherwise 0."""
    if "batch" in nodes:
        batch: Tensor = nodes.batch
        return batch
    count = 0 if sender is None else sender.shape[0]
    return context.new_zeros(count, dtype=torch.int64)


def batch_of_edges(edges: Any, nodes: Any) -> Tensor:
    """Return the graph of each edge: that of its store, otherwise of its source node, otherwise 0."""
    if "batch" in edges:
        batch: Tensor = edges.batch
        return batch
    source = edges.edge_index[0]
    if "batch" in nodes:
        return nodes.batch[source]
    return torch.zeros_like(source)


def feature(store: Any, name: str | None) -> Tensor | None:
    """Return a feature of a store, None without a name."""
    if name is None:
        return None
    values: Tensor = store[name]
    return values


def edge_type_of(graph: HeteroData, name: EdgeSetName | None) -> tuple[str, str, str]:
    """Find the edge set with this name, which may be its middle if unique."""
    matches = [edge_type for edge_type in graph.edge_types if name in (edge_type, edge_type[1])]
    if len(matches) != 1:
        raise ValueError(f"edge_set_name {name!r} matches {len(matches)} of {graph.edge_types}")
    edge_type: tuple[str, str, str] = matches[0]
    return edge_type


def rows(store: Any) -> int:
    """Count the nodes of a store whose features may have any names."""
    for name, value in store.items():
        if isinstance(value, Tensor) and name != "ptr":
            return value.shape[0]
    return int(store.num_nodes)
