"""Calibration: plain loops, numerical minima, and promises kept on fresh random data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, special, stats

from trajpred.errors import DataError
from trajpred.metrics.calibration import (
    apply_temperature,
    expected_calibration_error,
    fit_temperature,
    laplace_coverage,
    reliability,
)
from trajpred.metrics.conformal import ConformalRegions, conformal_radius, endpoint_scores
from trajpred.scenario import OBJECT_TYPES

Floats = NDArray[np.float64]


def forecasts(
    agents: int = 20_000, temperature: float = 1.0, seed: int = 0
) -> tuple[Floats, NDArray[np.int64]]:
    """Logits that are right once divided by ``temperature``, and modes drawn accordingly."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(0, 1.5, (agents, 6))
    right = special.softmax(logits / temperature, 1)
    best = (right.cumsum(1) < draw.random((agents, 1))).sum(1).clip(max=5)
    return logits, best


@pytest.mark.parametrize("top_only", [False, True])
def test_reliability_equals_plain_loops(top_only: bool) -> None:
    logits, best = forecasts(300)
    p = special.softmax(logits, 1)
    found = reliability(p, best, bins=7, top_only=top_only)
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(7)]
    for row, mode in zip(p, best, strict=True):
        for k in [int(row.argmax())] if top_only else range(6):
            bins[int(row[k] * 7)].append((row[k], k == mode))
    error = 0.0
    for i, members in enumerate(bins):
        assert found.count[i] == len(members)
        if members:
            mean, share = np.mean(members, 0)
            assert found.probability[i] == pytest.approx(mean)
            assert found.frequency[i] == pytest.approx(share)
            error += len(members) * abs(share - mean)
        else:
            assert np.isnan(found.probability[i]) and np.isnan(found.frequency[i])
    assert found.expected_calibration_error == pytest.approx(error / sum(map(len, bins)))


@pytest.mark.parametrize("top_only", [False, True])
def test_calibrated_forecasts_have_no_error(top_only: bool) -> None:
    logits, best = forecasts()
    assert expected_calibration_error(special.softmax(logits, 1), best, top_only=top_only) < 0.01
    assert expected_calibration_error(special.softmax(3 * logits, 1), best, top_only=top_only) > 0.05


def test_certainty_falls_into_the_last_bin() -> None:
    found = reliability(np.array([[1.0, 0.0]]), np.array([0]))
    assert found.count.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert found.expected_calibration_error == 0
    assert np.isnan(expected_calibration_error(np.zeros((0, 6)), np.zeros(0, np.int64)))


def loss(inverse: float, logits: Floats, best: NDArray[np.int64]) -> float:
    return float(-special.log_softmax(logits * inverse, 1)[np.arange(len(best)), best].mean())


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_fit_temperature_is_the_minimum(temperature: float) -> None:
    logits, best = forecasts(8000, temperature)
    found = fit_temperature(logits, best)
    assert found == pytest.approx(temperature, rel=0.05)
    # The slope of the likelihood in 1/T, in closed form, is zero.
    p = special.softmax(logits / found, 1)
    slope = (p * logits).sum(1) - logits[np.arange(len(best)), best]
    assert abs(slope.mean()) < 1e-12
    by_scipy = optimize.minimize_scalar(loss, args=(logits, best), bounds=(0.01, 10), method="bounded")
    assert 1 / found == pytest.approx(by_scipy.x, rel=1e-4)
    # Log-probabilities are logits, too; and applied, the temperature is fitted.
    log_p = special.log_softmax(logits, 1)
    assert fit_temperature(log_p, best) == pytest.approx(found, rel=1e-9)
    after = apply_temperature(special.softmax(logits, 1), found)
    np.testing.assert_allclose(after, p, rtol=1e-9)
    assert fit_temperature(np.log(after), best) == pytest.approx(1, rel=1e-9)


def test_temperatures_without_a_minimum() -> None:
    logits = np.array([[2.0, 0.0], [0.0, 1.0]])
    assert fit_temperature(logits, np.array([0, 1])) == pytest.approx(1e-3)  # always right: ever sharper
    assert fit_temperature(logits, np.array([1, 0])) == pytest.approx(1e3)  # always wrong: ever flatter
    excluded = np.array([[0.0, -np.inf]] * 10)
    assert 1 < fit_temperature(excluded, np.array([0] * 9 + [1])) < 1e3
    with pytest.raises(DataError, match="no agent"):
        fit_temperature(np.zeros((0, 6)), np.zeros(0, np.int64))


def test_apply_temperature_keeps_zeros_and_does_not_underflow() -> None:
    found = apply_temperature(np.array([[0.0, 0.4, 0.6], [1e-200, 2e-200, 0.0]]), 0.01)
    np.testing.assert_allclose(found.sum(1), 1)
    assert found[0, 0] == 0 and found[1, 1] == pytest.approx(1)
    with pytest.raises(DataError, match="positive"):
        apply_temperature(found, 0.0)


def test_laplace_coverage_of_laplace_errors_is_the_level() -> None:
    draw = np.random.default_rng(6)
    scale = draw.uniform(0.1, 4, (400, 60, 2))
    error = draw.laplace(0, scale)
    error[:, 40:][draw.random((400, 20)) < 0.5] = np.nan
    levels = [0.0, 0.1, 0.5, 0.9, 0.99]
    found = laplace_coverage(error, scale, levels)
    np.testing.assert_allclose(found, levels, atol=0.01)
    known = np.isfinite(error)
    for level, share in zip(levels, found, strict=True):
        inside = np.abs(error[known]) <= stats.laplace.ppf((1 + level) / 2, scale=scale[known])
        assert share == pytest.approx(inside.mean(), abs=1e-4)
    assert laplace_coverage(error, 2 * scale, [0.5])[0] > 0.6
    assert np.isnan(laplace_coverage(error * np.nan, scale, [0.5])).all()


@pytest.mark.parametrize(
    ("count", "coverage", "rank"), [(9, 0.9, 9), (19, 0.9, 18), (99, 0.55, 55), (3, 0.5, 2)]
)
def test_conformal_radius_is_the_finite_sample_quantile(count: int, coverage: float, rank: int) -> None:
    score = np.random.default_rng(7).permutation(count) + 1.0
    assert conformal_radius(score, coverage) == rank


def test_conformal_radius_is_infinite_where_nothing_can_be_promised() -> None:
    assert conformal_radius(np.ones(8), 0.9) == np.inf
    assert conformal_radius(np.ones(0), 0.5) == np.inf
    with pytest.raises(DataError, match="coverage"):
        conformal_radius(np.ones(8), 1.0)
    with pytest.raises(DataError, match="finite"):
        conformal_radius(np.array([1.0, np.nan]), 0.5)


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_fresh_data_are_covered_as_promised(coverage: float) -> None:
    """Many small calibration sets, one fresh score each: hits are binomial, n large."""
    draw, sets, count = np.random.default_rng(8), 4000, 40
    scores = draw.gamma(2.0, 1.5, (sets, count + 1))
    hits = sum(row[-1] <= conformal_radius(row[:-1], coverage) for row in scores)
    low, high = stats.binom.ppf([0.0005, 0.9995], sets, [coverage, coverage + 1 / (count + 1)])
    assert low <= hits <= high


def test_endpoint_scores_equal_plain_loops() -> None:
    draw = np.random.default_rng(9)
    trajectory, target = draw.normal(0, 5, (7, 6, 30, 2)), draw.normal(0, 5, (7, 30, 2))
    valid = draw.random((7, 30)) < 0.7
    found = endpoint_scores(trajectory, target, valid, [1.0, 3.0])
    for a in range(7):
        for h, step in enumerate((9, 29)):
            gaps = [np.hypot(*(mode[step] - target[a, step])) for mode in trajectory[a]]
            expected = min(gaps) if valid[a, step] else np.nan
            np.testing.assert_allclose(found[a, h], expected)
    with pytest.raises(DataError, match="30 future steps"):
        endpoint_scores(trajectory, target, valid, [3.1])


def random_scores(seed: int, agents: int = 6000) -> tuple[Floats, NDArray[np.int64]]:
    """Errors that grow with the horizon and differ by class; few motorcyclists, no bus."""
    draw = np.random.default_rng(seed)
    kind = draw.choice([0, 1, 2], agents, p=[0.6, 0.39, 0.01])
    score = draw.exponential((1.0 + kind)[:, None] * [1.0, 2.0, 3.0])
    score[draw.random(score.shape) < 0.1] = np.nan
    return score, kind


def test_regions_cover_each_class_at_each_horizon() -> None:
    regions = ConformalRegions.fit(*random_scores(10), [1, 2, 3], coverage=0.9)
    score, kind = random_scores(11)
    inside = regions.covered(score, kind)
    for one in (0, 1):
        for h in range(3):
            member = (kind == one) & np.isfinite(score[:, h])
            # Fitted and fresh samples both vary: five standard deviations of their difference.
            spread = np.sqrt(0.09 / member.sum() + 0.09 / regions.count[one, h])
            assert abs(inside[member, h].mean() - 0.9) < 5 * spread
    assert not inside[np.isnan(score)].any()
    exact = -np.log(0.1) * np.outer([1, 2], [1, 2, 3])
    np.testing.assert_allclose(regions.radius[:2], exact, rtol=0.1)


def test_rare_classes_share_a_radius() -> None:
    score, kind = random_scores(12)
    regions = ConformalRegions.fit(score, kind, [1, 2, 3])
    assert ((regions.count[2] > 0) & (regions.count[2] < 100)).all()
    everyone = [conformal_radius(column[np.isfinite(column)], 0.9) for column in score.T]
    for rare in range(2, len(OBJECT_TYPES)):
        assert regions.radius[rare].tolist() == everyone
    own = ConformalRegions.fit(score, kind, [1, 2, 3], min_count=30).radius[2]
    assert own.tolist() == [conformal_radius(c[(kind == 2) & np.isfinite(c)], 0.9) for c in score.T]


def test_regions_survive_json() -> None:
    score, kind = random_scores(13, agents=300)
    score[5:, 2] = np.nan  # too few for any promise
    regions = ConformalRegions.fit(score, kind, [1.0, 2.0, 2.9])
    text = regions.to_json()
    assert "Infinity" not in text and json.loads(text)["object_types"]["bus"]["radius_m"][2] is None
    again = ConformalRegions.from_json(text)
    assert again.coverage == regions.coverage
    for name in ("horizons_s", "radius", "count"):
        np.testing.assert_array_equal(getattr(again, name), getattr(regions, name))
    for broken in ("{", "[]", '{"coverage": 0.9, "horizons_s": [1], "object_types": {}}'):
        with pytest.raises(DataError, match="conformal regions"):
            ConformalRegions.from_json(broken)


def test_fit_refuses_other_shapes() -> None:
    with pytest.raises(DataError, match="score"):
        ConformalRegions.fit(np.ones((5, 2)), np.zeros(5, np.int64), [1, 2, 3])
