"""The forecaster: scene encoder and decoder.

``SceneEncoder`` with ``ModeDecoder`` is the default; the others are the published systems. Names are
imported when first used, so that an encoder alone brings no decoder and no training stack along.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trajpred.model.forecaster import Forecaster
    from trajpred.model.head_decoder import HeadDecoder
    from trajpred.model.mode_decoder import ModeDecoder
    from trajpred.model.prediction import Prediction
    from trajpred.model.published_encoders import (
        GlobalAttentionSceneEncoder,
        GraphTransformerSceneEncoder,
        MultiHeadAttentionSceneEncoder,
        TransformerConvSceneEncoder,
        TransformerMSceneEncoder,
    )
    from trajpred.model.scene_decoder import SceneDecoder
    from trajpred.model.scene_encoder import SceneEncoder
    from trajpred.model.star_encoder import StarSceneEncoder
    from trajpred.model.token_encoder import SceneTokens, TokenEncoder

_HOME = {
    "Forecaster": "forecaster",
    "GlobalAttentionSceneEncoder": "published_encoders",
    "GraphTransformerSceneEncoder": "published_encoders",
    "HeadDecoder": "head_decoder",
    "ModeDecoder": "mode_decoder",
    "MultiHeadAttentionSceneEncoder": "published_encoders",
    "Prediction": "prediction",
    "SceneDecoder": "scene_decoder",
    "SceneEncoder": "scene_encoder",
    "SceneTokens": "token_encoder",
    "StarSceneEncoder": "star_encoder",
    "TokenEncoder": "token_encoder",
    "TransformerConvSceneEncoder": "published_encoders",
    "TransformerMSceneEncoder": "published_encoders",
}
__all__ = [
    "Forecaster",
    "GlobalAttentionSceneEncoder",
    "GraphTransformerSceneEncoder",
    "HeadDecoder",
    "ModeDecoder",
    "MultiHeadAttentionSceneEncoder",
    "Prediction",
    "SceneDecoder",
    "SceneEncoder",
    "SceneTokens",
    "StarSceneEncoder",
    "TokenEncoder",
    "TransformerConvSceneEncoder",
    "TransformerMSceneEncoder",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
