from __future__ import annotations

import torch
from torch import Tensor

from tests.nn.parity.case import Case
from trajpred.nn import Layout
from trajpred.nn.published.structural_bias import UNREACHABLE, GraphStructure


def check(case: Case) -> None:
    n = case.options["num_nodes"]
    assert case.options["unreachable_value"] == UNREACHABLE
    case.options.ignore("isolated")
    edges = case["edge_index"]
    dense = case["edge_type_dense"]
    spd = case["spd"]
    # The publication gives each column of edge types its own range of rows and counts them from 2.
    types = case["edge_attr"] + 2 + 512 * torch.arange(case["edge_attr"].shape[1])
    padding = Layout.of_counts([n])
    reference = case["path_edge_input"]
    longest = max(reference.shape[2], int(spd[spd < UNREACHABLE].max()))

    structure = GraphStructure.of(edges, types, padding, multi_hop_max_dist=longest)
    case.close(structure.hops[0], "spd")
    case.close(structure.out_degree[0], "degree")
    case.close(structure.in_degree[0], "degree")
    case.close(
        GraphStructure.of(edges, types, padding, edge_type="single").edges[0, :, :, 0], "edge_type_dense"
    )

    # Where there is one shortest path only, it is the publication's. Its recursion takes node 0 in the
    # middle of a path for the end of it and then finds no edge (type 0): those paths are not comparable.
    same = (_path_counts(dense, spd) == 1) & (reference != 0).all(-1).all(-1)
    assert (structure.edges[0, :, :, : reference.shape[2]][same] == reference[same].clamp(min=0)).all()


def _path_counts(dense: Tensor, spd: Tensor) -> Tensor:
    """Number of shortest paths: walks of ``spd`` steps."""
    adjacency = (dense > 0).any(-1).double()
    counts = torch.zeros_like(adjacency)
    walks = torch.eye(len(spd), dtype=torch.double)
    for hop in range(len(spd)):
        counts = torch.where(spd == hop, walks, counts)
        walks = walks @ adjacency
    return counts
