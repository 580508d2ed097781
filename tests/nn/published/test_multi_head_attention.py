"""MultiHeadAttentionConv: the publication's contract, and what holds on any graph."""

from __future__ import annotations

import doctest
import inspect
import json
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.data import Batch, HeteroData

from trajpred.nn import segment_softmax
from trajpred.nn.published import any_to_any, keras_names, multi_head_attention
from trajpred.nn.published.any_to_any import CONTEXT, SOURCE, TARGET, AnyToAnyConvolution, ReceiverTag
from trajpred.nn.published.keras_names import ACTIVATIONS, INITIALIZERS
from trajpred.nn.published.multi_head_attention import MultiHeadAttentionConv

N, NODE, EDGE, CONTEXT_WIDTH = 7, 5, 3, 4
#: Node 6 has no edge, node 5 only an outgoing one; columns in no order; one edge twice.
EDGE_INDEX = torch.tensor([[0, 3, 1, 5, 2, 0, 4, 0], [1, 1, 2, 0, 4, 3, 1, 1]])
BATCH = torch.tensor([0, 0, 0, 1, 1, 3, 3])  # graph 2 is empty
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "raw keys": {"transform_keys": False, "score_scaling": "none"},
    "shared keys": {"share_key_transform": True, "score_scaling": "none", "attention_activation": "tanh"},
    "pooled": {"transform_values_after_pooling": True, "score_scaling": "trainable_elup1"},
    "pooled, no bias": {"transform_values_after_pooling": True, "transform_keys": False, "use_bias": False},
}
each_variant = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)


def make(**options: Any) -> MultiHeadAttentionConv:
    options = {"num_heads": 2, "per_head_channels": 4, "receiver_tag": TARGET, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an attention_activation with score_scaling
        return MultiHeadAttentionConv(**options).eval()


def fresh(**options: Any) -> MultiHeadAttentionConv:
    """Of nodes and edges, with known widths."""
    widths = {"receiver_channels": NODE, "sender_node_channels": NODE, "sender_edge_channels": EDGE}
    return make(sender_edge_feature="edge_attr", **{**widths, **options})


def with_edges(**options: Any) -> MultiHeadAttentionConv:
    """The same with random biases."""
    return randomise(fresh(**options))


def randomise(conv: MultiHeadAttentionConv) -> MultiHeadAttentionConv:
    for parameter in conv.parameters():
        nn.init.normal_(parameter, std=0.5)
    return conv


def features(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(N, NODE, dtype=dtype), torch.randn(EDGE_INDEX.shape[1], EDGE, dtype=dtype)


def graph() -> HeteroData:
    """The graph of this module, with a context, as PyG batches it."""
    data = HeteroData()
    data["paper"].hidden_state, data["paper"].x = torch.randn(N, NODE), torch.randn(N, 2)
    data["paper"].batch = BATCH
    data["paper", "cites", "paper"].edge_index = EDGE_INDEX[:, [0, 2, 5, 7]]  # all within graph 0 but one
    data["paper", "cites", "paper"].hidden_state = torch.randn(4, EDGE)
    data["context"].hidden_state = torch.randn(4, CONTEXT_WIDTH)
    return data


def test_constructor_is_the_publications() -> None:
    parameters = inspect.signature(MultiHeadAttentionConv).parameters
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters.values())
    required = inspect.Parameter.empty
    assert {name: p.default for name, p in parameters.items() if not name.endswith("_channels")} == {
        "num_heads": required,
        "receiver_tag": None,
        "receiver_feature": "hidden_state",
        "sender_node_feature": "hidden_state",
        "sender_edge_feature": None,
        "use_bias": True,
        "edge_dropout": 0.0,
        "inputs_dropout": 0.0,
        "attention_activation": None,
        "activation": "relu",
        "kernel_initializer": None,
        "kernel_regularizer": None,
        "transform_keys": True,
        "share_key_transform": False,
        "score_scaling": "rsqrt_dim",
        "transform_values_after_pooling": False,
    }
    assert parameters["per_head_channels"].default is required
    assert list(inspect.signature(MultiHeadAttentionConv.convolve).parameters)[1:] == [
        "sender_node_input",
        "sender_edge_input",
        "receiver_input",
        "broadcast_from_sender_node",
        "broadcast_from_receiver",
        "pool_to_receiver",
        "extra_receiver_ops",
        "kwargs",
    ]


def test_positional_heads_are_refused() -> None:
    with pytest.raises(TypeError):
        MultiHeadAttentionConv(2, per_head_channels=4)  # type: ignore[misc]


@pytest.mark.parametrize(
    "options",
    [
        {"num_heads": 0},
        {"per_head_channels": 0},
        {"num_heads": -1},
        {"receiver_feature": None},
        {"sender_node_feature": None},
        {"receiver_tag": "NOWHERE"},
        {"receiver_tag": 3},
        {"activation": "unheard of"},
        {"attention_activation": "unheard of", "score_scaling": "none"},
        {"kernel_initializer": "unheard of"},
        {"kernel_regularizer": "l3"},
        {"edge_dropout": 1.5},
        {"inputs_dropout": -0.1},
    ],
    ids=str,
)
def test_constructor_errors(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        make(**options)


def test_unknown_scaling_is_an_error_of_the_call() -> None:
    conv = make(score_scaling="unheard of")
    with pytest.raises(ValueError, match="score_scaling"):
        conv(torch.randn(N, NODE), EDGE_INDEX)


def test_activation_with_scaling_only_warns() -> None:
    sizes = {"num_heads": 2, "per_head_channels": 4}
    with pytest.warns(UserWarning, match="score_scaling"):
        MultiHeadAttentionConv(**sizes, attention_activation="tanh")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MultiHeadAttentionConv(**sizes, attention_activation="tanh", score_scaling="none")


def test_receiver_tag_at_construction_or_call() -> None:
    assert (SOURCE, TARGET, CONTEXT) == (0, 1, 2)
    x = torch.randn(N, NODE)
    conv = make(receiver_tag=None)
    with pytest.raises(ValueError, match="neither"):
        conv(x, EDGE_INDEX)
    expected = conv(x, EDGE_INDEX, receiver_tag=TARGET)
    for tag in (1, "TARGET", "target", ReceiverTag.TARGET):
        assert_close(conv(x, EDGE_INDEX, receiver_tag=tag), expected)
    conv.receiver_tag = TARGET
    assert_close(conv(x, EDGE_INDEX, receiver_tag="target"), expected)
    with pytest.raises(ValueError, match="differ"):
        conv(x, EDGE_INDEX, receiver_tag=SOURCE)


def test_which_inputs_it_takes() -> None:
    conv = make(sender_node_feature=None, sender_edge_feature="length")
    assert conv.takes_receiver_input and conv.takes_sender_edge_input and not conv.takes_sender_node_input
    assert make().takes_sender_node_input and not make().takes_sender_edge_input


BOTH = {"edge_set_name": "cites", "node_set_name": "paper"}


@pytest.mark.parametrize(
    ("tag", "names"),
    [
        (CONTEXT, {}),
        (CONTEXT, BOTH),
        (TARGET, {"node_set_name": "paper"}),
        (SOURCE, {"node_set_name": "paper"}),
        (TARGET, BOTH),
        (SOURCE, {}),
        (TARGET, {"edge_set_name": "unheard of"}),
    ],
    ids=str,
)
def test_node_and_edge_sets_that_do_not_fit_the_tag(tag: ReceiverTag, names: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        make(receiver_tag=tag)(graph(), **names)


@pytest.mark.parametrize(
    "options",
    [{}, {"sender_edge_feature": "hidden_state"}],
    ids=["context over edges, node feature set", "the same, edge feature too"],
)
def test_context_over_edges_takes_no_nodes(options: dict[str, Any]) -> None:
    conv, data = make(receiver_tag=CONTEXT, **options), graph()
    with pytest.raises(ValueError, match="sender_node_feature"):
        conv(data, edge_set_name="cites")
    x, edge_attr = features()
    with pytest.raises(ValueError, match="feature"):
        conv((x, torch.randn(2, 3)), EDGE_INDEX, edge_attr, edge_batch=torch.zeros(8, dtype=torch.int64))


@pytest.mark.parametrize("node", ["hidden_state", None])
def test_context_over_nodes_takes_no_edges(node: str | None) -> None:
    conv = make(receiver_tag=CONTEXT, sender_node_feature=node, sender_edge_feature="hidden_state")
    with pytest.raises(ValueError, match="sender_edge_feature"):
        conv(graph(), node_set_name="paper")


def test_plain_tensors_that_do_not_fit() -> None:
    x, edge_attr = features()
    context = torch.randn(4, CONTEXT_WIDTH)
    edge_batch = torch.zeros(EDGE_INDEX.shape[1], dtype=torch.int64)
    wrong: list[tuple[MultiHeadAttentionConv, tuple[Any, ...], dict[str, Any]]] = [
        (make(), (x,), {}),
        (make(), (x, EDGE_INDEX), {"batch": BATCH}),
        (make(), (x, EDGE_INDEX, edge_attr), {}),
        (make(), ((None, x), EDGE_INDEX), {}),
        (with_edges(), (x, EDGE_INDEX), {}),
        (make(receiver_tag=CONTEXT), (x,), {"batch": BATCH}),
        (make(receiver_tag=CONTEXT), ((x, context),), {}),
        (make(receiver_tag=CONTEXT), ((x, context),), {"batch": BATCH, "edge_batch": edge_batch}),
    ]
    for conv, args, call in wrong:
        with pytest.raises(ValueError):
            conv(*args, **call)


def test_source_is_target_of_the_edges_turned_round() -> None:
    conv, (x, edge_attr) = with_edges(receiver_tag=None), features()
    found = conv(x, EDGE_INDEX, edge_attr, receiver_tag=SOURCE)
    assert_close(found, conv(x, EDGE_INDEX.flip(0), edge_attr, receiver_tag=TARGET))


def test_context_is_a_node_to_which_all_items_lead() -> None:
    x, edge_attr = features()
    context = torch.randn(4, CONTEXT_WIDTH)
    nodes = randomise(make(receiver_tag=None, receiver_channels=CONTEXT_WIDTH, sender_node_channels=NODE))
    star = torch.stack((torch.arange(N), BATCH))
    assert_close(
        nodes((x, context), batch=BATCH, receiver_tag=CONTEXT),
        nodes((x, context), star, receiver_tag=TARGET),
    )
    edges = make(receiver_tag=None, sender_node_feature=None, sender_edge_feature="edge_attr")
    edge_batch = BATCH[EDGE_INDEX[0]]
    star = torch.stack((torch.arange(len(edge_attr)), edge_batch))
    assert_close(
        edges((None, context), edge_attr=edge_attr, edge_batch=edge_batch, receiver_tag=CONTEXT),
        edges((None, context), star, edge_attr, receiver_tag=TARGET),
    )


def test_a_graph_and_its_tensors_give_the_same() -> None:
    data = graph()
    x, context, edges = data["paper"].hidden_state, data["context"].hidden_state, data["cites"]
    by_name = {"sender_edge_feature": "hidden_state"}
    both = make(receiver_tag=None, **by_name)
    for tag in (TARGET, SOURCE):
        expected = both(x, edges.edge_index, edges.hidden_state, receiver_tag=tag)
        for name in ("cites", ("paper", "cites", "paper")):
            assert_close(both(data, edge_set_name=name, receiver_tag=tag), expected)
            assert_close(both.call(data, edge_set_name=name, receiver_tag=tag), expected)
    other = make(receiver_feature="x")
    expected = other((x, data["paper"].x), edges.edge_index)
    assert_close(other(data, edge_set_name="cites"), expected)
    nodes = make(receiver_tag=CONTEXT)
    assert_close(nodes(data, node_set_name="paper"), nodes((x, context), batch=BATCH))
    pool = make(receiver_tag=CONTEXT, sender_node_feature=None, **by_name)
    of_edge = BATCH[edges.edge_index[0]]
    expected = pool((None, context), edge_attr=edges.hidden_state, edge_batch=of_edge)
    assert_close(pool(data, edge_set_name="cites"), expected)
    edges.batch = of_edge.flip(0)
    expected = pool((None, context), edge_attr=edges.hidden_state, edge_batch=of_edge.flip(0))
    assert_close(pool(data, edge_set_name="cites"), expected)


def test_graphs_batched_by_pyg_equal_graphs_one_by_one() -> None:
    graphs = []
    for size in (3, 5):
        data = HeteroData()
        data["a"].x, data["b"].x = torch.randn(size, NODE), torch.randn(2, NODE)
        data["a", "to", "b"].edge_index = torch.stack((torch.arange(size), torch.arange(size) % 2))
        data["a", "to", "b"].edge_attr = torch.randn(size, EDGE)
        data["context"].x = torch.randn(1, CONTEXT_WIDTH)
        graphs.append(data)
    names = {"receiver_feature": "x", "sender_node_feature": "x"}
    target = make(**names)
    nodes = make(receiver_tag=CONTEXT, **names)
    edges = make(
        receiver_tag=CONTEXT, **{**names, "sender_node_feature": None}, sender_edge_feature="edge_attr"
    )
    together = Batch.from_data_list(graphs)
    for conv, over in ((target, "edge"), (nodes, "node"), (edges, "edge")):
        call = {"edge_set_name": "to"} if over == "edge" else {"node_set_name": "a"}
        apart = torch.cat([conv(data, **call) for data in graphs])
        assert_close(conv(together, **call), apart)


def test_convolve_runs_with_the_callers_functions() -> None:
    conv, (x, edge_attr) = with_edges(), features()
    sent, received = (nn.functional.one_hot(row, N).float() for row in EDGE_INDEX)  # [E, N]
    calls: list[str] = []

    def pool(value: Tensor, *, reduce_type: str) -> Tensor:
        calls.append(reduce_type)
        return torch.einsum("en,e...->n...", received, value)

    def softmax(score: Tensor) -> Tensor:
        assert score.shape == (len(edge_attr), 2, 1)
        same = (received @ received.T)[..., None, None]
        return score.exp() / torch.einsum("efhc,fhc->ehc", same.expand(-1, -1, 2, 1), score.exp())

    out = conv.convolve(
        sender_node_input=x,
        sender_edge_input=edge_attr,
        receiver_input=x,
        broadcast_from_sender_node=lambda value: torch.einsum("en,n...->e...", sent, value),
        broadcast_from_receiver=lambda value: torch.einsum("en,n...->e...", received, value),
        pool_to_receiver=pool,
        extra_receiver_ops={"softmax": softmax},
        training=False,
    )
    assert_close(out, conv(x, EDGE_INDEX, edge_attr))
    assert set(calls) == {"sum"}


def convolve_arguments(x: Tensor) -> dict[str, Any]:
    def same(value: Tensor, reduce_type: str = "sum") -> Tensor:
        return value

    functions = ("broadcast_from_sender_node", "broadcast_from_receiver", "pool_to_receiver")
    inputs = {"sender_node_input": x, "sender_edge_input": None, "receiver_input": x}
    return {**inputs, **dict.fromkeys(functions, same)}


def test_convolve_refuses_what_it_cannot_use() -> None:
    conv, arguments = make(), convolve_arguments(torch.randn(N, NODE))
    with pytest.raises(ValueError, match="softmax"):
        conv.convolve(**arguments)
    ops = {"softmax": lambda value: value}
    conv.convolve(**arguments, extra_receiver_ops=ops)
    with pytest.raises(TypeError):
        conv.convolve(**arguments, extra_receiver_ops=ops, unheard_of=1)
    with pytest.raises(ValueError, match="sender_edge_feature"):
        conv.convolve(**{**arguments, "sender_edge_input": torch.randn(N, EDGE)}, extra_receiver_ops=ops)
    with pytest.raises(ValueError, match="sender_node_feature"):
        conv.convolve(**{**arguments, "sender_node_input": None}, extra_receiver_ops=ops)


def test_a_convolution_of_ones_own() -> None:
    class SoftmaxSum(AnyToAnyConvolution):
        def convolve(self, *, sender_node_input, broadcast_from_sender_node, pool_to_receiver, **rest):  # type: ignore
            message = broadcast_from_sender_node(sender_node_input)
            return pool_to_receiver(rest["extra_receiver_ops"]["softmax"](message), reduce_type="sum")

    conv = SoftmaxSum(receiver_tag=TARGET, extra_receiver_ops={"softmax": segment_softmax})
    out = conv(torch.randn(N, NODE), EDGE_INDEX)
    reached = torch.zeros(N, 1).index_fill(0, EDGE_INDEX[1], 1.0)
    assert_close(out, reached.expand(-1, NODE))


@pytest.mark.parametrize("given", ["elu", nn.functional.elu, nn.ELU()], ids=["name", "function", "module"])
def test_activation_as_name_function_or_module(given: Any) -> None:
    named = with_edges(activation="elu", attention_activation="elu", score_scaling="none")
    conv = with_edges(activation=given, attention_activation=given, score_scaling="none")
    conv.load_state_dict(named.state_dict())
    x, edge_attr = features()
    assert_close(conv(x, EDGE_INDEX, edge_attr), named(x, EDGE_INDEX, edge_attr))


def test_none_is_no_activation() -> None:
    x, edge_attr = features()
    conv = with_edges(activation=None)
    linear = with_edges(activation="linear")
    linear.load_state_dict(conv.state_dict())
    assert_close(conv(x, EDGE_INDEX, edge_attr), linear(x, EDGE_INDEX, edge_attr))
    assert (conv(x, EDGE_INDEX, edge_attr) < 0).any()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_named_activation_runs(name: str) -> None:
    x = torch.linspace(-3, 3, 12).reshape(3, 4).requires_grad_()
    out = ACTIVATIONS[name](x)
    out.sum().backward()
    assert out.shape == x.shape and x.grad is not None and x.grad.isfinite().all()


def test_weights_of_a_module_activation_are_trained_and_restored() -> None:
    conv = with_edges(activation=nn.PReLU(init=0.3))
    assert "activation.weight" in dict(conv.named_parameters())
    twin = MultiHeadAttentionConv.from_config(conv.get_config())
    assert twin.activation is not conv.activation
    twin.load_state_dict(conv.state_dict())


@each_variant
def test_restored_from_a_plain_config(options: dict[str, Any]) -> None:
    own = {"kernel_initializer": "he_normal", "kernel_regularizer": {"l2": 0.1}, "edge_dropout": 0.25}
    conv = with_edges(**own, **options)
    config = json.loads(json.dumps(conv.get_config()))
    twin = MultiHeadAttentionConv.from_config(config).eval()
    assert twin.get_config() == conv.get_config() == config
    assert config["receiver_tag"] == 1 and config["num_heads"] == 2 and config["edge_dropout"] == 0.25
    twin.load_state_dict(conv.state_dict())
    x, edge_attr = features()
    assert_close(twin(x, EDGE_INDEX, edge_attr), conv(x, EDGE_INDEX, edge_attr))


@pytest.mark.parametrize("name", INITIALIZERS)
def test_every_named_initializer_runs(name: str) -> None:
    conv = fresh(kernel_initializer=name)
    assert conv.query.weight.isfinite().all() and not conv.query.bias.any()


def test_initializers_have_the_spread_their_names_promise() -> None:
    weight = torch.empty(300, 200)
    for name, variance in {"glorot": 1 / 250, "he": 2 / 200, "lecun": 1 / 200}.items():
        for shape in ("uniform", "normal"):
            found = INITIALIZERS[f"{name}_{shape}"](weight).var().item()
            assert found == pytest.approx(variance, rel=0.05), (name, shape)
    limit = (6 / (NODE + 8)) ** 0.5
    default = fresh().query.weight
    assert 0.7 * limit < default.abs().max() <= limit


@pytest.mark.parametrize("initializer", [None, "glorot_uniform", nn.init.normal_])
def test_every_weight_is_drawn_anew_and_a_seed_repeats_all(initializer: Any) -> None:
    def draw() -> MultiHeadAttentionConv:
        torch.manual_seed(1)
        return fresh(kernel_initializer=initializer)

    conv, again = draw(), draw()
    assert conv.key_node is not None and conv.value_node is not None
    assert not torch.equal(conv.query.weight, conv.key_node.weight)
    assert not torch.equal(conv.value_node.weight, conv.key_node.weight)
    for name, parameter in conv.state_dict().items():
        assert torch.equal(parameter, again.state_dict()[name]), name


@pytest.mark.parametrize("given", ["l2", {"l2": 0.01}, lambda weight: 0.01 * weight.square().sum()])
def test_penalty_of_every_weight(given: Any) -> None:
    conv = with_edges(kernel_regularizer=given, score_scaling="trainable_elup1")
    kernels = [p for name, p in conv.named_parameters() if name.endswith(".weight")]
    assert len(kernels) == 5
    penalty = conv.penalty()
    assert_close(penalty, 0.01 * torch.stack([w.square().sum() for w in kernels]).sum())
    penalty.backward()
    assert all(w.grad is not None and w.grad.any() for w in kernels)
    assert conv.query.bias.grad is None


def test_other_penalties() -> None:
    conv = with_edges(kernel_regularizer="l1_l2")
    weights = torch.cat([p.flatten() for name, p in conv.named_parameters() if name.endswith(".weight")])
    assert_close(conv.penalty(), 0.01 * (weights.abs().sum() + weights.square().sum()))
    none = with_edges().penalty()
    assert none.shape == () and none == 0


def test_edge_dropout_is_of_each_edge_and_head() -> None:
    # One receiver, all values one: the sum over a head's edges is that of its weights after dropout.
    E, H, p = 400, 3, 0.25
    conv = make(num_heads=H, per_head_channels=1, edge_dropout=p, activation=None, use_bias=False)
    conv.train()
    x, edge_index = torch.ones(E, 1), torch.stack((torch.arange(E), torch.zeros(E, dtype=torch.int64)))
    conv((x, x[:1]), edge_index)
    assert conv.value_node is not None
    nn.init.ones_(conv.value_node.weight)
    out, attention = conv((x, x[:1]), edge_index, return_attention=True)
    assert_close(attention, torch.full((E, H), 1 / E))
    kept = out[0] * E * (1 - p)
    assert_close(kept, kept.round(), atol=1e-2, rtol=0)
    assert len(set(kept.round().tolist())) > 1  # heads drop different edges
    assert_close(kept.mean() / E, torch.tensor(1 - p), atol=0.1, rtol=0)
    assert_close(conv.eval()((x, x[:1]), edge_index), torch.ones(1, H))


def test_inputs_dropout_is_of_all_inputs_in_training_only() -> None:
    conv, (x, edge_attr) = with_edges(inputs_dropout=0.5, activation=None), features()
    expected = conv(x, EDGE_INDEX, edge_attr)
    assert_close(conv(x, EDGE_INDEX, edge_attr), expected)
    assert not torch.equal(conv(x, EDGE_INDEX, edge_attr, training=True), expected)
    conv.train()
    assert not torch.equal(conv(x, EDGE_INDEX, edge_attr), expected)
    assert_close(conv(x, EDGE_INDEX, edge_attr, training=False), expected)


@each_variant
def test_widths_are_learnt_from_the_first_call(options: dict[str, Any]) -> None:
    x, edge_attr = features()
    torch.manual_seed(3)
    known = fresh(**options)
    torch.manual_seed(3)
    lazy = make(sender_edge_feature="edge_attr", **options)
    loaded = make(sender_edge_feature="edge_attr", **options)
    expected = known(x, EDGE_INDEX, edge_attr)
    assert_close(lazy(x, EDGE_INDEX, edge_attr), expected)
    loaded.load_state_dict(known.state_dict())
    assert_close(loaded(x, EDGE_INDEX, edge_attr), expected)
    known.load_state_dict(loaded.state_dict())
    assert sum(p.numel() for p in lazy.parameters()) == sum(p.numel() for p in known.parameters())


@each_variant
def test_gradient_is_that_of_finite_differences(options: dict[str, Any]) -> None:
    conv = with_edges(activation="tanh", **options).double()
    x, edge_attr = (value.requires_grad_() for value in features(torch.float64))
    parameters = tuple(conv.parameters())

    def run(x: Tensor, edge_attr: Tensor, *_: Tensor) -> Tensor:
        return conv(x, EDGE_INDEX, edge_attr)

    assert torch.autograd.gradcheck(run, (x, edge_attr, *parameters), fast_mode=True)


def test_receivers_without_items() -> None:
    x, edge_attr = features()
    before = with_edges(activation="sigmoid")(x, EDGE_INDEX, edge_attr)
    assert_close(before[5:], torch.full((2, 8), 0.5))  # act(0)
    conv = with_edges(activation="sigmoid", transform_values_after_pooling=True)
    assert conv.value_pooled is not None
    expected = torch.sigmoid(conv.value_pooled.bias).expand(2, -1)  # act(b)
    assert_close(conv(x, EDGE_INDEX, edge_attr)[5:], expected)
    assert (with_edges(activation=None)(x, EDGE_INDEX, edge_attr)[5:] == 0).all()


@each_variant
@pytest.mark.parametrize("receivers", [3, 0])
def test_no_edges_at_all(options: dict[str, Any], receivers: int) -> None:
    conv = with_edges(**options)
    x = torch.randn(receivers, NODE, requires_grad=True)
    out = conv(x, torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, EDGE))
    assert out.shape == (receivers, 8) and out.isfinite().all()
    out.sum().backward()
    gradients = [x.grad, *(p.grad for p in conv.parameters())]
    assert all(g is None or g.isfinite().all() for g in gradients)


def test_contexts_without_items() -> None:
    conv = make(receiver_tag=CONTEXT)
    context = torch.randn(4, CONTEXT_WIDTH, requires_grad=True)
    out = conv((torch.randn(N, NODE), context), batch=BATCH)
    out.sum().backward()
    assert (out[2] == 0).all() and context.grad is not None and context.grad.isfinite().all()
    empty = conv((torch.zeros(0, NODE), context[:0]), batch=BATCH[:0])
    assert empty.shape == (0, 8)


@each_variant
def test_order_of_nodes_and_edges_does_not_matter(options: dict[str, Any]) -> None:
    conv = with_edges(**options)
    x, edge_attr = features()
    expected, alpha = conv(x, EDGE_INDEX, edge_attr, return_attention=True)
    nodes, edges = torch.randperm(N), torch.randperm(EDGE_INDEX.shape[1])
    moved = nodes.argsort()[EDGE_INDEX][:, edges]
    out, attention = conv(x[nodes], moved, edge_attr[edges], return_attention=True)
    assert_close(out, expected[nodes])
    assert_close(attention, alpha[edges])


def test_graphs_by_offsets_equal_graphs_one_by_one() -> None:
    conv, (x, edge_attr) = with_edges(), features()
    y, other = torch.randn(N, NODE), torch.randn_like(edge_attr)
    together = conv(
        torch.cat((x, y)), torch.cat((EDGE_INDEX, EDGE_INDEX + N), 1), torch.cat((edge_attr, other))
    )
    assert_close(together, torch.cat((conv(x, EDGE_INDEX, edge_attr), conv(y, EDGE_INDEX, other))))


def test_senders_and_receivers_of_their_own() -> None:
    conv = make()
    sender, receiver = torch.randn(N, NODE), torch.randn(3, 2)
    edge_index = torch.tensor([[0, 6, 4, 6], [2, 2, 0, 0]])
    out, attention = conv((sender, receiver), edge_index, return_attention=True)
    assert out.shape == (3, 8) and (out[1] == 0).all()
    assert_close(attention[:2].sum(0), torch.ones(2))
    conv.receiver_tag = SOURCE
    assert_close(conv((sender, receiver), edge_index.flip(0)), out)


def test_extra_dimensions_are_carried_along() -> None:
    conv = with_edges(receiver_tag=None)
    x, edge_attr = torch.randn(N, 2, NODE), torch.randn(EDGE_INDEX.shape[1], 2, EDGE)
    out = conv(x, EDGE_INDEX, edge_attr, receiver_tag=TARGET)
    for i in range(2):
        assert_close(out[:, i], conv(x[:, i], EDGE_INDEX, edge_attr[:, i], receiver_tag=TARGET))


def test_half_precision_under_autocast() -> None:
    conv, (x, edge_attr) = with_edges(), features()
    expected = conv(x, EDGE_INDEX, edge_attr)
    with torch.autocast("cpu", torch.bfloat16):
        found = conv(x, EDGE_INDEX, edge_attr)
    assert_close(found.float(), expected, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("module", [any_to_any, keras_names, multi_head_attention])
def test_docstring_examples_run(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.failed == 0
    assert result.attempted > 0 or module is any_to_any
