"""trajpred: trajectory prediction for self-driving.

Data flow: raw files → ``sources`` → :class:`Scenario` → ``store`` → ``graph`` → ``model`` → :class:`Forecast`
→ ``metrics``, ``evaluation``, ``viz``. Importing this package imports no library; each name below is imported
when it is first used, and torch only by those that need it.

Example:
    >>> import trajpred
    >>> predictor = trajpred.load_predictor("argoverse2-demo")
    >>> [forecast] = predictor([scenario])
    >>> trajpred.plot_scenario(scenario, forecast)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trajpred.processors import limit_threads

if TYPE_CHECKING:
    from trajpred.errors import DataError as DataError
    from trajpred.forecast import Forecast as Forecast
    from trajpred.lane_map import LaneMap as LaneMap
    from trajpred.lane_map import Ragged as Ragged
    from trajpred.model.forecaster import from_pretrained as from_pretrained
    from trajpred.model.pretrained import list_models as list_models
    from trajpred.predictors import Predictor as Predictor
    from trajpred.predictors import load_predictor as load_predictor
    from trajpred.scenario import Scenario as Scenario
    from trajpred.scenario import Tracks as Tracks
    from trajpred.sources.av2_objects import from_av2 as from_av2
    from trajpred.sources.av2_objects import to_av2 as to_av2
    from trajpred.sources.maps import load_map as load_map
    from trajpred.time_grid import resample as resample
    from trajpred.viz import draw_scene as draw_scene
    from trajpred.viz import plot_scenario as plot_scenario

limit_threads()
__version__ = "0.1.0"
#: The module of each public name.
_HOME = {
    "DataError": "errors",
    "Forecast": "forecast",
    "LaneMap": "lane_map",
    "Predictor": "predictors",
    "Ragged": "lane_map",
    "Scenario": "scenario",
    "Tracks": "scenario",
    "draw_scene": "viz",
    "from_av2": "sources.av2_objects",
    "from_pretrained": "model.forecaster",
    "list_models": "model.pretrained",
    "load_map": "sources.maps",
    "load_predictor": "predictors",
    "plot_scenario": "viz",
    "resample": "time_grid",
    "to_av2": "sources.av2_objects",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
