from __future__ import annotations

import torch
from torch import Tensor

from tests.nn.parity.case import Case
from trajpred.nn import Padding
from trajpred.nn.published.graph_structure import (
    UNREACHABLE,
    GraphStructure,
    direct_edges,
    path_edges,
    shortest_paths,
)


def check(case: Case) -> None:
    n = case.options["num_nodes"]
    assert case.options["unreachable_value"] == UNREACHABLE
    case.options.ignore("isolated")
    edges, dense, spd = case["edge_index"], case["edge_type_dense"], case["spd"]
    # The publication gives each column of edge types its own range of rows and counts them from 2.
    types = case["edge_attr"] + 2 + 512 * torch.arange(case["edge_attr"].shape[1])
    padding = Padding.of_counts([n])
    reference = case["path_edge_input"]
    longest = max(reference.shape[2], int(spd[spd < UNREACHABLE].max()))

    structure = GraphStructure.of(edges, types, padding, multi_hop_max_dist=longest)
    case.close(structure.hops[0], "spd")
    case.close(structure.out_degree[0], "degree")
    case.close(structure.in_degree[0], "degree")
    case.close(
        GraphStructure.of(edges, types, padding, edge_type="single").edges[0, :, :, 0], "edge_type_dense"
    )

    hops, first = shortest_paths(edges, padding)
    path = path_edges(first, edges, padding, longest)
    assert (hops == spd).all() and ((direct_edges(edges, padding) >= 0) == (dense > 0).any(-1)).all()
    _check_paths(path, structure.edges[0], edges, dense, spd)
    # Where there is one shortest path only, it is the publication's. Its recursion takes node 0 in the
    # middle of a path for the end of it and then finds no edge (type 0): those paths are not comparable.
    same = (_path_counts(dense, spd) == 1) & (reference != 0).all(-1).all(-1)
    assert (structure.edges[0, :, :, : reference.shape[2]][same] == reference[same].clamp(min=0)).all()


def _check_paths(path: Tensor, types: Tensor, edges: Tensor, dense: Tensor, spd: Tensor) -> None:
    """Every path leads from i to j in ``spd`` edges; the types are those of its edges."""
    for i, j in torch.ones_like(spd).nonzero().tolist():
        length = int(spd[i, j]) if spd[i, j] < UNREACHABLE else 0
        columns, node = path[i, j].tolist(), i
        assert columns[length:] == [-1] * (len(columns) - length) and (types[i, j, length:] == 0).all()
        for k in range(length):
            sender, receiver = edges[:, columns[k]].tolist()
            assert sender == node and (types[i, j, k] == dense[sender, receiver]).all()
            node = receiver
        assert node == (j if length else i)


def _path_counts(dense: Tensor, spd: Tensor) -> Tensor:
    """Number of shortest paths: walks of ``spd`` steps."""
    adjacency = (dense > 0).any(-1).double()
    counts, walks = torch.zeros_like(adjacency), torch.eye(len(spd), dtype=torch.double)
    for hop in range(len(spd)):
        counts = torch.where(spd == hop, walks, counts)
        walks = walks @ adjacency
    return counts
