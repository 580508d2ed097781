"""trajpred: trajectory prediction for self-driving.

Data flow: raw files → ``sources`` → :class:`Scenario` → ``store`` → ``graph`` → ``model`` → :class:`Forecast`
→ ``metrics``, ``evaluation``, ``viz``. Importing this package imports no library; each name below is imported
when it is first used, and torch only by those that need it.

Example:
    >>> import trajpred
    >>> predictor = trajpred.load_predictor("argoverse-nano")
    >>> [forecast] = predictor([scenario])
    >>> trajpred.plot_scenario(scenario, forecast)
"""

from typing import TYPE_CHECKING

from trajpred.lazy import lazy_names
from trajpred.processors import limit_threads

if TYPE_CHECKING:
    from trajpred.errors import DataError
    from trajpred.forecast import Forecast
    from trajpred.lane_map import LaneMap, Ragged
    from trajpred.model.forecaster import from_pretrained
    from trajpred.model.pretrained import list_models
    from trajpred.predictors import Predictor, load_predictor
    from trajpred.scenario import Scenario, Tracks
    from trajpred.sources.av2_objects import from_av2, to_av2
    from trajpred.sources.maps import load_map
    from trajpred.time_grid import resample
    from trajpred.viz import draw_scene, plot_scenario

limit_threads()
__version__ = "0.1.0"
__getattr__, __all__ = lazy_names(
    __name__,
    {
        "errors": "DataError",
        "forecast": "Forecast",
        "lane_map": "LaneMap Ragged",
        "model.forecaster": "from_pretrained",
        "model.pretrained": "list_models",
        "predictors": "Predictor load_predictor",
        "scenario": "Scenario Tracks",
        "sources.av2_objects": "from_av2 to_av2",
        "sources.maps": "load_map",
        "time_grid": "resample",
        "viz": "draw_scene plot_scenario",
    },
)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
