"""The states of an obstacle of CommonRoad."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import numpy as np

from trajpred.sources.reading import as_number, integer


def is_static_obstacle(obstacle: Element) -> bool:
    return "static" in (obstacle.findtext("role"), obstacle.tag.removesuffix("Obstacle"))


def states_of(obstacle: Element) -> list[tuple[int, list[float]]]:
    """Return the step and the values of each state of an obstacle, see :func:`_state`."""
    elements = [*obstacle.iterfind("initialState"), *obstacle.iterfind("trajectory/state")]
    return [_state(element) for element in elements]


def _state(state: Element) -> tuple[int, list[float]]:
    """Return the step of a state, and its x, y, heading, velocity and velocityY."""
    x = as_number(state.findtext("position//x"), "position.x")
    y = as_number(state.findtext("position//y"), "position.y")
    heading = _value(state, "orientation")
    speed = _value(state, "velocity")
    aside = _value(state, "velocityY")
    step = integer(state.findtext("time/exact"), "time")
    return step, [x, y, heading, speed, aside]


def _value(state: Element, name: str) -> float:
    """Return an exact value, or the middle of an interval; NaN without either."""
    numbers: list[float] = []
    for part in ("exact", "intervalStart", "intervalEnd"):
        text = state.findtext(f"{name}/{part}")
        if text is not None:
            numbers.append(as_number(text, name))
    if not numbers:
        return np.nan
    return sum(numbers) / len(numbers)
