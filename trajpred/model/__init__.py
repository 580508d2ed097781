"""The forecaster: scene encoders, decoders, and their checkpoints.

``SceneEncoder`` with ``ModeDecoder`` is the default; the other encoders are published systems. Names are
imported on first use: importing an encoder loads neither decoders nor the training stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trajpred import lazy_names

if TYPE_CHECKING:
    from trajpred.model.forecaster import Forecaster
    from trajpred.model.mode_decoder import ModeDecoder
    from trajpred.model.published_encoders import (
        GlobalAttentionSceneEncoder,
        GraphTransformerSceneEncoder,
        MultiHeadAttentionSceneEncoder,
        TransformerConvSceneEncoder,
        TransformerMSceneEncoder,
    )
    from trajpred.model.scene_decoder import HeadDecoder, Prediction, SceneDecoder
    from trajpred.model.scene_encoder import SceneEncoder, SceneTokens, TokenEncoder
    from trajpred.model.star_encoder import StarSceneEncoder

__getattr__, __all__ = lazy_names(
    __name__,
    {
        "forecaster": "Forecaster",
        "mode_decoder": "ModeDecoder",
        "published_encoders": "GlobalAttentionSceneEncoder GraphTransformerSceneEncoder "
        "MultiHeadAttentionSceneEncoder TransformerConvSceneEncoder TransformerMSceneEncoder",
        "scene_decoder": "HeadDecoder Prediction SceneDecoder",
        "scene_encoder": "SceneEncoder SceneTokens TokenEncoder",
        "star_encoder": "StarSceneEncoder",
    },
)
