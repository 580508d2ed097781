"""Drives of a few cars on a straight line."""

from trajpred.onboard import Detections, OnboardForecast, StreamingForecaster

STEP = 0.1


def drive(stream: StreamingForecaster, steps: int = 6, **others: tuple[float, float]) -> OnboardForecast:
    """Update with car ``a`` at 10 m/s and ``others`` that stand."""
    for step in range(steps):
        found = stream.update(step * STEP, Detections(["a", *others], [(step, 0.0), *others.values()]))
    return found


def warnings(found: OnboardForecast) -> str:
    return "; ".join(found.warnings)
