"""The forecaster: scene encoder, mode decoder, and the LightningModule around them."""

from trajpred.model.forecaster import Forecaster
from trajpred.model.lit_forecaster import LitForecaster
from trajpred.model.mode_decoder import ModeDecoder, Prediction
from trajpred.model.scene_encoder import SceneEncoder
from trajpred.model.token_encoder import SceneTokens, TokenEncoder

__all__ = [
    "Forecaster",
    "LitForecaster",
    "ModeDecoder",
    "Prediction",
    "SceneEncoder",
    "SceneTokens",
    "TokenEncoder",
]
