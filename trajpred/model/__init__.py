"""The forecaster: scene encoders, decoders, and their checkpoints.

``SceneEncoder`` with ``ModeDecoder`` is the default; the other encoders are published systems. Names are
imported on first use, so that importing an encoder loads neither decoders nor the training stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trajpred import lazy_names

if TYPE_CHECKING:
    from trajpred.model.forecaster import Forecaster
    from trajpred.model.heads import HeadDecoder
    from trajpred.model.mode_decoder import ModeDecoder
    from trajpred.model.padded_encoders import GlobalAttentionSceneEncoder, TransformerMSceneEncoder
    from trajpred.model.published_encoders import (
        GraphTransformerSceneEncoder,
        MultiHeadAttentionSceneEncoder,
        TransformerConvSceneEncoder,
    )
    from trajpred.model.scene_decoder import Prediction, SceneDecoder
    from trajpred.model.scene_encoder import SceneEncoder
    from trajpred.model.star_encoder import StarSceneEncoder
    from trajpred.model.token_encoder import SceneTokens, TokenEncoder

__getattr__, __all__ = lazy_names(
    __name__,
    {
        "forecaster": "Forecaster",
        "heads": "HeadDecoder",
        "mode_decoder": "ModeDecoder",
        "padded_encoders": "GlobalAttentionSceneEncoder TransformerMSceneEncoder",
        "published_encoders": "GraphTransformerSceneEncoder MultiHeadAttentionSceneEncoder "
        "TransformerConvSceneEncoder",
        "scene_decoder": "Prediction SceneDecoder",
        "scene_encoder": "SceneEncoder",
        "star_encoder": "StarSceneEncoder",
        "token_encoder": "SceneTokens TokenEncoder",
    },
)
