"""Load any predictor by name or path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from trajpred.data.environment import in_repository
from trajpred.data.forecast import Forecast
from trajpred.data.registry import REGISTRIES, Registry, package_of, register
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError, quoted, require
from trajpred.model import pretrained
from trajpred.onboard.bundle import is_bundle
from trajpred.predictors.baselines import BASELINES
from trajpred.predictors.checkpoint import BundlePredictor, CheckpointPredictor
from trajpred.predictors.derived import DerivedPredictor, EnsemblePredictor
from trajpred.predictors.predictions_file import SUFFIXES, FilePredictor
from trajpred.predictors.predictor import Predictor, future_steps


class BaselinePredictor(Predictor):
    """Forecast with a baseline by name; 6 s ahead if a scenario has no future steps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.joint = name != "lane_following"  # a single mode is a joint mode
        self.fork_safe = True

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        baseline = BASELINES[self.name]
        return [baseline(scenario, future_steps(scenario)) for scenario in scenarios]


class CheckedPredictor(DerivedPredictor):
    """A predictor of another package, whose forecasts are checked."""

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        forecasts = self.predictor(scenarios)
        valid = isinstance(forecasts, list) and len(forecasts) == len(scenarios)
        if not valid or not all(isinstance(forecast, Forecast) for forecast in forecasts):
            described = f"predictor {self.name!r} of {package_of(type(self.predictor))}"
            raise DataError(f"{described} must return a list with a Forecast for each scenario")
        return forecasts


#: Default number of modes that several predictors are merged into.
DEFAULT_MODES = 6
#: Factories of predictors with a name but no file; plug-ins add their own.
PREDICTORS: Registry[Callable[[], Predictor]] = REGISTRIES["predictor"]
PREDICTORS.taken = pretrained.list_models
for _name in BASELINES:
    register("predictor", _name)(lambda name=_name: BaselinePredictor(name))


def load_predictor(checkpoint: str | Path, joint: bool = False) -> Predictor:
    """Load a predictor.

    Args:
        checkpoint: a name in :data:`PREDICTORS` or of pretrained weights, or the path of a checkpoint, a
            bundle or a predictions file.
        joint: mode k of all agents in a scene is one joint mode, as always in files with several tracks.

    Raises:
        DataError: there is no such predictor, or it has no joint futures.
    """
    if Path(checkpoint).suffix in SUFFIXES:
        file = FilePredictor(checkpoint)
        single = f"{checkpoint} has no joint futures: it contains one track per scenario"
        require(file.joint or not joint, "joint", single)
        return file
    if is_bundle(checkpoint):
        require(not joint, "joint", "applies to models; a bundle has marginal futures only")
        return BundlePredictor(checkpoint)
    if str(checkpoint) in PREDICTORS:
        predictor = _registered(str(checkpoint))
        require(predictor.joint or not joint, "joint", f"{checkpoint} has no joint futures")
        return predictor
    if not pretrained.locate(checkpoint).is_file():
        problem = f"is neither a checkpoint nor one of the baselines {', '.join(PREDICTORS)}"
        raise DataError(f"{problem}, nor pretrained weights: {pretrained.names()}", file=checkpoint)
    return CheckpointPredictor(checkpoint, joint)


def _registered(name: str) -> Predictor:
    """Make a predictor of :data:`PREDICTORS`. Raises: DataError naming its package if it is not one."""
    make = PREDICTORS[name]
    described = f"predictor {name!r} of {package_of(make)}"
    try:
        predictor = make()
    except DataError:
        raise
    except Exception as error:  # foreign code raises anything
        raise DataError(f"{described} cannot be made ({type(error).__name__}: {error})") from error
    if not isinstance(predictor, Predictor):
        raise DataError(f"{described} must be a trajpred.predictors.Predictor, is {quoted(predictor)}")
    call = type(predictor).__call__
    if not isinstance(getattr(predictor, "name", None), str) or call is Predictor.__call__:
        page = in_repository("docs/how-to/own-model.md")
        raise DataError(f"{described} must have a name and a __call__, see {page}")
    if package_of(call) == "trajpred":
        return predictor
    return CheckedPredictor(predictor)


def load_ensemble(
    checkpoints: Sequence[str | Path], joint: bool = False, mirror: bool = False, modes: int | None = None
) -> Predictor:
    """Load one predictor, or several whose modes are merged.

    Args:
        checkpoints: as for :func:`load_predictor`.
        joint: forecast joint futures; for a single predictor only.
        mirror: merge each model with its forecast of the mirrored scene.
        modes: number of modes to merge into; by default six for several predictors, all modes for one.

    Raises:
        DataError: there is no such predictor, or joint modes would be merged.
    """
    predictors: list[Predictor] = []
    mirrored: list[Predictor] = []
    for checkpoint in checkpoints:
        predictor = load_predictor(checkpoint, joint)
        predictors.append(predictor)
        if mirror and isinstance(predictor, CheckpointPredictor):
            mirrored.append(predictor.mirrored())
    require(bool(mirrored) or not mirror, "mirror", "applies to models")
    predictors += mirrored
    if len(predictors) < 2 and modes is None:
        return predictors[0]
    require(not joint, "joint", "joint modes cannot be merged")
    return EnsemblePredictor(predictors, DEFAULT_MODES if modes is None else modes)
