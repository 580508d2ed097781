"""Bootstrap intervals against what theory says of means."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from trajpred.errors import DataError
from trajpred.evaluation import Evaluation, bootstrap, compare
from trajpred.evaluation.intervals import changes


def scored(
    values: NDArray[np.float64], name: str = "a", order: NDArray[np.int64] | None = None
) -> Evaluation:
    """An evaluation with these focal minFDE6, the scenarios in ``order``."""
    rows = np.arange(len(values)) if order is None else order
    per_scenario = {"scenario_id": [f"s{i}" for i in rows], "minFDE6": values[rows].tolist()}
    return Evaluation(name, "val", len(values), {}, {}, per_scenario)


def test_the_interval_of_a_mean_is_that_of_the_normal_approximation() -> None:
    values = np.random.default_rng(1).gamma(2, 1, 2000)
    found = bootstrap(values)
    half = 1.959964 * values.std() / np.sqrt(len(values))
    assert found.mean == pytest.approx(values.mean())
    # 10,000 resamples leave about 2 % of the half width to chance.
    assert found.low == pytest.approx(values.mean() - half, abs=0.05 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.05 * half)


def test_the_interval_of_few_yes_and_no_is_that_of_the_binomial_law() -> None:
    n, p = 40, 0.3
    found = bootstrap(np.arange(n) < p * n, resamples=100_000)
    draws = np.random.default_rng(5).binomial(n, p, 1_000_000) / n
    assert (found.low, found.high) == pytest.approx(np.quantile(draws, (0.025, 0.975)), abs=1e-9)


def test_pairs_make_a_difference_certain_that_two_means_leave_open() -> None:
    random = np.random.default_rng(2)
    hard, gain = random.gamma(1, 3, 600), random.normal(0.1, 0.2, 600)
    a, b = scored(hard), scored(hard + gain, "b", random.permutation(600))
    found = compare([a], [b])
    half = 1.959964 * gain.std() / np.sqrt(600)
    assert found.mean == pytest.approx(-gain.mean())
    assert (found.low, found.high) == pytest.approx(
        (-gain.mean() - half, -gain.mean() + half), abs=0.1 * half
    )
    assert found.high < 0 < bootstrap(hard).high - bootstrap(hard + gain).low
    assert compare([b], [a])[1:] == pytest.approx((-found.high, -found.low), abs=0.1 * half)


def test_seeds_are_averaged_in_every_scenario() -> None:
    random = np.random.default_rng(3)
    one, two, base = random.normal(2, 1, (3, 50))
    seeds = [scored(one), scored(two, order=random.permutation(50))]
    assert compare(seeds, [scored(base)]) == compare([scored((one + two) / 2)], [scored(base)])


def test_the_same_seed_gives_the_same_interval_however_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(4).normal(size=37)
    whole = bootstrap(values, resamples=500)
    assert bootstrap(values, resamples=500) == whole != bootstrap(values, resamples=500, seed=1)
    monkeypatch.setattr("trajpred.evaluation.intervals._DRAWN", 100)
    assert bootstrap(values, resamples=500) == whole


def test_what_cannot_be_paired_is_refused() -> None:
    a, b = scored(np.ones(5)), scored(np.ones(6), "b")
    with pytest.raises(DataError, match=r"a and b were scored on other scenarios: 1 have no pair"):
        compare([a], [b])
    with pytest.raises(DataError, match="does not tell minADE6 of each scenario"):
        compare([a], [a], "minADE6")
    with pytest.raises(DataError, match="values"):
        bootstrap([])


def test_changes_are_the_largest_both_ways() -> None:
    before = [scored(np.array([1.0, 2.0, 3.0, 4.0]))]
    after = [scored(np.array([1.5, 1.0, 3.0, 0.5]))]
    better, worse = changes(after, before, 2)
    assert [round(change, 6) for _, change in better] == [-3.5, -1.0]
    assert [round(change, 6) for _, change in worse] == [0.5], "what did not change is on neither side"
