"""trajpred: trajectory prediction for self-driving.

Data flow: raw files → ``sources`` → :class:`Scenario` → ``store`` → ``features`` → ``model`` →
:class:`Forecast` → ``metrics``, ``evaluation``, ``viz``. Importing this package imports no library; each name
below is imported at its first use, and torch only by names that need it.

Example:
    >>> import trajpred
    >>> predictor = trajpred.load_predictor("argoverse-nano")
    >>> [forecast] = predictor([scenario])
    >>> trajpred.plot_scenario(scenario, forecast)
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trajpred.data.forecast import Forecast
    from trajpred.data.lane_map import LaneMap
    from trajpred.data.ragged import Ragged
    from trajpred.data.resample import resample
    from trajpred.data.scenario import Scenario
    from trajpred.data.tracks import Tracks
    from trajpred.errors import DataError
    from trajpred.integrations.maps import read_map
    from trajpred.model.forecaster import from_pretrained
    from trajpred.model.pretrained import list_models
    from trajpred.predictors import Predictor, load_predictor
    from trajpred.sources.av2_objects import from_av2, to_av2
    from trajpred.viz import draw_scene, plot_scenario


def lazy_names(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], list[str]]:
    """Return the ``__getattr__`` and ``__all__`` of ``package``, which import names when they are used.

    Args:
        names: public names of each module in the package, separated by spaces.
    """
    homes = {name: module for module, text in names.items() for name in text.split()}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return load, sorted(homes)


__version__ = "0.1.0"
__getattr__, __all__ = lazy_names(
    __name__,
    {
        "errors": "DataError",
        "data.forecast": "Forecast",
        "data.lane_map": "LaneMap",
        "model.forecaster": "from_pretrained",
        "model.pretrained": "list_models",
        "predictors": "Predictor load_predictor",
        "data.ragged": "Ragged",
        "data.scenario": "Scenario",
        "sources.av2_objects": "from_av2 to_av2",
        "integrations.maps": "read_map",
        "data.resample": "resample",
        "data.tracks": "Tracks",
        "viz": "draw_scene plot_scenario",
    },
)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
