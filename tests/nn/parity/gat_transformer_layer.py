from __future__ import annotations

from tests.nn.parity import gat_conv, gatv2_conv
from tests.nn.parity.case import Case
from trajpred.nn.published.gat import GATEncoder, GATLayer


def check(case: Case) -> None:
    options = case.options
    options.ignore("graphs")
    encoder = GATEncoder(
        options["encoder_size"],
        options["heads"],
        options["num_layers"],
        conv=options["conv"],
        leaky_slope=options["leaky_slope"],
        repeat_input=options["repeat_input"],
    ).double()
    for number, layer in enumerate(encoder.layers):
        load(layer, case, f"layer{number}_")
        layer.norm1.eps = layer.norm2.eps = options["layer_norm_eps"]
    case.load_linear(encoder.out[0], "fc")

    x = case["x"]
    edge_index = case["edge_index"]
    target = case["target_index"]
    case.close(encoder.encode(x, edge_index)[0], "out_nodes")
    case.close(encoder(x, edge_index, target), "out_target")
    x = x.repeat(1, encoder.repeats)
    for number, layer in enumerate(encoder.layers):
        x, _ = layer(x, edge_index)
        case.close(x, f"layer{number}_out")


def load(layer: GATLayer, case: Case, prefix: str) -> None:
    conv = gat_conv if case.options["conv"] == "gat" else gatv2_conv
    conv.load(layer.conv, case, prefix)
    case.load_linear(layer.feed_forward[0], "ff_1", prefix)
    case.load_linear(layer.feed_forward[-1], "ff_2", prefix)
    case.load_norm(layer.norm1, f"{prefix}ln1")
    case.load_norm(layer.norm2, f"{prefix}ln2")
