"""trajpred: predict where road users go next.

The way the data goes: raw files -> ``sources`` -> :class:`~trajpred.scenario.Scenario` -> ``store`` ->
``graph`` -> ``model`` -> Forecast -> ``metrics``, ``viz``. Importing this package does not import torch.
"""

from trajpred.errors import DataError
from trajpred.lane_map import LaneMap, Ragged
from trajpred.scenario import Scenario, Tracks

__all__ = ["DataError", "LaneMap", "Ragged", "Scenario", "Tracks", "__version__"]
__version__ = "0.1.0"
