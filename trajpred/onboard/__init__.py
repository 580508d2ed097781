"""The onboard runtime: run an exported bundle with NumPy and onnxruntime alone; see README.md in this folder.

Example:
    >>> from trajpred.onboard import Detections, OnboardForecaster, StreamingForecaster
    >>> stream = StreamingForecaster(OnboardForecaster("bundle"), lane_map)
    >>> forecast = stream.update(12.3, Detections(["car 7"], [[4.0, 7.5]]))
    >>> forecast.trajectory, forecast.probability, forecast.not_predicted
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajpred.errors import DataError

if TYPE_CHECKING:
    from trajpred.onboard.bundle import Bundle
    from trajpred.onboard.forecaster import OnboardForecaster
    from trajpred.onboard.stream import Detections, OnboardForecast, StreamingForecaster

#: The module of each public name; imported on first use, onnxruntime only with those that need it.
_HOME = {
    "Bundle": "bundle",
    "Detections": "stream",
    "OnboardForecast": "stream",
    "OnboardForecaster": "forecaster",
    "StreamingForecaster": "stream",
}
__all__ = [
    "Bundle",
    "Detections",
    "OnboardForecast",
    "OnboardForecaster",
    "StreamingForecaster",
    "open_bundle",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def open_bundle(bundle: Path, threads: int) -> OnboardForecaster:
    """Load ``bundle``. Raises: DataError with advice if onnxruntime or the bundle is missing."""
    try:
        from trajpred.onboard.forecaster import OnboardForecaster
    except ImportError as error:
        raise DataError(f"bundles need onnxruntime ({error}): pip install onnxruntime") from None
    if not bundle.exists():
        advice = f"no such bundle; make one with python tools/export.py --out {bundle}"
        raise DataError(advice, file=bundle)
    return OnboardForecaster(bundle, threads=threads)
