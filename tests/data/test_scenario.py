"""Scenario: construction from arrays, and rejected values."""

from __future__ import annotations

import doctest
import importlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import INVALID_NAMES, equal, rejects
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import causal_heading, causal_velocity
from trajpred.data.scenario import Scenario, of_other_scenes
from trajpred.data.tracks import OBJECT_TYPES, TrackCategory
from trajpred.predictors.baselines import constant_velocity

A, T, OBSERVED = 3, 20, 12


def paths() -> np.ndarray:
    """Return three tracks; the second starts late, the third has a gap."""
    position = 1e5 + np.cumsum(np.random.default_rng(0).normal(size=(A, T, 2)), axis=1)
    position[1, :5] = position[2, 7:10] = np.nan
    return position


def scenario(**changes: Any) -> Scenario:
    lines = [[[0, 0], [1, 0]], [[1, 0], [2, 1], [3, 1]]]
    return Scenario.from_arrays(**({"position": paths(), "num_observed": OBSERVED, "map": lines} | changes))


@pytest.mark.parametrize(
    "module", ["errors", "data.geometry", "data.lane_map", "data.ragged", "data.scenario", "data.forecast"]
)
def test_examples_in_docstrings_run(module: str) -> None:
    loaded = importlib.import_module(f"trajpred.{module}")
    result = doctest.testmod(loaded, extraglobs={"np": np})
    assert result.failed == 0
    assert result.attempted > 0


def test_defaults_of_from_arrays() -> None:
    position, made = paths(), scenario(step_s=0.5)
    tracks = made.tracks
    np.testing.assert_array_equal(tracks.valid, ~np.isnan(position).any(-1))
    np.testing.assert_array_equal(tracks.position, np.nan_to_num(position))
    velocity = causal_velocity(position, tracks.valid, 0.5)
    np.testing.assert_array_equal(tracks.velocity, velocity)
    np.testing.assert_array_equal(
        tracks.heading, causal_heading(velocity, tracks.position, tracks.valid) * tracks.valid
    )
    assert (tracks.track_id.tolist(), made.focal_id) == (["0", "1", "2"], "0")
    assert tracks.category.tolist() == [TrackCategory.FOCAL, TrackCategory.SCORED, TrackCategory.SCORED]
    assert {OBJECT_TYPES[code] for code in tracks.object_type} == {"vehicle"}
    assert (made.num_observed, made.num_steps, made.step_s) == (OBSERVED, T, pytest.approx(0.5))


@pytest.mark.parametrize("future", [0, 1, 12])
@pytest.mark.parametrize("step_s", [0.04, 0.1, 0.5])
def test_one_observed_step_keeps_the_step(step_s: float, future: int) -> None:
    seconds = np.arange(1 + future) * step_s
    position = np.stack((8 * seconds, 0 * seconds), -1)[None]
    velocity = np.broadcast_to([8.0, 0.0], position.shape)
    made = Scenario.from_arrays(position, num_observed=1, step_s=step_s, velocity=velocity)
    assert made.step_s == pytest.approx(step_s)
    assert made.num_future == future
    assert made.without_future().step_s == pytest.approx(step_s)
    path = constant_velocity(made, num_future=12).trajectory[0, 0]
    np.testing.assert_allclose(path[:, 0], 8 * step_s * np.arange(1, 13), atol=1e-9)


def test_given_values_are_kept_and_copied() -> None:
    rng = np.random.default_rng(1)
    position, valid = rng.normal(size=(A, T, 2)), rng.random((A, T)) < 0.8
    heading, velocity = rng.normal(size=(A, T)), rng.normal(size=(A, T, 2))
    values = {"position": position, "valid": valid, "heading": heading, "velocity": velocity}
    names = {"track_id": ["x", 7, "ü"], "object_type": ["bus", "cyclist", "unknown"], "category": [0, 3, 1]}
    made = scenario(**values, **names, focal=1)
    tracks = made.tracks
    np.testing.assert_array_equal(tracks.valid, valid)
    np.testing.assert_array_equal(tracks.heading, heading * valid)
    np.testing.assert_array_equal(tracks.velocity, velocity * valid[..., None])
    assert tracks.track_id.tolist() == ["x", "7", "ü"]
    assert (made.focal, made.focal_id) == (1, "7")
    assert [OBJECT_TYPES[code] for code in tracks.object_type] == names["object_type"]
    assert tracks.category.tolist() == names["category"]
    lists = {name: array.tolist() for name, array in values.items()}
    position[:] = 0
    assert equal(made, scenario(**lists, **names, focal=1))


def test_other_forms_of_the_same_arguments_make_the_same_scenario() -> None:
    """Masked arrays, tensors with a gradient, whole numbers as floats, ids as bytes."""
    expected = scenario(track_id=["0", "1", "2"])
    position = np.ma.masked_invalid(paths())
    position.data[position.mask] = -999.0
    tensor = torch.tensor(paths(), requires_grad=True)
    valid = np.where(np.isnan(paths()).any(-1), 0.0, 1.0)
    other = {"track_id": [b"0", torch.tensor(1), np.int64(2)], "object_type": b"vehicle"}
    for changes in ({"position": position}, {"position": tensor}, {"valid": valid}):
        made = scenario(**changes, **other, num_observed=float(OBSERVED), category=[2.0] * A)
        assert equal(made, expected)


def test_maps_are_lists_arrays_lane_maps_or_absent() -> None:
    lines = np.arange(12.0).reshape(2, 3, 2)
    expected = scenario(map=LaneMap.from_centerlines(list(lines)))
    assert equal(scenario(map=lines), expected)
    assert equal(scenario(map=lines.tolist()), expected)
    for empty in (None, [], np.zeros((0, 2, 2))):
        assert equal(scenario(map=empty), scenario(map=LaneMap()))


def test_tracks_are_selected_by_names_and_rows() -> None:
    tracks = scenario(track_id=["a", "b", "c"]).tracks
    rows = tracks.indices(["c", "a"])
    assert rows.tolist() == [2, 0]
    taken = tracks.take(rows)
    assert taken.track_id.tolist() == ["c", "a"]
    assert np.array_equal(taken.position, tracks.position[rows])
    with pytest.raises(KeyError, match="no track 'd'"):
        tracks.indices(["a", "d"])


def test_future_and_last_observation_of_tracks() -> None:
    position = paths()
    position[0, OBSERVED - 2 : OBSERVED] = np.nan
    position[1, :OBSERVED] = np.nan
    made = scenario(position=position)
    assert made.last_seen.tolist() == [OBSERVED - 3, -1, OBSERVED - 1]
    assert made.has_future
    position[0, OBSERVED:] = np.nan
    assert not scenario(position=position).has_future
    assert not scenario(position=paths()[:, :OBSERVED]).has_future


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        *(
            ("position", {"position": x})
            for x in (np.zeros((T, 2)), np.zeros((A, T, 3)), [[[0, 0]], [[0, 0], [1, 1]]])
        ),
        ("position", {"valid": np.ones((A, T), bool)}),
        ("position", {"position": np.where(np.isnan(paths()), np.inf, paths())}),
        *(("valid", {"valid": np.ones(shape, bool)}) for shape in ((A, T, 1), (T, A))),
        ("valid", {"position": np.full((A, T, 2), np.nan)}),
        ("heading", {"heading": np.full((A, T), np.nan)}),
        ("heading", {"heading": np.full((A, T), 90.0)}),
        ("velocity", {"velocity": np.zeros((A, T))}),
        *(("focal", {"focal": row}) for row in (A, -1)),
        ("focal", {"position": np.zeros((0, T, 2))}),
        ("focal_id", {"focal": 1, "num_observed": 5}),
        *(("num_observed", {"num_observed": n}) for n in (0, T + 1)),
        *(("object_type", {"object_type": x}) for x in ("tram", ["bus", "bus", None], ["bus"])),
        *(("track_id", {"track_id": x}) for x in (["a", "b"], ["a", "b", "a"])),
        *(("category", {"category": x}) for x in ([0, 1, 4], np.array([0, 1, 256]), [0, 1, 10**30], [3, 1])),
        *(("step_s", {"step_s": x}) for x in (0.0, -0.1, 1e-4, 100.0, np.nan, np.inf, None, "fast", [0.1])),
        *(("num_observed", {"num_observed": x}) for x in (12.5, None, "many", [12])),
        *(("focal", {"focal": x}) for x in (0.5, "car")),
        *(("valid", {"valid": np.full((A, T), x)}) for x in (np.nan, -1, "True")),
        *(("category", {"category": x}) for x in ([1.5, 0, 0], [np.nan, 0, 0])),
        *(("track_id", {"track_id": x}) for x in ("abc", 5, [None, 1, 2])),
        *(("object_type", {"object_type": x}) for x in (None, 5)),
        *(("scenario_id", {"scenario_id": x}) for x in (5, None)),
        ("city", {"city": None}),
        *(("centerline", {"map": x}) for x in ("town.osm", 5, [[0, 0], [1, 1]])),
        *(("centerline", {"map": x}) for x in ([[[0, 0]]], [[[0, 0, 5], [1, 0, 5]]], [[]])),
    ],
)
def test_invalid_arguments_are_named(field: str, changes: dict[str, Any]) -> None:
    rejects(f"field '{field}'", scenario, **changes)


#: Unusual names, which are kept exactly.
UNUSUAL_NAMES = ["$x^{", "a b ", "../7", "Zürich 東京", "😀", "x" * 256]


@pytest.mark.parametrize("name", INVALID_NAMES, ids=lambda name: ascii(name[:9]))
def test_names_that_would_change_are_rejected_in_a_short_message(name: str) -> None:
    good = scenario(track_id=["7", "8", "9"])
    first, last = [name, "8", "9"], ["7", "8", name]
    for field, changes in (("track_id", first), ("track_id", last), ("scenario_id", name)):
        caught = rejects(f"{field}.*printable", scenario, **{field: changes})
        assert len(str(caught)) < 300
        assert str(caught).isprintable()
    if name:
        rejects("city", lambda: replace(good, city=name).validate())


@pytest.mark.parametrize("name", UNUSUAL_NAMES, ids=lambda name: ascii(name[:9]))
def test_unusual_names_are_kept(name: str) -> None:
    kept = scenario(track_id=[name, "8", "9"], scenario_id=name, city=name)
    assert (kept.tracks.track_id[0], kept.focal_id, kept.scenario_id, kept.city) == (name,) * 4


def test_records_that_do_not_fit_together_are_rejected() -> None:
    made = scenario()
    broken: list[tuple[str, Scenario]] = [
        (name, replace(made, tracks=replace(made.tracks, **{name: getattr(made.tracks, name)[1:]})))
        for name in ("track_id", "object_type", "category", "position", "heading", "velocity")
    ]
    wrong_times = (np.arange(T - 1), np.zeros(T))
    broken += [("timestamps_ns", replace(made, timestamps_ns=stamps)) for stamps in wrong_times]
    broken += [("focal_id", replace(made, focal_id="other"))]
    for field, one in broken:
        rejects(f"field '{field}'", one.validate)


def test_other_scenes_are_named() -> None:
    known = {"a": 1, "b": 2, "c": 3}
    assert of_other_scenes(known, {"a": 1, "d": 9}) == ""
    assert of_other_scenes(known, {"a": 1, "b": 9}) == "b has the same name"
    assert of_other_scenes(known, {"a": 9, "b": 9, "c": 9}) == "a and 2 more have the same names"
