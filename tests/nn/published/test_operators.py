"""Properties that every published operator on graphs has, whatever its options."""

from __future__ import annotations

from itertools import pairwise

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
    found = jacobian.abs().amax((1, 3)) > 0
    expected = torch.zeros(NODES, NODES, dtype=torch.bool)
    expected[index[1], index[0]] = True
    reached = expected.any(1)
    itself = found.diagonal()
    assert torch.equal(found & ~torch.eye(NODES).bool(), expected & ~torch.eye(NODES).bool())
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
    found = operator(module, x[nodes], nodes.argsort()[index[:, edges]], None if e is None else e[edges])
    assert_close(found, operator(module, x, index, e)[nodes])


@each_operator
def test_a_flattened_batch_equals_its_graphs_one_by_one(operator: Operator) -> None:
    module = operator.make().eval()
    graphs = [operator.inputs(*graph) for graph in GRAPHS]
    apart = torch.cat([operator(module, *graph) for graph in graphs])
    offsets = torch.tensor([0, *(len(x) for x, _, _ in graphs)]).cumsum(0)
    index = torch.cat([index + offset for (_, index, _), offset in zip(graphs, offsets, strict=False)], 1)
    e = torch.cat([e for _, _, e in graphs]) if operator.edges else None
    together = operator(module, torch.cat([x for x, _, _ in graphs]), index, e)
    assert_close(together, apart)
    assert [len(operator(module, *g)) for g in graphs] == [int(b - a) for a, b in pairwise(offsets)]


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
    assert out.shape[0] == nodes and out.isfinite().all()
    gradients = [x.grad for x in (inputs[0], inputs[2], *module.parameters()) if x is not None]
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)
    assert all(buffer.isfinite().all() for buffer in module.buffers())


@pytest.mark.parametrize("operator", [o for o in OPERATORS if o.bipartite], ids=lambda o: o.name)
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
    inputs = operator.inputs()
    x, index, e = (None if value is None else value.detach() for value in inputs)
    x = x.float()
    e = None if e is None else e.float()
    with torch.autocast("cpu", torch.bfloat16):
        found = operator(module, x, index, e)
    assert_close(found.float(), operator(module, x, index, e), rtol=0.1, atol=0.1)
    built = [(torch.manual_seed(1), operator.build())[1] for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*(m.parameters() for m in built), strict=True))
