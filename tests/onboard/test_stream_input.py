"""Unusual and invalid detections, times and targets: read if possible, else omitted with a warning."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import INVALID_NAMES
from tests.onboard.conftest import STEP, drive, warnings
from trajpred.onboard import Detections, OnboardForecaster, StreamingForecaster


@pytest.mark.parametrize("name", [*INVALID_NAMES, None, np.nan, ["a"], b"\xff"], ids=lambda x: ascii(x)[:9])
def test_detections_with_invalid_names_have_a_reason(stream: StreamingForecaster, name: Any) -> None:
    found = stream.update(0.0, Detections([name, "a", name], [(0.0, 0.0), (5.0, 0.0), (1.0, 0.0)]))
    assert found.track_id.tolist() == ["a"]
    [(shown, reason)] = found.not_predicted.items()
    assert shown == (name if isinstance(name, str) else "")
    assert not found.warnings
    assert "printable" in reason


@pytest.mark.parametrize("targets", ["ab", b"ab", 7])
def test_targets_that_are_no_list_are_omitted(stream: StreamingForecaster, targets: Any) -> None:
    drive(stream, b=(5.0, 5.0))
    found = stream.update(0.6, Detections(["a"], [(6.0, 0.0)]), targets=targets)
    assert "targets omitted" in warnings(found)
    assert set(found.track_id) == {"a", "b"}


@pytest.mark.parametrize("value", [np.nan, 1e9])
def test_invalid_position(stream: StreamingForecaster, value: float) -> None:
    """Known tracks are predicted from earlier positions, new ones have a reason."""
    before = drive(stream)
    found = stream.update(0.6, Detections(["a", "b", "c"], [(value, 0.0), (0.0, value), (3.0, 1.0)]))
    assert set(found.validate().track_id) == {"a", "c"}
    assert list(found.not_predicted) == ["b"]
    assert "not finite" in found.not_predicted["b"]
    start = found.trajectory[found.rows(np.array(["a"]))[0], :, 0]
    assert np.abs(start - before.trajectory[0, :, 0]).max() < 10


@pytest.mark.parametrize("value", [np.nan, -1e300, 108.0])
def test_invalid_motion_is_derived_from_positions(stream: StreamingForecaster, value: float) -> None:
    drive(stream)
    found = stream.update(0.6, Detections(["a"], [(6.0, 0.0)], velocity=[(value, 1.0)]))
    assert ("velocities above 100 m/s omitted" in warnings(found)) == np.isfinite(value)
    np.testing.assert_allclose(stream.tracks.velocity[0, -1], [10.0, 0.0], atol=1e-6)
    found = stream.update(0.7, Detections(["a"], [(7.0, 0.0)], heading=[value]))
    assert found.validate().track_id.tolist() == ["a"]
    assert abs(stream.tracks.heading[0, -1]) <= np.pi


@pytest.mark.parametrize("of_vehicle", [False, True])
def test_velocities_in_the_frame_of_the_vehicle_are_one_warning(
    stream: StreamingForecaster, of_vehicle: bool
) -> None:
    """Of cars that drive east, north, west and south, the first has the same velocity in both frames."""
    heading = np.tile(np.arange(4) * np.pi / 2, 5)
    travel = np.stack((np.cos(heading), np.sin(heading)), -1)
    start = 30.0 * np.arange(20)[:, None] * np.array([1.0, 0.5])
    velocity = 8 * (np.array([[1.0, 0.0]] * 20) if of_vehicle else travel)
    names = [str(car) for car in range(20)]
    said: list[str] = []
    for step in range(70):
        detected = Detections(names, start + 8 * STEP * step * travel, heading, velocity)
        said += stream.update(step * STEP, detected, targets=[]).warnings
    expected = "75% of the velocities of moving road users contradict the positions"
    assert [text.partition(":")[0] for text in said] == [expected] * of_vehicle
    assert all("median angle between them: 90 degrees" in text for text in said)


@pytest.mark.parametrize("value", [90.0, -180.0, 26.0, 1e300])
def test_headings_in_degrees_are_unknown(stream: StreamingForecaster, value: float) -> None:
    """Those of other tracks in the same update too, which could be radians: 5 degrees, not 5 radians."""
    other = StreamingForecaster(stream.runtime, stream.map)
    for step in range(8):
        positions = [(step, 0.0), (9.0, step)]
        expected = other.update(step * STEP, Detections(["a", "b"], positions))
        found = stream.update(step * STEP, Detections(["a", "b"], positions, heading=[value, 5.0]))
        assert found.warnings == (
            "headings omitted, they follow from positions: must be radians, not degrees",
        )
    np.testing.assert_array_equal(found.trajectory, expected.trajectory)
    assert not stream.update(0.8, Detections(["a"], [(8.0, 0.0)], heading=[25.0])).warnings, "four turns"


def test_first_usable_detection_of_a_duplicate_id_counts(stream: StreamingForecaster) -> None:
    positions = [(0.0, 0.0), (np.nan, 0.0), (50.0, 0.0), (7.0, 7.0)]
    found = stream.update(0.0, Detections(["a", "b", "a", "b"], positions))
    assert "duplicate" in warnings(found)
    assert "a, b" in warnings(found)
    assert not found.not_predicted
    tracks = stream.tracks
    latest = dict(zip(tracks.track_id, tracks.position[:, -1].tolist(), strict=True))
    assert latest == {"a": [0, 0], "b": [7, 7]}


@pytest.mark.parametrize(
    "time_s",
    [
        *(0.89, 0.1, np.nan, np.inf),
        *(None, "now", "0.95", b"0.95", [0.95], {}, np.array([0.95]), 1j),
        *(np.datetime64("2026-11-25T12:00:00"), np.datetime64("NaT"), np.timedelta64(1, "s")),
        datetime(2026, 11, 25, 12),
        *(torch.tensor([0.95]), torch.tensor(np.nan), np.float32(1.7e9), torch.tensor(1.7e9)),
    ],
    ids=repr,
)
def test_update_with_an_invalid_time_is_omitted(stream: StreamingForecaster, time_s: Any) -> None:
    """The forecast stays, and new tracks have a reason."""
    before = drive(stream, steps=10)
    found = stream.update(time_s, Detections(["a", "new"], [(0.0, 30.0), (1.0, 1.0)]))
    [warning] = found.warnings
    assert "update omitted" in warning
    assert warning.startswith("update omitted: field 'timestamp_s'") or isinstance(time_s, float)
    assert found.timestamp_s == 9 * STEP
    assert found.not_predicted == {"new": "its update was omitted"}
    np.testing.assert_array_equal(found.trajectory, before.trajectory)


@pytest.mark.parametrize(
    "kind", [np.float64, np.float32, np.array, torch.tensor, lambda x: round(x * 10) / 10]
)
def test_times_may_be_numbers_of_other_packages(
    shared_forecaster: OnboardForecaster, stream: StreamingForecaster, kind: Any
) -> None:
    expected = drive(stream)
    other = StreamingForecaster(shared_forecaster, stream.map)
    for step in range(6):
        found = other.update(kind(step * STEP), Detections(["a"], [(step, 0.0)]))
        assert not found.warnings
    np.testing.assert_allclose(found.trajectory, expected.trajectory, atol=1e-4)


def test_unix_time_as_float32_is_too_coarse(stream: StreamingForecaster) -> None:
    """It changes every 128 s, and a car that moves would seem to stand."""
    for step in range(3):
        found = stream.update(np.float32(1.7e9 + step * STEP), Detections(["a"], [(step, 0.0)]))
        assert "resolves only 128 s" in warnings(found)
        assert not len(found.track_id)
    found = stream.update(1.7e9, Detections(["a"], [(3.0, 0.0)]))
    assert not found.warnings
    assert found.track_id.tolist() == ["a"]


def test_a_clock_that_was_set_back_is_followed_after_half_a_second(stream: StreamingForecaster) -> None:
    """A single late message is omitted; a step of the clock must not stop the runtime for seconds."""
    drive(stream)
    assert "update omitted" in warnings(stream.update(0.3, Detections(["a"], [(3.0, 0.0)])))
    assert not stream.update(0.6, Detections(["a"], [(6.0, 0.0)])).warnings
    for step in range(5):
        found = stream.update(-2.0 + step * STEP, Detections(["b"], [(step, 0.0)]))
        assert "time went back by" in warnings(found)
        assert found.track_id.tolist() == ["a"]
    found = stream.update(-1.5, Detections(["b"], [(5.0, 0.0)]))
    assert "histories were reset" in warnings(found)
    assert found.track_id.tolist() == ["b"]
    assert not stream.update(-1.4, Detections(["b"], [(6.0, 0.0)])).warnings


def test_a_clock_that_stands_still_has_a_warning(stream: StreamingForecaster) -> None:
    drive(stream)
    first = stream.update(0.6, Detections(["a"], [(6.0, 0.0)]))
    other = stream.update(0.6, Detections(["b"], [(9.0, 9.0)]))
    assert not first.warnings, "another sensor at the same time"
    assert not other.warnings, "another sensor at the same time"
    again = stream.update(0.6, Detections(["a"], [(7.0, 0.0)]))
    assert "time did not advance" in warnings(again)


def test_masks_tensors_and_bytes_are_read(stream: StreamingForecaster) -> None:
    """Masked values are missing: no position, or a velocity derived from the positions."""
    drive(stream)
    position = np.ma.masked_equal([[6.0, 0.0], [-999.0, -999.0]], -999.0)
    velocity = np.ma.masked_equal([[-999.0, 0.0], [0.0, 0.0]], -999.0)
    ids: Any = [b"a", torch.tensor(7)]
    found = stream.update(0.6, Detections(ids, position, velocity=velocity, object_type=[b"bus", b"bus"]))
    assert not found.warnings
    assert found.track_id.tolist() == ["a"]
    assert "not finite" in found.not_predicted["7"]
    np.testing.assert_allclose(stream.tracks.velocity[0, -1], [10.0, 0.0], atol=1e-6)
    moved = torch.tensor([[7.0, 0.0]], requires_grad=True)
    found = stream.update(0.7, Detections(["a"], moved))  # type: ignore[arg-type]
    assert not found.warnings
    assert stream.tracks.position[0, -1].tolist() == [7.0, 0.0]


@pytest.mark.parametrize(
    "bad",
    [
        *(None, {}, (["a"], [(6.0, 0.0)]), "a"),
        Detections(["a"], [(1.0, 2.0), (3.0, 4.0)]),
        Detections(["a"], "here"),
        Detections(["a"], [(1.0, 2.0)], velocity=[1.0]),
        Detections(["a"], [(1.0, 2.0)], object_type=["vehicle", "bus"]),
        Detections(None, [(1.0, 2.0)]),  # type: ignore[arg-type]
        Detections("ab", [(1.0, 2.0), (3.0, 4.0)]),
        Detections(["a"], [(1.0, 2.0)], object_type=7),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_detections_or_of_wrong_shape_is_omitted(stream: StreamingForecaster, bad: Any) -> None:
    drive(stream)
    found = stream.update(0.6, bad)
    assert "omitted" in warnings(found)
    assert "a" in found.validate().track_id.tolist()
    assert found.timestamp_s == 0.6


def test_unknown_types_and_numeric_ids(stream: StreamingForecaster) -> None:
    seen: Any = Detections([7, 8], [(0.0, 0.0), (5.0, 0.0)], object_type=["ufo", "bus"])
    found = stream.update(0.0, seen)
    assert "ufo" in warnings(found)
    assert set(found.track_id) == {"7", "8"}
