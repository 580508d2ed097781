"""What a predictor scores over a split: means by group, horizon and part; of focal agents every value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trajpred.evaluation.beyond import Calibration, beyond_columns
from trajpred.evaluation.columns import displacement, horizons, in_worlds, worlds
from trajpred.evaluation.judged import BOUNDS, FACTS, GROUPS, Columns, Judged, require_step
from trajpred.evaluation.tally import AgentTally, Means, WorldTally
from trajpred.forecast import Forecast
from trajpred.metrics import columns as columns_of
from trajpred.scenario import Scenario


class Scores:
    """Sums that take in batch after batch; of each scenario only the focal agent's values are kept.

    Args:
        ks: for each k, judge the k most probable modes.
        beyond: also look at what displacement does not tell (:mod:`trajpred.evaluation.beyond`).
        joint: whether mode k of all agents of a scene is one world.
    """

    def __init__(self, ks: Sequence[int] = (1, 6), beyond: bool = False, joint: bool = False) -> None:
        self.ks, self.joint, self.judged = tuple(ks), joint, 0
        self.missing = dict.fromkeys(GROUPS, 0)
        self.calibration = Calibration() if beyond else None
        self.worlds = WorldTally()
        self._whole: AgentTally | None = None
        self._horizons: dict[str, AgentTally] = {}
        self._parts: dict[str, dict[str, AgentTally]] = {fact: {} for fact in FACTS}
        self._focal_id: list[str] = []
        self._focal: list[NDArray[np.float32]] = []
        self._step_s = 0.0

    def add(self, scenarios: Sequence[Scenario], forecasts: Sequence[Forecast]) -> None:
        """Score a batch. Raises: DataError if a forecast does not fit its scenario."""
        some = Judged.of(scenarios, forecasts)
        self._step_s = self._step_s or some.step_s
        require_step(some.step_s, self._step_s, scenarios[0].scenario_id)
        self.judged += len(some)
        self.missing = {group: count + some.missing[group] for group, count in self.missing.items()}
        chosen = in_worlds(some) if self.joint else np.zeros(len(some), bool)
        self.worlds.add(*worlds(some, chosen))
        self.worlds.incomplete += int((~some.complete).sum())
        columns = displacement(some, self.ks)
        if self.calibration is not None:
            columns |= beyond_columns(some, scenarios, chosen)
            self.calibration.add(some)
        focal = some.member["focal"]
        self._focal_id += [scenarios[scene].scenario_id for scene in some.scene[focal]]
        self._focal.append(np.stack([values[focal] for values in columns.values()]).astype(np.float32))
        self._count(some, columns)

    def _count(self, some: Judged, columns: Columns) -> None:
        """Add the agents' values to the sums of everything that they are part of."""
        self._whole = self._whole or AgentTally([*columns])
        self._whole.add(some.member | columns)
        for second, values in horizons(some).items():
            self._horizons.setdefault(second, AgentTally(columns_of("breakdown"))).add(values)
        for fact, words in some.facts.items():
            for word in np.unique(words).tolist():
                part = self._parts[fact].setdefault(word, AgentTally(columns_of("breakdown")))
                part.add(some.member | columns, words == word)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all metrics; none before the first batch."""
        return self._whole.names if self._whole else ()

    def means(self, names: Sequence[str]) -> Means:
        """Of all agents of each group."""
        return self._whole.means(names) if self._whole else {}

    def horizons(self) -> dict[str, Means]:
        """For ``"1 s"``, ``"2 s"`` … the breakdown metrics over the agents that are there then."""
        return {second: tally.means() for second, tally in self._horizons.items()}

    def breakdown(self, fact: str) -> dict[str, Means]:
        """The breakdown metrics for each value of ``fact``: numbers in order, words by frequency."""
        parts = self._parts[fact]
        if fact in BOUNDS:
            ordered = sorted(parts, key=lambda text: float(text.split()[0]))
        else:
            ordered = sorted(parts, key=lambda word: (-parts[word].count["all"], word))
        return {value: parts[value].means() for value in ordered}

    def focal(self) -> Columns:
        """``scenario_id`` and all metrics of the focal agents, ``[S]`` each."""
        values = np.concatenate(self._focal, axis=1) if self._focal else np.zeros((len(self.names), 0))
        return {"scenario_id": np.array(self._focal_id), **dict(zip(self.names, values, strict=True))}
