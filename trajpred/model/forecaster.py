"""The forecaster: a scene encoder, a decoder, and the data they were trained for."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.data.forecast import Forecast
from trajpred.data.geometry import Pose
from trajpred.errors import DataError, require
from trajpred.features.config import MAX_NUMBER, SceneConfig
from trajpred.model import pretrained
from trajpred.model.checkpoint import CONFIG, build, load_weights, read_checkpoint
from trajpred.model.scene_decoder import Prediction, SceneDecoder
from trajpred.model.scene_encoder import TokenEncoder

#: Settings of a checkpoint's config that define the forecaster; the rest define its training.
SETTINGS = ("encoder", "decoder", "history", "step_s", "scene")


class Forecaster(nn.Module):
    """Predict the futures of every agent of a batch of scene graphs.

    Args:
        encoder: of the same ``dim`` as ``decoder``.
        decoder: of the same ``dim`` as ``encoder``.
        history: observed steps of its input.
        step_s: seconds between steps.
        scene: the agents and lanes that are its input, and their edges.

    Example:
        >>> forecaster = Forecaster.from_pretrained("argoverse-nano")
        >>> [forecast] = forecaster.forecast(build_batch([scenario], forecaster.scene))
        >>> forecast.trajectory.shape
        (61, 6, 60, 2)

    Raises:
        DataError: if encoder and decoder have different ``dim``, history or time step are out of range, or
            ``scene`` has anchors of other steps than the decoder reads.
    """

    def __init__(
        self,
        encoder: TokenEncoder,
        decoder: SceneDecoder,
        history: int = 50,
        step_s: float = 0.1,
        scene: SceneConfig = SceneConfig(),
    ) -> None:
        super().__init__()
        if encoder.dim != decoder.dim:
            raise DataError(f"encoder has dim {encoder.dim}, decoder {decoder.dim}: set both", field="dim")
        require(history > 0, "history", "must be positive")
        require(0 < step_s <= MAX_NUMBER, "step_s", f"must be a positive number of seconds, is {step_s}")
        self.encoder = encoder
        self.decoder = decoder
        self.history = history
        self.step_s = step_s
        self.scene = self._complete(scene)
        #: The config of the checkpoint it was loaded from.
        self.config: dict[str, Any] = {}

    def _complete(self, scene: SceneConfig) -> SceneConfig:
        """Fill in the sizes that the model determines; sizes set in ``scene`` must agree."""
        window: dict[str, Any] = {
            "history": self.history,
            "future": self.decoder.horizon,
            "anchor_steps": self.decoder.anchor_steps,
        }
        for name, steps in window.items():
            setting = getattr(scene.features, name)
            problem = f"is {setting}, the model reads {steps}: leave it at 0"
            require(setting in (0, steps), name, problem)
        columns = self.encoder.num_eigenvectors
        setting = scene.graph.eigenvectors
        problem = f"is {setting}, not {columns}: leave it at 0"
        require(setting in (0, columns), "eigenvectors", problem)
        features = replace(scene.features, **window)
        return SceneConfig(features, graph=replace(scene.graph, eigenvectors=columns))

    def __repr__(self) -> str:
        parts = f"{type(self.encoder).__name__} and {type(self.decoder).__name__}"
        millions = sum(weight.numel() for weight in self.parameters()) / 1e6
        steps = f"{self.horizon} steps from {self.history}"
        return f"Forecaster({parts}: {millions:.1f} M parameters, {steps})"

    @property
    def horizon(self) -> int:
        """Future steps F."""
        return self.decoder.horizon

    @classmethod
    def build(cls, config: dict[str, Any]) -> Forecaster:
        """Build a forecaster from plain values, as in YAML configs and checkpoints.

        Raises:
            DataError: if a setting is unknown, missing, or wrong.
        """
        settings = {name: config[name] for name in SETTINGS if name in config}
        return build(cls, settings)

    @classmethod
    def with_weights(
        cls, config: dict[str, Any], state: dict[str, Tensor], checkpoint: str | Path
    ) -> Forecaster:
        """Build a forecaster, in evaluation mode, from a checkpoint's config and ``state_dict``.

        Raises:
            DataError: if the config is invalid, or the weights do not fit it.
        """
        try:
            model = cls.build(config)
        except DataError as error:
            raise error.located(checkpoint) from None
        load_weights(nn.ModuleDict({"forecaster": model}), state, checkpoint)
        model.config = config
        return model.eval()

    @classmethod
    def load(cls, checkpoint: str | Path) -> Forecaster:
        """Load a forecaster, in evaluation mode, from a checkpoint or by the name of shipped weights.

        Raises:
            DataError: if the file is not a trajpred checkpoint.
        """
        content = read_checkpoint(checkpoint)
        return cls.with_weights(content[CONFIG], content["state_dict"], checkpoint)

    @classmethod
    def from_pretrained(cls, name: str) -> Forecaster:
        """Load the forecaster that ships under ``name``.

        Raises:
            DataError: if there is no such forecaster; the message lists the valid names.
        """
        if name not in pretrained.list_models():
            problem = f"no weights of this name ship with trajpred; known: {pretrained.names()}"
            raise DataError(problem, file=name)
        return cls.load(name)

    def forward(self, batch: HeteroData, joint: bool = False) -> Prediction:
        """Predict in the agents' own frames; :meth:`check` raises if ``batch`` does not fit the model."""
        tokens = self.encoder.encode(batch)
        prediction: Prediction = self.decoder(tokens, batch, joint)
        return prediction.merged()

    @torch.inference_mode()
    def forecast(self, batch: HeteroData, joint: bool = False) -> list[Forecast]:
        """Forecast in city coordinates, scene by scene; with ``joint``, mode k of all agents is one future.

        Raises:
            DataError: if ``batch`` does not fit the model.
        """
        self.check(batch)
        return to_forecasts(self(batch, joint), batch)

    def check(self, batch: HeteroData) -> None:
        """Raise :class:`DataError` if history, horizon, step or anchors of ``batch`` are not the model's, or
        PyG collated batches of several scenes."""
        nested = "holds batches of several scenes: collate batches of one scene each"
        require(batch.heading.shape[0] == batch.num_graphs, "batch", nested)
        history = batch["agent"].history.shape[1]
        future = batch["agent"].target.shape[1]
        if history != self.history or future not in (self.horizon, 0):
            data = f"the data have {future} from {history}"
            raise DataError(f"this model predicts {self.horizon} steps from {self.history}, {data}")
        steps = self.scene.features.anchor_steps
        batch_steps = batch["agent"].anchors.shape[2]
        problem = (
            f"the model reads {steps} steps, the batch has {batch_steps}: build it with the model's scene"
        )
        require(steps in (0, batch_steps), "anchors", problem)
        step = torch.as_tensor(batch.step_s)
        deviation = (step - self.step_s).abs()
        if bool((deviation > 0.1 * self.step_s).any()):
            data = f"the data have one of {float(step.flatten()[0]):.2g} s"
            raise DataError(f"this model expects a time step of {self.step_s:.2g} s, {data}")


from_pretrained = Forecaster.from_pretrained


def to_forecasts(prediction: Prediction, batch: HeteroData) -> list[Forecast]:
    """Convert a prediction in local frames to forecasts in the city frame (float64), scene by scene."""
    agent = batch["agent"]

    def on_host(x: Tensor) -> np.ndarray:
        return x.detach().cpu().numpy()

    trajectory = on_host(prediction.trajectory)
    probability = on_host(prediction.logits.double().softmax(-1))
    scale = on_host(prediction.scale)
    poses = Pose(on_host(batch.origin[agent.batch] + agent.position), on_host(agent.heading))
    velocity = on_host(agent.velocity)
    elapsed_s = on_host(agent.elapsed_s)
    track_id = np.hstack([np.zeros(0, np.str_), *agent.track_id])  # no scene may have agents
    forecasts = []
    scenes = zip(batch.names, pairwise(agent.ptr.tolist()), batch.step_s.tolist(), strict=True)
    for name, (first, end), step_s in scenes:
        rows = slice(first, end)
        forecast = Forecast.from_local(
            name,
            track_id[rows],
            trajectory[rows],
            probability[rows],
            scale[rows],
            pose=poses[rows],
            velocity=velocity[rows],
            elapsed_s=elapsed_s[rows],
            step_s=step_s,
        )
        forecasts.append(forecast)
    return forecasts
