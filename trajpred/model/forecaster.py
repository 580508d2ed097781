"""Scene encoder and mode decoder together, and the way back to city coordinates."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.errors import DataError
from trajpred.forecast import Forecast
from trajpred.geometry import Pose
from trajpred.model.checkpoint import CONFIG, below, build, load_weights, read_checkpoint
from trajpred.model.head_decoder import HeadDecoder
from trajpred.model.mode_decoder import ModeDecoder
from trajpred.model.prediction import Prediction
from trajpred.model.pretrained import require_name
from trajpred.model.token_encoder import TokenEncoder


class Forecaster(nn.Module):
    """Batch of scene graphs -> :class:`~trajpred.model.mode_decoder.Prediction` for every agent."""

    def __init__(self, encoder: TokenEncoder, decoder: ModeDecoder | HeadDecoder) -> None:
        super().__init__()
        if encoder.dim != decoder.dim:
            raise DataError(f"encoder has dim {encoder.dim}, decoder {decoder.dim}: set both", field="dim")
        self.encoder, self.decoder = encoder, decoder

    def forward(self, batch: HeteroData, joint: bool = False) -> Prediction:
        return self.decoder(self.encoder.encode(batch), batch, joint)

    @torch.inference_mode()
    def forecast(self, batch: HeteroData, joint: bool = False) -> list[Forecast]:
        """Forecasts in city coordinates, one per scene of ``batch``; with ``joint`` mode k is one world."""
        return to_forecasts(self(batch, joint), batch)

    @classmethod
    def from_pretrained(cls, name: str) -> Forecaster:
        """The trained model of this name that ships with the package, in evaluation mode.

        Build its batches with the ``SceneConfig`` it was trained with, which ``LitForecaster`` knows.

        Raises: DataError that lists the known names.
        """
        content = read_checkpoint(require_name(name))
        config = {part: content[CONFIG][part] for part in ("encoder", "decoder")}
        return load_weights(build(cls, config), below(content["state_dict"], "forecaster."), name)


def to_forecasts(prediction: Prediction, batch: HeteroData) -> list[Forecast]:
    """Local frames -> city frame (float64), scene by scene."""
    agent = batch["agent"]
    position = batch.origin[agent.batch] + agent.position
    probability = prediction.logits.double().softmax(-1)
    told = (prediction.trajectory, probability, prediction.scale)
    sizes = (agent.ptr[1:] - agent.ptr[:-1]).tolist()

    def scenes(x: Tensor) -> list[np.ndarray]:
        return [part.numpy() for part in x.detach().cpu().split(sizes)]

    seen = (position, agent.heading, agent.velocity, agent.elapsed_s)
    parts = zip(*map(scenes, (*told, *seen)), strict=True)
    track_ids = np.split(agent.track_id, agent.ptr[1:-1].cpu())
    return [
        Forecast.from_local(
            batch.scenario_id[i],
            track_ids[i],
            *futures,
            pose=Pose(place, heading),
            velocity=velocity,
            elapsed_s=elapsed,
            step_s=float(batch.step_s[i]),
        )
        for i, (*futures, place, heading, velocity, elapsed) in enumerate(parts)
    ]
