"""The onboard runtime: run an exported bundle with NumPy and onnxruntime alone; see README.md in this folder.

Example:
    >>> from trajpred.onboard import Detections, OnboardForecaster, StreamingForecaster
    >>> stream = StreamingForecaster(OnboardForecaster("bundle"), lane_map)
    >>> forecast = stream.update(12.3, Detections(["car 7"], [[4.0, 7.5]]))
    >>> forecast.trajectory, forecast.probability, forecast.not_predicted
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trajpred.onboard.bundle import Bundle
    from trajpred.onboard.forecaster import OnboardForecaster
    from trajpred.onboard.stream import Detections, OnboardForecast, StreamingForecaster

#: The modules of the public names that are not in ``stream``; each name is imported on first use.
_HOME = {"Bundle": "bundle", "OnboardForecaster": "forecaster"}
__all__ = ["Bundle", "Detections", "OnboardForecast", "OnboardForecaster", "StreamingForecaster"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'stream')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
