"""Predictors of trained models: checkpoints in PyTorch, and bundles with the onboard runtime."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import HeteroData

from trajpred.data.batch import ScenarioBatch
from trajpred.data.forecast import Attention, Forecast
from trajpred.data.geometry import wrap_angle
from trajpred.data.resample import resample, resample_forecast, same_step, whole_steps
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError, require
from trajpred.features.scene_graph import mirrored, scene_features, scene_graph
from trajpred.metrics.calibration import ConformalRegions, apply_temperature
from trajpred.model import Forecaster
from trajpred.model.checkpoint import CALIBRATION, CONFIG, PLAIN, read_checkpoint, training_facts
from trajpred.model.pretrained import licence_of, locate
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.predictors.predictor import Predictor, future_steps


class ModelPredictor(Predictor):
    """A model with one history, horizon and time step, for scenarios with any.

    Scenarios with another step are resampled, and their forecasts are at the scenario's own steps. Forecasts
    end with the scenario's future or the model's horizon.

    Attributes:
        step_s: seconds between the model's steps.
        horizon: its number of future steps.
    """

    step_s: float
    horizon: int

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        if not scenarios:
            return []
        forecasts = self.forecast(self.on_model_steps(scenarios))
        pairs = zip(forecasts, scenarios, strict=True)
        return [self._on_own_steps(forecast, scenario) for forecast, scenario in pairs]

    def on_model_steps(self, scenarios: Sequence[Scenario]) -> list[Scenario]:
        """Resample scenarios whose time step differs from the model's."""
        resampled: list[Scenario] = []
        for scenario in scenarios:
            if same_step(scenario.step_s, self.step_s):
                resampled.append(scenario)
            else:
                resampled.append(resample(scenario, self.step_s))
        return resampled

    def forecast(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        """Forecast all steps of the model for scenarios with its time step."""
        raise NotImplementedError

    def steps(self, scenario: Scenario) -> int:
        model_steps = self.horizon
        if not same_step(scenario.step_s, self.step_s):
            model_steps = whole_steps(self.horizon * self.step_s, scenario.step_s)
        return min(future_steps(scenario), model_steps)

    def _on_own_steps(self, forecast: Forecast, scenario: Scenario) -> Forecast:
        steps = self.steps(scenario)
        if same_step(scenario.step_s, self.step_s):
            return forecast.first(steps)
        reach_s = self.horizon * self.step_s
        longer = f"of {scenario.scenario_id} is {scenario.step_s:g} s, {self.name} predicts {reach_s:g} s"
        require(steps > 0, "step_s", longer)
        return resample_forecast(forecast, self.step_s, scenario.step_s, steps)


class CheckpointPredictor(ModelPredictor):
    """A trained model, on a GPU if there is one.

    Args:
        checkpoint: the path of a checkpoint, or the name of pretrained weights.
        joint: forecast joint futures: mode k of all agents of a scene is one joint mode.

    Attributes:
        model: the :class:`~trajpred.model.Forecaster`.
        content: the checkpoint without training state.
        licence: licence of shipped weights and those fine-tuned from them; empty for others.
        regions: conformal regions around the modes; None unless the model was calibrated.

    Raises: DataError if the model has no joint modes to forecast.

    Example:
        >>> predictor = CheckpointPredictor("argoverse-nano")
        >>> [forecast] = predictor([scenario])
    """

    def __init__(self, checkpoint: str | Path, joint: bool = False) -> None:
        self.joint = joint
        self.mirror = False
        self.has_warned = False
        content = read_checkpoint(checkpoint)
        self.content = {name: content[name] for name in (*PLAIN, "state_dict") if name in content}
        self.training = training_facts(content)
        self.licence = licence_of(checkpoint, self.training)
        self.name = display_name(checkpoint)
        self.temperature = 1.0
        self.regions: ConformalRegions | None = None
        calibration = content.get(CALIBRATION)
        if calibration:
            self.temperature = float(calibration.get("temperature", 1.0))
            self.regions = ConformalRegions.from_json(calibration["regions"])
            self.how = "calibrated"
        model = Forecaster.with_weights(content[CONFIG], content["state_dict"], checkpoint)
        if joint:
            if not model.decoder.joint:
                advice = "use argoverse-nano, or train with model.decoder.init_args.joint true"
                raise DataError(f"this model has no joint modes: {advice}", file=checkpoint)
            self.name += ", joint"
            self.how = "joint"
        self.model = model
        self.step_s = model.step_s
        self.horizon = model.horizon
        self.to("cuda" if torch.cuda.is_available() else "cpu")

    def to(self, device: torch.device | str) -> CheckpointPredictor:
        """Move the model to another device, and return this predictor."""
        self.device = torch.device(device)
        self.fork_safe = self.device.type == "cpu"
        self.model.to(self.device)
        return self

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.model.parameters()) / 1e6
        steps = f"{self.model.horizon} steps from {self.model.history}"
        parts = [f"{size:.1f} M parameters", steps, str(self.device)]
        if self.licence:
            parts.append(self.licence)
        return f"CheckpointPredictor({self.name}: {', '.join(parts)})"

    def mirrored(self) -> CheckpointPredictor:
        """Return this model applied to mirrored scenes; its forecasts are mirrored back."""
        other = copy(self)
        other.mirror = True
        other.name = f"{self.name}, mirrored"
        other.how = ", ".join(filter(None, (self.how, "mirrored")))
        return other

    def _warn_of_unseen_maps(self, batch: ScenarioBatch, lane_scene: NDArray[np.int64]) -> None:
        """Warn, once per predictor, of a map from which the model reads no lane."""
        if self.has_warned:
            return
        lanes = np.bincount(batch.lane_scene, minlength=len(batch))
        seen = np.bincount(lane_scene, minlength=len(batch))
        unseen = np.flatnonzero((lanes > 0) & (seen == 0))
        if not len(unseen):
            return
        self.has_warned = True
        scene = unseen[0]
        radius = self.model.scene.features.lane_radius_m
        problem = f"{batch.scenario_id[scene]}: {self.name} reads 0 of {lanes[scene]:,} lanes, all are"
        problem += f" farther than {radius:g} m from every road user: check the frame and origin of the map"
        warnings.warn(problem, stacklevel=2)

    def forecast(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        forecasts = self.model.forecast(self._batch(scenarios), joint=self.joint)
        if self.temperature != 1.0 and not self.joint:  # fitted to marginal forecasts
            for row, forecast in enumerate(forecasts):
                probability = apply_temperature(forecast.probability, self.temperature)
                forecasts[row] = replace(forecast, probability=probability)
        if self.mirror:
            forecasts = [_reflect(forecast) for forecast in forecasts]
        return forecasts

    def attention(self, scenarios: Sequence[Scenario]) -> list[Attention]:
        """Return what each agent attends to in each scenario.

        Raises: DataError if the encoder reports no attention.
        """
        if not scenarios:
            return []
        return self.model.encoder.attention_weights(self._batch(self.on_model_steps(scenarios)))

    def _batch(self, scenarios: Sequence[Scenario]) -> HeteroData:
        """Build the model's input. Raises: DataError if the scenarios do not fit the model."""
        scene = self.model.scene
        batch = ScenarioBatch.of(scenarios)
        features = scene_features(batch, scene.features)
        self._warn_of_unseen_maps(batch, features.lanes.scene)
        if self.mirror:
            features = mirrored(features, np.ones(len(scenarios), bool))
        return scene_graph(features, scene.graph).to(self.device)


class BundlePredictor(ModelPredictor):
    """An exported bundle (:mod:`trajpred.export`) in the onboard runtime, with torch's number of threads."""

    def __init__(self, bundle: str | Path) -> None:
        self.forecaster = OnboardForecaster(bundle, threads=torch.get_num_threads())
        opened = self.forecaster.bundle
        self.name = f"{opened.name}, onboard {opened.precision}"
        self.how = "onboard"
        self.training = opened.training
        self.step_s = opened.step_s
        self.horizon = opened.horizon

    def forecast(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return [self.forecaster.forecast(ScenarioBatch.of([scenario])) for scenario in scenarios]


def display_name(checkpoint: str | Path) -> str:
    """Return ``RUN/version_0/best`` for a checkpoint in a run's folder, else the file's name."""
    path = Path(checkpoint)
    if path.is_dir():
        path = locate(path)
    path = path.absolute()
    name = path.name.removesuffix(".ckpt")
    if path.parent.name != "checkpoints":
        return name
    run = path.parts[1:][-4:-2]
    return "/".join((*run, name))


def code_of(predictor: Predictor) -> dict[str, object]:
    """Return the classes behind the forecasts, by name: predictors, encoders and decoders."""
    code: dict[str, object] = {}
    for member in predictor.members:
        code[member.name] = type(member)
        if isinstance(member, CheckpointPredictor):
            for part in (member.model.encoder, member.model.decoder):
                code[type(part).__name__] = type(part)
    return code


def has_attention(predictor: Predictor) -> bool:
    """Return whether the predictor is a model whose encoder reports attention."""
    return isinstance(predictor, CheckpointPredictor) and predictor.model.encoder.has_attention


def attention_of(predictor: Predictor, scenarios: Sequence[Scenario]) -> list[Attention]:
    """Return :meth:`CheckpointPredictor.attention`. Raises: DataError if the predictor reports none."""
    problem = f"is not reported by {predictor.name}; use a checkpoint whose encoder does"
    require(has_attention(predictor), "attention", problem)
    assert isinstance(predictor, CheckpointPredictor)
    return predictor.attention(scenarios)


def _reflect(forecast: Forecast) -> Forecast:
    """Reflect about the city's x axis, like :func:`trajpred.features.scene_graph.mirrored`."""
    path = forecast.trajectory * [1.0, -1.0]
    return replace(forecast, trajectory=path, heading=wrap_angle(-forecast.heading))
