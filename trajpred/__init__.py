"""trajpred: predict where road users go next.

The way the data goes: raw files -> ``sources`` -> :class:`~trajpred.scenario.Scenario` -> ``store`` ->
``graph`` -> ``model`` -> Forecast -> ``metrics``, ``viz``. Importing this package imports nothing else: not
torch, and not NumPy before one of its names is asked for, so that ``trajpred doctor`` starts without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trajpred.errors import DataError
    from trajpred.lane_map import LaneMap, Ragged
    from trajpred.scenario import Scenario, Tracks

__all__ = ["DataError", "LaneMap", "Ragged", "Scenario", "Tracks", "__version__"]
__version__ = "0.1.0"
_HOME = {
    "DataError": "errors",
    "LaneMap": "lane_map",
    "Ragged": "lane_map",
    "Scenario": "scenario",
    "Tracks": "scenario",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
