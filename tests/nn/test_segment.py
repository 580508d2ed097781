"""segment_softmax against torch.softmax; stars and flattening against PyG's Batch and coalesce."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import coalesce

from trajpred.nn import FlatGraphs, flatten_edges, flatten_stars, segment_softmax, star_edges
from trajpred.nn.segment import segment_mean

RECEIVER = torch.tensor([0, 0, 0, 2, 2, 5, 3, 3, 3, 3])
NUM_RECEIVERS = 7  # 1, 4 and 6 have no edges


@pytest.mark.parametrize("shape", [(), (2, 4)])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_equals_softmax_of_every_receiver(shape: tuple[int, ...], scale: float) -> None:
    score = scale * torch.randn(len(RECEIVER), *shape, dtype=torch.float64) - scale
    weight = segment_softmax(score, RECEIVER, NUM_RECEIVERS)
    for i in RECEIVER.unique():
        expected = torch.softmax(score[i == RECEIVER], 0)
        torch.testing.assert_close(weight[i == RECEIVER], expected, rtol=1e-12, atol=1e-12)
    order = torch.randperm(len(RECEIVER))
    moved = segment_softmax(score[order], RECEIVER[order], NUM_RECEIVERS)
    torch.testing.assert_close(moved, weight[order])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    # A running sum of 4096 equal weights in half precision would stop at 256 (bfloat16) or 2048 (float16).
    score = torch.full((4096,), 3e4, dtype=dtype)
    out = segment_softmax(score, torch.zeros(4096, dtype=torch.int64), 1)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), torch.full((4096,), 1 / 4096))


def test_mean_of_every_segment_is_0_without_rows() -> None:
    values = torch.tensor([[1.0, 2], [3, 6], [7, 8]])
    means = segment_mean(values, torch.tensor([0, 0, 2]), 4)
    assert means.tolist() == [[2, 4], [0, 0], [7, 8], [0, 0]]


def same(graphs: FlatGraphs, expected: FlatGraphs) -> None:
    for a, b in zip(graphs, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("neighbors", range(9))
def test_star_with_fewer_neighbours(neighbors: int) -> None:
    edges = star_edges(neighbors)
    expected = {(0, 0)}
    for neighbor in range(1, neighbors + 1):
        expected |= {(0, neighbor), (neighbor, 0)}
    assert {(sender, receiver) for sender, receiver in edges.T.tolist()} == expected
    assert edges.shape[1] == len(expected)
    assert torch.equal(edges[1], edges[1].sort().values)


#: Nodes and edges of each graph: ragged, with graphs without edges or nodes; equal; none at all.
@pytest.mark.parametrize("sizes", [((3, 2), (6, 16), (1, 0), (0, 0), (4, 3)), ((4, 5),) * 3, ()])
def test_flattened_graphs_equal_pygs_batch(sizes: tuple[tuple[int, int], ...]) -> None:
    edges = [torch.randint(max(nodes, 1), (2, count)) for nodes, count in sizes]
    nodes = torch.tensor([nodes for nodes, _ in sizes], dtype=torch.int64)
    targets = (nodes - 1).clamp(min=0)
    if not sizes:
        expected = FlatGraphs(torch.zeros(2, 0, dtype=torch.int64), nodes, torch.zeros(1).long(), nodes)
    else:
        graphs = [Data(edge_index=index, num_nodes=n) for index, (n, _) in zip(edges, sizes, strict=True)]
        batch = Batch.from_data_list(graphs)
        expected = FlatGraphs(batch.edge_index, batch.batch, batch.ptr, batch.ptr[:-1] + targets)
    forms: list[list[Tensor] | Tensor] = [edges]
    if len({index.shape for index in edges}) == 1:
        forms.append(torch.stack(edges))
    for form in forms:
        same(flatten_edges(form, nodes, targets), expected)
        flat = flatten_edges(form, nodes)
        assert torch.equal(flat.target_index, flat.offsets)  # by default the first node


def test_stars_at_once_equal_stars_flattened() -> None:
    neighbors = torch.tensor([8, 0, 3, 8, 1])
    flat = flatten_stars(neighbors)
    expected = flatten_edges([star_edges(int(count)) for count in neighbors], neighbors + 1)
    assert flat.edge_index.shape == expected.edge_index.shape
    in_order = flat._replace(edge_index=coalesce(flat.edge_index))
    same(in_order, expected._replace(edge_index=coalesce(expected.edge_index)))


def test_errors() -> None:
    with pytest.raises(ValueError, match="num_neighbors"):
        star_edges(-1)
    with pytest.raises(ValueError, match="edge_indices"):
        flatten_edges([star_edges()], torch.tensor([9, 9]))


def test_edges_with_a_score_of_minus_infinity_are_excluded() -> None:
    """The others are normalised alone; a receiver without any other gets 0, with finite gradients."""
    score = torch.tensor([1.0, -torch.inf, 2.0, -torch.inf, -torch.inf], requires_grad=True)
    weight = segment_softmax(score, torch.tensor([0, 0, 0, 1, 1]), 3)
    expected = torch.tensor([1.0, 2.0]).softmax(0)
    torch.testing.assert_close(weight[[0, 2]], expected)
    assert not weight[[1, 3, 4]].any()
    [gradient] = torch.autograd.grad((weight * torch.arange(5.0)).sum(), score)
    assert gradient.isfinite().all()
