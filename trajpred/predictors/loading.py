"""Whatever predicts: a trained checkpoint, a baseline or a predictions file, behind one interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch_geometric.data import HeteroData

from trajpred.attention import Attention
from trajpred.errors import DataError, require
from trajpred.forecast import Forecast
from trajpred.geometry import wrap_angle
from trajpred.graph.features import scene_features
from trajpred.graph.mirror import mirrored
from trajpred.graph.scene_graph import scene_graph
from trajpred.metrics.calibration import apply_temperature
from trajpred.metrics.conformal import ConformalRegions
from trajpred.model import Forecaster, pretrained
from trajpred.model.checkpoint import CALIBRATION, read_checkpoint, training_facts
from trajpred.onboard.bundle import is_bundle
from trajpred.predictors.baselines import BASELINES
from trajpred.predictors.merge import merge
from trajpred.predictors.predictions import PredictionsPredictor, future_steps
from trajpred.scenario import Scenario
from trajpred.scenario_batch import ScenarioBatch


class Predictor(Protocol):
    """Forecasts scenarios.

    Attributes:
        name: shown in tables.
        training: how it was trained (:class:`trajpred.training.TrainingRecord`), as far as known.
        joint: whether mode k of all agents of a scene is one world; False if it does not say.
        how: in what way it forecasts, where one training allows several: ``joint``, ``mirrored``; nothing if
            it does not say.
    """

    name: str
    training: dict[str, Any]

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        """One forecast per scenario, in order."""
        ...


class BaselinePredictor:
    """Predict with a baseline by name; 6 s ahead where a scenario has no future steps."""

    def __init__(self, name: str) -> None:
        self.name, self.joint = name, name != "lane_following"  # the others have one mode: one world
        self.training: dict[str, Any] = {}

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return [BASELINES[self.name](scenario, future_steps(scenario)) for scenario in scenarios]


class CheckpointPredictor:
    """A trained model, on a GPU if there is one: a checkpoint, or weights that ship by their name.

    Args:
        checkpoint: its path or name.
        joint: forecast worlds: mode k of all agents of a scene belongs together.

    Raises: DataError if the model has no joint modes to forecast.
    """

    def __init__(self, checkpoint: str | Path, joint: bool = False) -> None:
        self.joint, self.mirror = joint, False
        content = read_checkpoint(checkpoint)
        self.training = training_facts(content)
        fitted = content.get(CALIBRATION, {})
        self.temperature = float(fitted.get("temperature", 1.0))
        #: Around the modes, by class and horizon; None unless the model was calibrated.
        self.regions = ConformalRegions.from_json(fitted["regions"]) if fitted else None
        self.how = "joint" if joint else "calibrated" if fitted else ""
        self.name = shown_name(checkpoint) + (", joint" if joint else "")
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = Forecaster.load(checkpoint).to(self.device)
        if joint and not self.model.decoder.joint:
            advice = "train with model.decoder.init_args.joint true, or predict the focal track alone"
            raise DataError(f"this model has no joint modes: {advice}", file=checkpoint)

    def mirrored(self) -> CheckpointPredictor:
        """The same model, which sees every scene in a mirror, and its forecast too: another opinion."""
        other = copy(self)
        other.mirror, other.name = True, f"{self.name}, mirrored"
        other.how = ", ".join(filter(None, (self.how, "mirrored")))
        return other

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        if not scenarios:
            return []
        forecasts = self.model.forecast(self._batch(scenarios), joint=self.joint)
        if self.temperature != 1.0 and not self.joint:  # it was fitted to marginal forecasts
            forecasts = [_warmed(one, self.temperature) for one in forecasts]
        return [_in_mirror(one) for one in forecasts] if self.mirror else forecasts

    def attention(self, scenarios: Sequence[Scenario]) -> list[Attention]:
        """Return the encoder's attention weights for each scenario. Raises: DataError if it reports none."""
        return self.model.encoder.attention_weights(self._batch(scenarios)) if scenarios else []

    def _batch(self, scenarios: Sequence[Scenario]) -> HeteroData:
        """What the model sees of ``scenarios``. Raises: DataError if it was not made for them."""
        scene = self.model.scene
        features = scene_features(ScenarioBatch.of(scenarios), scene.features)
        if self.mirror:
            features = mirrored(features, np.ones(len(scenarios), bool))
        batch = scene_graph(features, scene.graph)
        return batch.to(self.device)


class BundlePredictor:
    """An exported bundle (:mod:`trajpred.export`), as it runs onboard."""

    def __init__(self, bundle: str | Path) -> None:
        from trajpred.onboard.forecaster import OnboardForecaster

        self.forecaster = OnboardForecaster(bundle)
        info = self.forecaster.bundle.info
        self.name, self.joint, self.how = f"{info['name']}, onboard {info['precision']}", False, "onboard"
        self.training: dict[str, Any] = info["model"]["training"]

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return [self.forecaster.forecast(ScenarioBatch.of([scenario])) for scenario in scenarios]


class EnsemblePredictor:
    """Several predictors as one: their modes, each predictor counting the same, merged to ``modes``."""

    def __init__(self, predictors: Sequence[Predictor], modes: int = 6) -> None:
        self.predictors, self.modes = tuple(predictors), modes
        self.name = " + ".join(one.name for one in predictors)
        same = all(one.training == predictors[0].training for one in predictors)
        # A model and its mirror image are still that model, asked in another way.
        self.training: dict[str, Any] = predictors[0].training if same else {}
        self.how: str = getattr(predictors[-1], "how", "") if same else ""

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        each = [predictor(scenarios) for predictor in self.predictors]
        return [merge(forecasts, self.modes) for forecasts in zip(*each, strict=True)]


def _warmed(forecast: Forecast, temperature: float) -> Forecast:
    return replace(forecast, probability=apply_temperature(forecast.probability, temperature))


def _in_mirror(forecast: Forecast) -> Forecast:
    """Reflected about the city's x axis, as :func:`trajpred.graph.mirror.mirrored` reflects scenes."""
    path = forecast.trajectory * [1.0, -1.0]
    return replace(forecast, trajectory=path, heading=wrap_angle(-forecast.heading))


def shown_name(checkpoint: str | Path) -> str:
    """``NAME/version_0/best`` where training wrote it, else the name of the file or of the weights."""
    path = Path(checkpoint).absolute()
    run = path.parts[-4:-2] if path.parent.name == "checkpoints" else ()
    return "/".join((*run, path.name.removesuffix(".ckpt")))


def load_predictor(checkpoint: str | Path, joint: bool = False) -> Predictor:
    """A baseline or weights that ship, by name, or by its path a checkpoint, a bundle or a predictions file.

    ``joint`` is for models, see :class:`CheckpointPredictor`. Raises: DataError.
    """
    if Path(checkpoint).suffix == ".parquet":
        require(not joint, "joint", "is for models; a predictions file says itself what it holds")
        return PredictionsPredictor(checkpoint)
    if is_bundle(checkpoint):
        require(not joint, "joint", "is for models; a bundle has marginal futures only")
        return BundlePredictor(checkpoint)
    if str(checkpoint) in BASELINES:
        baseline = BaselinePredictor(str(checkpoint))
        require(baseline.joint or not joint, "joint", f"{checkpoint} has no joint futures")
        return baseline
    if not pretrained.locate(checkpoint).is_file():
        known = f"{', '.join(BASELINES)}, nor weights that ship: {pretrained.names()}"
        raise DataError(f"is neither a checkpoint nor one of the baselines {known}", file=checkpoint)
    return CheckpointPredictor(checkpoint, joint)


def load_together(checkpoints: Sequence[str | Path], joint: bool = False, mirror: bool = False) -> Predictor:
    """The predictor of one checkpoint, or of several, with ``mirror`` also their mirror images, merged.

    Raises: DataError, also if worlds would have to be merged.
    """
    predictors = [load_predictor(one, joint) for one in checkpoints]
    if mirror:
        images = [one.mirrored() for one in predictors if isinstance(one, CheckpointPredictor)]
        require(bool(images), "mirror", "is for models")
        predictors += images
    require(len(predictors) == 1 or not joint, "joint", "worlds of several predictors do not merge")
    return EnsemblePredictor(predictors) if len(predictors) > 1 else predictors[0]


def has_attention(predictor: Predictor) -> bool:
    """Return whether ``predictor`` is a model whose encoder reports attention."""
    return isinstance(predictor, CheckpointPredictor) and predictor.model.encoder.has_attention


def attention_of(predictor: Predictor, scenarios: Sequence[Scenario]) -> list[Attention]:
    """:meth:`CheckpointPredictor.attention`. Raises: DataError if ``predictor`` has none to tell."""
    problem = f"is not reported by {predictor.name}; models with the default encoder (SceneEncoder) report it"
    require(has_attention(predictor), "attention", problem)
    assert isinstance(predictor, CheckpointPredictor)
    return predictor.attention(scenarios)


def problems_of(predictor: Predictor, known: Sequence[str]) -> dict[str, list[str]]:
    """By scenario, what is wrong with predictions files in use; ``known``: ids of the split's scenarios."""
    found: dict[str, list[str]] = {}
    for one in files_of(predictor):
        if one.file.note:
            found.setdefault(one.name, []).append(one.file.note)
        for part in (one.problems, one.foreign(known)):
            for scenario, told in part.items():
                found.setdefault(scenario, []).extend(told)
    return found


def files_of(predictor: Predictor) -> list[PredictionsPredictor]:
    """The predictions files that a predictor consists of."""
    members = predictor.predictors if isinstance(predictor, EnsemblePredictor) else [predictor]
    return [one for one in members if isinstance(one, PredictionsPredictor)]


def in_batches(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """``rows`` in runs of at most ``size``."""
    return (rows[start : start + size] for start in range(0, len(rows), size))
