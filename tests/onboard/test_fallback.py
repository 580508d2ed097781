"""Every road user that was detected recently has futures, and each says who predicted it."""

from __future__ import annotations

import numpy as np
import pytest

from trajpred.data.forecast import Forecast
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.onboard import Detections, OnboardForecast, OnboardForecaster, StreamingForecaster
from trajpred.onboard.forecaster import CONFIDENCE_POWER
from trajpred.predictors.baselines import constant_velocity, lane_following

MAP = LaneMap.from_centerlines([[[-50.0, 0.0], [400.0, 0.0]]])
CROWD = [f"car {i}" for i in range(200)]


def drive(stream: StreamingForecaster, names: list[str], steps: int = 5) -> OnboardForecast:
    """Cars one behind the other on the lane, 2 m apart, at 10 m/s."""
    for step in range(steps):
        x = 2.0 * np.arange(len(names)) + step
        found = stream.update(step * 0.1, Detections(names, np.stack((x, 0 * x), -1)))
    return found


@pytest.mark.parametrize("rule", [lane_following, constant_velocity])
def test_those_beyond_the_budget_follow_the_rule(shared_forecaster: OnboardForecaster, rule: object) -> None:
    limit = shared_forecaster.bundle.features.max_agents
    alone = drive(StreamingForecaster(shared_forecaster, MAP, CROWD[0]), CROWD)
    found = drive(StreamingForecaster(shared_forecaster, MAP, CROWD[0], fallback=rule), CROWD)  # type: ignore[arg-type]
    assert len(alone.track_id) == limit, "the default stays"
    assert not alone.fallback, "the default stays"
    assert set(found.track_id.tolist()) == set(CROWD)
    assert not found.not_predicted
    assert not found.warnings
    assert found.fallback == alone.not_predicted
    assert "limit" in next(iter(found.fallback.values()))
    np.testing.assert_array_equal(found.trajectory[:limit], alone.trajectory)
    np.testing.assert_array_equal(found.probability[:limit], alone.probability)
    assert found.validate() is found
    np.testing.assert_allclose(found.probability.sum(axis=1), 1, atol=1e-9)
    # Cars on a straight lane at constant speed are where they drive to, the most probable mode at least.
    end = found.trajectory[limit:, 0, -1]
    start = 2.0 * np.array([CROWD.index(name) for name in found.track_id[limit:].tolist()]) + 4.0
    seconds = found.trajectory.shape[2] * 0.1
    np.testing.assert_allclose(end, np.stack((start + 10.0 * seconds, 0 * start), -1), atol=0.3)


def test_the_rule_answers_if_the_model_fails(
    shared_forecaster: OnboardForecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = StreamingForecaster(shared_forecaster, MAP, fallback=lane_following)
    drive(stream, ["a", "b"])

    def fail(*given: object, **named: object) -> Forecast:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(shared_forecaster, "forecast", fail)
    found = stream.update(0.5, Detections(["a"], [(5.0, 0.0)]))
    assert found.fallback == dict.fromkeys("ab", "the forecast failed"), "also who was seen a moment ago"
    assert found.warnings == ("forecast failed: out of memory",)
    targets = stream.update(0.6, Detections(["a", "b"], [(6.0, 0.0), (8.0, 0.0)]), targets=["b", "c"])
    assert targets.track_id.tolist() == ["b"]
    assert list(targets.not_predicted) == ["c"]
    late = stream.update(3.0, Detections(["a"], [(30.0, 0.0)]))
    assert list(late.fallback) == ["a"]
    assert "not seen" in late.not_predicted["b"]


def test_a_rule_that_fails_is_a_warning(shared_forecaster: OnboardForecaster) -> None:
    def broken(scenario: Scenario, steps: int) -> Forecast:
        raise ValueError("no idea")

    found = drive(StreamingForecaster(shared_forecaster, MAP, CROWD[0], fallback=broken), CROWD)
    assert found.warnings == ("fallback failed: no idea",)
    assert found.not_predicted
    assert not found.fallback


def test_confidences_are_softened(shared_forecaster: OnboardForecaster) -> None:
    """Against the rule's own forecast of the same histories."""
    stream = StreamingForecaster(shared_forecaster, MAP, CROWD[0], fallback=lane_following)
    found, scene = drive(stream, CROWD), stream._scene()
    scenario = Scenario(
        "a", "", np.arange(scene.num_observed) * 10**8, scene.num_observed, CROWD[0], scene.tracks, MAP
    )
    given = lane_following(scenario, found.trajectory.shape[2])
    names = np.array(list(found.fallback))
    own, softened = given.of(names).probability, found.of(names).probability
    expected = own**CONFIDENCE_POWER / (own**CONFIDENCE_POWER).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(softened, expected, atol=1e-9)
    assert (softened.max(axis=1) < own.max(axis=1)).all()
