"""The onboard runtime: from a bundle to forecasts, with NumPy and onnxruntime alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trajpred.errors import DataError

if TYPE_CHECKING:
    from trajpred.onboard.forecaster import OnboardForecaster


def open_bundle(bundle: Path, threads: int) -> OnboardForecaster:
    """Open the runtime of ``bundle``. Raises: DataError that says what to do if there is none."""
    try:
        from trajpred.onboard.forecaster import OnboardForecaster
    except ImportError as error:
        raise DataError(f"bundles need onnxruntime ({error}): pip install onnxruntime") from None
    advice = f"no such bundle; make one with python tools/export.py --out {bundle}"
    if not bundle.exists():
        raise DataError(advice, file=bundle)
    return OnboardForecaster(bundle, threads=threads)
