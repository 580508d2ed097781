"""Properties that every published operator on graphs has, whatever its options."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.nn.published.operators import EDGES, NODES, OPERATORS, Operator

each_operator = pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
GRAPHS = [(NODES, EDGES), (1, EDGES[:, :0]), (3, EDGES[:, :4]), (0, EDGES[:, :0])]


@each_operator
def test_a_receiver_depends_on_itself_and_its_senders_only(operator: Operator) -> None:
    """The Jacobian has a block exactly for each edge sender → receiver and for each node itself."""
    module = operator.make().eval()
    x, index, e = operator.inputs()
    jacobian = torch.autograd.functional.jacobian(lambda x: operator(module, x, index, e), x)
    depends = jacobian.abs().amax((1, 3)) > 0
    expected = torch.zeros(NODES, NODES, dtype=torch.bool)
    expected[index[1], index[0]] = True
    reached = expected.any(1)
    itself = depends.diagonal()
    elsewhere = ~torch.eye(NODES).bool()
    assert torch.equal(depends & elsewhere, expected & elsewhere)
    assert itself[reached].all() or operator.name.startswith("MultiHead")  # which has no residual
    if operator.edges:
        by_edge = torch.autograd.functional.jacobian(lambda e: operator(module, x, index, e), e)
        used = by_edge.abs().amax((1, 3)) > 0
        plain = index[0] != index[1]  # GATEncoder replaces loops
        assert torch.equal(used[:, plain], (torch.arange(NODES)[:, None] == index[1])[:, plain])


@each_operator
def test_order_of_nodes_and_edges_does_not_matter(operator: Operator) -> None:
    module = operator.make()
    x, index, e = operator.inputs()
    nodes = torch.randperm(NODES)
    edges = torch.randperm(index.shape[1])
    moved = nodes.argsort()[index[:, edges]]
    out = operator(module, x[nodes], moved, None if e is None else e[edges])
    assert_close(out, operator(module, x, index, e)[nodes])


@each_operator
def test_a_flattened_batch_equals_its_graphs_one_by_one(operator: Operator) -> None:
    module = operator.make().eval()
    graphs = [operator.inputs(*graph) for graph in GRAPHS]
    apart = []
    nodes = []
    indices = []
    features = []
    offset = 0
    for x, index, e in graphs:
        out = operator(module, x, index, e)
        assert len(out) == len(x)
        apart.append(out)
        nodes.append(x)
        indices.append(index + offset)
        features.append(e)
        offset += len(x)
    e = torch.cat(features) if operator.edges else None
    together = operator(module, torch.cat(nodes), torch.cat(indices, 1), e)
    assert_close(together, torch.cat(apart))


@each_operator
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("nodes", "index"), GRAPHS, ids=str)
def test_any_graph_is_finite_forward_and_backward(
    operator: Operator, nodes: int, index: Tensor, training: bool
) -> None:
    module = operator.make().train(training)
    inputs = operator.inputs(nodes, index)
    out = operator(module, *inputs)
    out.square().sum().backward()
    assert out.shape[0] == nodes
    assert out.isfinite().all()
    x, _, e = inputs
    for tensor in (x, e, *module.parameters()):
        if tensor is not None and tensor.grad is not None:
            assert tensor.grad.isfinite().all()
    for buffer in module.buffers():
        assert buffer.isfinite().all()


BIPARTITE = [operator for operator in OPERATORS if operator.bipartite]


@pytest.mark.parametrize("operator", BIPARTITE, ids=lambda operator: operator.name)
def test_senders_and_receivers_may_be_separate(operator: Operator) -> None:
    module = operator.make().eval()
    x, index, e = operator.inputs()
    whole = operator(module, x, index, e)
    assert_close(operator(module, (x, x.clone()), index, e), whole)
    assert_close(operator(module, (x, x[:4]), index, e), whole[:4])  # edges reach the first four only


@each_operator
@pytest.mark.filterwarnings("ignore:attention_activation")
def test_half_precision_is_near_and_seeds_repeat_the_weights(operator: Operator) -> None:
    module = operator.make().float().eval()
    x, index, e = operator.inputs()
    x = x.detach().float()
    if e is not None:
        e = e.detach().float()
    with torch.autocast("cpu", torch.bfloat16):
        half = operator(module, x, index, e)
    assert_close(half.float(), operator(module, x, index, e), rtol=0.1, atol=0.1)
    torch.manual_seed(1)
    first = operator.build()
    torch.manual_seed(1)
    second = operator.build()
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
