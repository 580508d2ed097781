"""Every option of every published system can be set in YAML by its published name, and trains."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import pytest
import yaml
from jsonargparse import ArgumentError, ArgumentParser
from torch import nn

import trajpred.model
from tests.conftest import rejects
from tests.model.small import batch_of
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.model.scene_encoder import TokenEncoder
from trajpred.nn.published.gat import GATLayer
from trajpred.nn.published.multi_head_attention import MultiHeadAttentionConv
from trajpred.nn.published.transformer_conv import TransformerConv
from trajpred.nn.published.transformer_m import TransformerMEncoder
from trajpred.training.lit_forecaster import LitForecaster

#: By encoder, values of the options that are neither switches nor rates of dropout.
VALUES: dict[str, dict[str, list[Any]]] = {
    "TransformerConvSceneEncoder": {"init": ["he_normal"], "ff_channels": [0, 24], "edge_bias": [False]},
    "MultiHeadAttentionSceneEncoder": {
        "receiver_tag": ["source"],
        "sender_node_feature": [None],
        "sender_edge_feature": [None],
        "attention_activation": ["leaky_relu"],
        "activation": ["gelu", None],
        "kernel_initializer": ["lecun_normal"],
        "kernel_regularizer": ["l1", {"l1": 1e-4, "l2": 1e-4}],
        "score_scaling": ["none", "trainable_elup1"],
    },
    "GraphTransformerSceneEncoder": {"pos_enc_dim": [0, 3], "pos_enc": ["random_walk"]},
    "GlobalAttentionSceneEncoder": {"attention_head_size": [3]},
    "TransformerMSceneEncoder": {
        "num_atoms": [5],
        "num_in_degree": [2],
        "num_out_degree": [40],
        "num_edges": [12],
        "ffn_embedding_dim": [24],
        "num_pair_types": [7],
        "mode": ["2d", "3d"],
        "mode_prob": ["0,0,1", [0.0, 1.0, 0.0]],
        "max_hops": [3],
        "max_spd": [4],
        "edge_type": ["single"],
        "multi_hop_max_dist": [2],
        "num_spatial": [16],
        "num_edge_dis": [8],
        "num_3d_bias_kernel": [8],
        "activation_fn": ["relu", "gelu_fast", "gelu_accurate", "tanh", "linear"],
        "norm": ["post", "sandwich"],
    },
    "StarSceneEncoder": {
        "neighbors": [1, 12],
        "completion": [0.3],
        "conv": ["gat"],
        "leaky_slope": [0.1],
        "negative_slope": [0.1],
        "fill_value": ["max", 0.0],
    },
}
#: Arguments of the operators that follow from the scenes or from the encoder's own: widths, tables, names.
FIXED = (
    "in_ out ein heads num_heads per_head_channels receiver_feature name receiver_channels dim layers "
    "options sender_node_channels sender_edge_channels num_encoder_layers embedding_dim num_attention_heads "
    "channels in_channels edge_channels"
)
#: The operator to which an encoder passes further options (``**options``).
OPERATORS: dict[str, type[nn.Module]] = {
    "MultiHeadAttentionSceneEncoder": MultiHeadAttentionConv,
    "StarSceneEncoder": GATLayer,
    "TransformerConvSceneEncoder": TransformerConv,
    "TransformerMSceneEncoder": TransformerMEncoder,
}
DECODER = {"class_path": "trajpred.model.HeadDecoder", "init_args": {"dim": 16}}


def parameters(encoder: str) -> dict[str, Parameter]:
    """Options of an encoder and of its operator."""
    kind = getattr(trajpred.model, encoder)
    named: dict[str, Parameter] = {}
    if encoder in OPERATORS:
        named.update(signature(OPERATORS[encoder]).parameters)
    named.update(signature(kind).parameters)
    return {name: parameter for name, parameter in named.items() if name not in FIXED.split()}


def values(encoder: str) -> dict[str, list[Any]]:
    """Values of each option that are not its default: switches are turned, rates of dropout are 0.3."""
    options = dict(VALUES[encoder])
    for name, parameter in parameters(encoder).items():
        if isinstance(parameter.default, bool):
            options[name] = [not parameter.default]
        if "drop" in name:
            options[name] = [0.3]
    return options


OPTIONS = {encoder: values(encoder) for encoder in VALUES}
#: Options of the star encoder that depend on whether edges have features.
FEATURED = ("fill_value", "add_self_loops", "plain", "share_weights")
#: The routing block of Kool et al.
KOOL = {"add_self_loops": True, "root_weight": False, "gating": False}
#: The context attends to nodes alone, or to edges alone.
CONTEXT: list[dict[str, Any]] = [
    {"receiver_tag": "context", "sender_edge_feature": None},
    {"receiver_tag": "context", "sender_node_feature": None},
]


def cases() -> list[tuple[str, dict[str, Any]]]:
    """List every value of every option, and the options that only make sense together."""
    params = []
    for encoder, options in OPTIONS.items():
        for name, choices in options.items():
            params += [(encoder, {name: value}) for value in choices]
    star = OPTIONS["StarSceneEncoder"]
    for name in FEATURED:
        params += [("StarSceneEncoder", {"relative_pose": True, name: value}) for value in star[name]]
    params.append(("TransformerConvSceneEncoder", KOOL))
    return params + [("MultiHeadAttentionSceneEncoder", options) for options in CONTEXT]


def parsed(encoder: str, options: dict[str, Any]) -> dict[str, Any]:
    """Read an encoder from YAML as `train` does, and return what it saves with the checkpoint."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(TokenEncoder, "encoder")
    init_args = {"dim": 16, "heads": 2, "layers": 2} | options
    text = yaml.safe_dump({"class_path": f"trajpred.model.{encoder}", "init_args": init_args})
    config: dict[str, Any] = parser.parse_object({"encoder": yaml.safe_load(text)}).as_dict()["encoder"]
    return config


def built(encoder: str, options: dict[str, Any]) -> LitForecaster:
    return LitForecaster.build({"encoder": parsed(encoder, options), "decoder": DECODER})


@pytest.mark.parametrize(("encoder", "options"), cases(), ids=str)
def test_every_parameter_trains(encoder: str, options: dict[str, Any], real: list[Scenario]) -> None:
    model = built(encoder, options).train()
    loss = model.losses(batch_of(real[:1]))["loss"]
    loss.backward()
    assert loss.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("encoder", OPTIONS)
def test_every_published_option_is_swept(encoder: str) -> None:
    assert set(parameters(encoder)) == set(OPTIONS[encoder])


@pytest.mark.parametrize("encoder", OPTIONS)
def test_wrong_options_are_rejected_at_construction(encoder: str) -> None:
    with pytest.raises(ArgumentError, match="conact"):
        parsed(encoder, {"conact": True})
    config = {"class_path": f"trajpred.model.{encoder}", "init_args": {"dim": 16, "conact": True}}
    rejects("conact", LitForecaster.build, {"encoder": config, "decoder": DECODER})


@pytest.mark.parametrize(
    ("encoder", "options"),
    [
        ("TransformerConvSceneEncoder", {"concat": "often"}),
        ("MultiHeadAttentionSceneEncoder", {"receiver_tag": "context"}),
        ("MultiHeadAttentionSceneEncoder", {"receiver_feature": "other"}),
        ("MultiHeadAttentionSceneEncoder", {"name": "mine"}),
        ("MultiHeadAttentionSceneEncoder", {"sender_edge_feature": "other"}),
        ("TransformerMSceneEncoder", {"num_atoms": 1}),
        ("TransformerMSceneEncoder", {"num_edges": 3}),
        ("TransformerMSceneEncoder", {"num_pair_types": 5}),
        ("GraphTransformerSceneEncoder", {"pos_enc": "best"}),
        ("StarSceneEncoder", {"fill_value": "best"}),
    ],
)
def test_wrong_values_are_rejected_at_construction(encoder: str, options: dict[str, Any]) -> None:
    with pytest.raises((ArgumentError, DataError)):
        built(encoder, options)
