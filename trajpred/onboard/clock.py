"""The time of an update: seconds of the tracker's clock, checked before they are used. NumPy only."""

from __future__ import annotations

import math
from typing import Any

from trajpred.errors import as_number, require

#: Binary digits of the fraction of the types that may be too coarse for times.
_DIGITS = {"float32": 23, "float16": 10, "bfloat16": 7}
#: Share of a step that a time must resolve: more would be jitter of the velocities.
_RESOLVED = 0.1


def seconds_of(timestamp: Any, step_s: float) -> float:
    """Return a time in seconds, from a number of Python, NumPy or torch.

    Args:
        step_s: seconds between the steps of the model.

    Raises: DataError if it is no finite number, or of a type that cannot resolve steps at this size: Unix
        time as float32 changes only every 128 s.
    """
    field = "timestamp_s"
    seconds = as_number(timestamp, field)
    require(math.isfinite(seconds), field, f"is not finite, is {seconds}")
    kind = str(getattr(timestamp, "dtype", "")).removeprefix("torch.")
    if kind in _DIGITS and seconds != 0:
        _, exponent = math.frexp(seconds)
        resolution = 2.0 ** (exponent - 1 - _DIGITS[kind])
        advice = f"{seconds:.0f} as {kind} resolves only {resolution:g} s, give float64"
        require(resolution <= _RESOLVED * step_s, field, advice)
    return seconds
