"""The forecaster: scene encoders, decoders, and their checkpoints.

``SceneEncoder`` with ``ModeDecoder`` is the default; the other encoders are published systems. Names are
imported on first use, so that importing an encoder loads neither decoders nor the training stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trajpred.lazy import lazy_names

if TYPE_CHECKING:
    from trajpred.model.forecaster import Forecaster
    from trajpred.model.head_decoder import HeadDecoder
    from trajpred.model.mode_decoder import ModeDecoder
    from trajpred.model.published_encoders import (
        GlobalAttentionSceneEncoder,
        GraphTransformerSceneEncoder,
        MultiHeadAttentionSceneEncoder,
        TransformerConvSceneEncoder,
        TransformerMSceneEncoder,
    )
    from trajpred.model.scene_decoder import Prediction, SceneDecoder
    from trajpred.model.scene_encoder import SceneEncoder
    from trajpred.model.star_encoder import StarSceneEncoder
    from trajpred.model.token_encoder import SceneTokens, TokenEncoder

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
_MODULES = dict.fromkeys(__all__, "published_encoders")
_MODULES |= {
    "SceneTokens": "token_encoder",
    "Prediction": "scene_decoder",
    "StarSceneEncoder": "star_encoder",
}
_MODULES |= {"Forecaster": "forecaster", "TokenEncoder": "token_encoder", "SceneEncoder": "scene_encoder"}
_MODULES |= {"SceneDecoder": "scene_decoder", "ModeDecoder": "mode_decoder", "HeadDecoder": "head_decoder"}
__getattr__ = lazy_names(__name__, _MODULES)
