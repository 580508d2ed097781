"""Random directed graphs, and their structure."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trajpred.nn import GraphStructure, Layout

#: Types of edges, from 1.
TYPES = 4


def random_edges(sizes: list[int], share: float = 0.2) -> Tensor:
    """Draw a share of all edges within graphs of these sizes, self loops among them, in any order."""
    graph = torch.repeat_interleave(torch.tensor(sizes))
    within = graph[:, None] == graph
    drawn = torch.rand(len(graph), len(graph)) < share
    edges = (within & drawn).nonzero().T
    return edges[:, torch.randperm(edges.shape[1])]


def random_graph(sizes: list[int], **options: Any) -> tuple[Tensor, GraphStructure]:
    """Return the mask of the nodes of graphs of these sizes, and their structure."""
    edges = random_edges(sizes, 0.3)
    types = torch.randint(1, TYPES + 1, (edges.shape[1], 2))
    mask = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
    padding = Layout.of_counts(sizes)
    return mask, GraphStructure.of(edges, types, padding, **options)
