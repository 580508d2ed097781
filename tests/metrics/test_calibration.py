"""Calibration against plain loops, numerical minima and fresh random data."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, special, stats

from tests.conftest import rejects
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.metrics.calibration import (
    ConformalRegions,
    apply_temperature,
    conformal_radius,
    endpoint_scores,
    fit_temperature,
    laplace_levels,
    reliability,
)

Floats = NDArray[np.float64]


def forecasts(
    agents: int = 20_000, temperature: float = 1.0, seed: int = 0
) -> tuple[Floats, NDArray[np.int64]]:
    """Logits that are calibrated once divided by ``temperature``, and best modes drawn accordingly."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(0, 1.5, (agents, 6))
    right = special.softmax(logits / temperature, 1)
    best = (right.cumsum(1) < draw.random((agents, 1))).sum(1).clip(max=5)
    return logits, best


@pytest.mark.parametrize("top_only", [False, True])
def test_reliability_equals_plain_loops(top_only: bool) -> None:
    logits, best = forecasts(300)
    p = special.softmax(logits, 1)
    number, excess = map(np.ravel, reliability(p, best, 7, top_only))
    members: defaultdict[int, list[tuple[float, bool]]] = defaultdict(list)
    for row, mode in zip(p, best, strict=True):
        counted = [int(row.argmax())] if top_only else range(6)
        for k in counted:
            members[int(row[k] * 7)].append((row[k], k == mode))
    bins = [np.array(members[number]) for number in sorted(members)]
    sizes = [len(pairs) for pairs in bins]
    means = np.array([pairs.mean(0) for pairs in bins])
    used, counts = np.unique(number, return_counts=True)
    assert counts.tolist() == sizes
    total = np.bincount(number, excess)
    np.testing.assert_allclose(total[used], (means[:, 1] - means[:, 0]) * sizes)
    error = np.average(abs(means[:, 1] - means[:, 0]), weights=sizes)
    assert np.abs(total).sum() / len(number) == pytest.approx(error)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_fitted_temperature_minimises_the_negative_log_likelihood(temperature: float) -> None:
    logits, best = forecasts(8000, temperature)
    fitted = fit_temperature(logits, best)
    assert fitted == pytest.approx(temperature, rel=0.05)

    def loss(inverse: float) -> float:
        return float(-special.log_softmax(logits * inverse, 1)[np.arange(len(best)), best].mean())

    by_scipy = optimize.minimize_scalar(loss, bounds=(0.01, 10), method="bounded")
    assert 1 / fitted == pytest.approx(by_scipy.x, rel=1e-4)
    after = apply_temperature(special.softmax(logits, 1), fitted)
    p = special.softmax(logits / fitted, 1)
    np.testing.assert_allclose(after, p, rtol=1e-9)
    slope = (p * logits).sum(1) - logits[np.arange(len(best)), best]  # of the likelihood in 1/T
    assert abs(slope.mean()) < 1e-12
    assert fit_temperature(np.log(after), best) == pytest.approx(1, rel=1e-9)


def test_temperatures_at_their_bounds() -> None:
    logits = np.array([[2.0, 0.0], [0.0, 1.0]])
    assert fit_temperature(logits, np.array([0, 1])) == pytest.approx(1e-3)  # always right
    assert fit_temperature(logits, np.array([1, 0])) == pytest.approx(1e3)  # always wrong
    excluded = np.array([[0.0, -np.inf]] * 10)
    assert 1 < fit_temperature(excluded, np.array([0] * 9 + [1])) < 1e3
    sharp = apply_temperature(np.array([[0.0, 0.4, 0.6], [1e-200, 2e-200, 0.0]]), 0.01)
    assert sharp[0, 0] == 0
    assert sharp[1, 1] == pytest.approx(1)
    assert sharp.sum(1) == pytest.approx([1, 1])
    rejects("'best'", fit_temperature, np.zeros((0, 6)), np.zeros(0, int))
    rejects("'temperature'", apply_temperature, sharp, 0)


def test_laplace_levels_of_laplace_errors_are_uniform() -> None:
    draw = np.random.default_rng(6)
    scale = draw.uniform(0.1, 4, (400, 60, 2))
    error = draw.laplace(0, scale)
    level = laplace_levels(error, scale)
    assert stats.kstest(level.ravel(), "uniform").pvalue > 1e-3
    for q in (0.1, 0.5, 0.99):
        inside = abs(error) <= stats.laplace.ppf((1 + q) / 2, scale=scale)
        np.testing.assert_array_equal(level <= q, inside)


@pytest.mark.parametrize(
    ("count", "coverage", "rank"),
    [(9, 0.9, 9), (19, 0.9, 18), (99, 0.55, 55), (3, 0.5, 2), (8, 0.9, np.inf), (0, 0.5, np.inf)],
)
def test_conformal_radius_is_the_finite_sample_quantile(count: int, coverage: float, rank: int) -> None:
    score = np.random.default_rng(7).permutation(count) + 1.0
    assert conformal_radius(score, coverage) == rank
    for scores, level in ((score, 1.0), (np.array([1.0, np.nan]), 0.5)):
        rejects(r"coverage|finite", conformal_radius, scores, level)


def test_endpoint_scores_equal_plain_loops() -> None:
    draw = np.random.default_rng(9)
    trajectory = draw.normal(0, 5, (7, 6, 30, 2))
    target = draw.normal(0, 5, (7, 30, 2))
    valid = draw.random((7, 30)) < 0.7
    scores = endpoint_scores(trajectory, target, valid, [1.0, 3.0])
    for a in range(7):
        for h, step in enumerate((9, 29)):
            nearest = np.inf
            for mode in trajectory[a]:
                nearest = min(nearest, np.hypot(*(mode[step] - target[a, step])))
            expected = nearest if valid[a, step] else np.nan
            np.testing.assert_allclose(scores[a, h], expected)
    rejects("30 future steps", endpoint_scores, trajectory, target, valid, [3.1])


def random_scores(seed: int, agents: int = 6000) -> tuple[Floats, NDArray[np.int64]]:
    """Errors that grow with the horizon and differ by class; few motorcyclists, no bus."""
    draw = np.random.default_rng(seed)
    kind = draw.choice([0, 1, 2], agents, p=[0.6, 0.39, 0.01])
    score = draw.exponential((1.0 + kind)[:, None] * [1.0, 2.0, 3.0])
    score[draw.random(score.shape) < 0.1] = np.nan
    return score, kind


def test_regions_cover_each_class_at_each_horizon() -> None:
    fitted, kinds = random_scores(10)
    regions = ConformalRegions.fit(fitted, kinds, [1, 2, 3], coverage=0.9)
    score, kind = random_scores(11)
    inside = regions.covered(score, kind)
    for object_type in (0, 1):
        for h in range(3):
            member = (kind == object_type) & np.isfinite(score[:, h])
            # Fitted and fresh samples both vary: five standard deviations of their difference.
            spread = np.sqrt(0.09 / member.sum() + 0.09 / regions.count[object_type, h])
            assert abs(inside[member, h].mean() - 0.9) < 5 * spread
    assert not inside[np.isnan(score)].any()
    exact = -np.log(0.1) * np.outer([1, 2], [1, 2, 3])
    np.testing.assert_allclose(regions.radius[:2], exact, rtol=0.1)
    # Types with too few agents share the radius of all types.
    assert ((regions.count[2] > 0) & (regions.count[2] < 100)).all()
    few = ConformalRegions.fit(fitted, kinds, [1, 2, 3], min_count=30)
    for h, scores in enumerate(fitted.T):
        has_score = np.isfinite(scores)
        assert (regions.radius[2:, h] == conformal_radius(scores[has_score], 0.9)).all()
        assert few.radius[2, h] == conformal_radius(scores[has_score & (kinds == 2)], 0.9)


def test_regions_survive_json() -> None:
    score, kind = random_scores(13, agents=300)
    score[5:, 2] = np.nan  # too few for a guarantee
    regions = ConformalRegions.fit(score, kind, [1.0, 2.0, 2.9])
    again = ConformalRegions.from_json(regions.to_json())
    assert "Infinity" not in regions.to_json()
    assert np.isinf(again.radius[OBJECT_TYPES.index("bus"), 2])
    for name in ("coverage", "horizons_s", "radius", "count"):
        np.testing.assert_array_equal(getattr(again, name), getattr(regions, name))
    for broken in ("{", "[]", '{"coverage": 0.9, "horizons_s": [1], "object_types": {}}'):
        rejects("conformal regions", ConformalRegions.from_json, broken)
    rejects("score", ConformalRegions.fit, np.ones((5, 2)), np.zeros(5, np.int64), [1, 2, 3])


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.1])
def test_values_that_are_no_probabilities_are_rejected(value: float) -> None:
    probability = np.array([[0.6, 0.4], [value, 0.5]])
    best = np.zeros(2, np.int64)
    rejects(r"'probability'.*row 1$", reliability, probability, best)
    rejects(r"'probability'.*row 1$", apply_temperature, probability, 2.0)
    for logits in ([np.nan, 0.0], [np.inf, 0.0], [-np.inf, -np.inf]):
        rejects(r"'logits'.*row 1$", fit_temperature, np.array([[0.0, 0.0], logits]), best)
    rejects("'temperature'", apply_temperature, probability[:1], np.inf)
