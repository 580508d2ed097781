"""The forecaster: scene encoder, decoder, and the LightningModule around them.

``SceneEncoder`` with ``ModeDecoder`` is the default; the others are the published systems.
"""

from trajpred.model.forecaster import Forecaster
from trajpred.model.head_decoder import HeadDecoder
from trajpred.model.lit_forecaster import LitForecaster
from trajpred.model.mode_decoder import ModeDecoder, Prediction
from trajpred.model.published_encoders import (
    GlobalAttentionSceneEncoder,
    GraphTransformerSceneEncoder,
    MultiHeadAttentionSceneEncoder,
    TransformerConvSceneEncoder,
    TransformerMSceneEncoder,
)
from trajpred.model.scene_encoder import SceneEncoder
from trajpred.model.star_encoder import StarSceneEncoder
from trajpred.model.token_encoder import SceneTokens, TokenEncoder

__all__ = [
    "Forecaster",
    "GlobalAttentionSceneEncoder",
    "GraphTransformerSceneEncoder",
    "HeadDecoder",
    "LitForecaster",
    "ModeDecoder",
    "MultiHeadAttentionSceneEncoder",
    "Prediction",
    "SceneEncoder",
    "SceneTokens",
    "StarSceneEncoder",
    "TokenEncoder",
    "TransformerConvSceneEncoder",
    "TransformerMSceneEncoder",
]
