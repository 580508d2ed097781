"""The numbers that the page tells: all of them from the evaluation, none computed in the browser."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.evaluation.judged import Judged, facts_of
from trajpred.evaluation.results import finite
from trajpred.forecast import Forecast
from trajpred.metrics import agent_metrics, columns, final_error
from trajpred.scenario import OBJECT_TYPES, Scenario

#: The facts that the list filters by.
FACTS = ("class", "manoeuvre", "city")


@dataclass(frozen=True)
class Figures:
    """How good a forecast is, by track id; tracks without a future have none.

    Attributes:
        metrics: the values of the registry's ``breakdown`` table, metres to 0.1 mm as in
            ``Evaluation.per_scenario``; None where not defined.
        end_error: ``[K]`` metres from each mode's end to where the track was last seen; None likewise.
    """

    metrics: dict[str, list[float | None]] = field(default_factory=dict)
    end_error: dict[str, list[float | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, scenario: Scenario, forecast: Forecast) -> Figures:
        """Of every judged track. Raises: DataError if the forecast does not fit the scenario."""
        if not scenario.has_future:
            return cls()
        some = Judged.of([scenario], [forecast])
        if not len(some):
            return cls()
        given = (some.trajectory, some.probability, some.target, some.valid)
        path, p, target, valid = map(torch.from_numpy, given)
        found = agent_metrics(path, p, target, valid, (6,))
        # Through float32 and in this order, as evaluate does: the list then says what its JSON says.
        each = [found[name].float().numpy().astype(np.float64) for name in columns("breakdown")]
        ends = final_error(path, target, valid).numpy()
        names = some.track_id.tolist()
        values = np.stack(each, axis=1)
        return cls(
            {name: _numbers(row, 4) for name, row in zip(names, values, strict=True)},
            {name: _numbers(row, 2) for name, row in zip(names, ends, strict=True)},
        )


def _numbers(values: NDArray[np.float64], digits: int) -> list[float | None]:
    """Rounded, as they stand in JSON."""
    rounded: list[float | None] = finite(values.round(digits).tolist())
    return rounded


def focal_facts(scenario: Scenario) -> dict[str, str]:
    """:data:`FACTS` of the focal track; ``unknown`` is the manoeuvre of one without a future."""
    kind = OBJECT_TYPES[scenario.tracks.object_type[scenario.focal]]
    plain = {"class": kind, "manoeuvre": "unknown", "city": scenario.city or "unknown"}
    found = facts_of(scenario).get(scenario.focal_id) if scenario.has_future else None
    return {name: found[name] for name in FACTS} if found else plain
