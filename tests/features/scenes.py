"""Scenarios for graphs, and transformations that leave predictions unchanged."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trajpred.features.config import FeatureConfig
from trajpred.features.scene_features import SceneFeatures, scene_features
from trajpred.features.scene_graph import SceneBatch
from trajpred.lane_map import LaneMap, Ragged
from trajpred.scenario import EGO_ID, Scenario, TrackCategory
from trajpred.scenario_batch import ScenarioBatch

#: A translation by 10 km and a quarter turn.
FAR, QUARTER = (6000.0, -8000.0), np.pi / 2


def moved(
    scenario: Scenario, shift: tuple[float, float] = FAR, angle: float = QUARTER, map_too: bool = True
) -> Scenario:
    """Rotate ``scenario`` by ``angle`` about the city's origin, then translate it by ``shift``."""
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])

    def place(xy: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate((xy[:, :2] @ turn + shift, xy[:, 2:]), 1)

    tracks, valid = scenario.tracks, scenario.tracks.valid
    position = tracks.position.copy()
    position[valid] = place(position[valid])
    heading = np.where(valid, (tracks.heading + angle + np.pi) % (2 * np.pi) - np.pi, 0.0)
    tracks = replace(tracks, position=position, heading=heading, velocity=tracks.velocity @ turn)
    polylines = {
        f.name: Ragged(place(line.values), line.offsets)
        for f in fields(LaneMap)
        if isinstance(line := getattr(scenario.map, f.name), Ragged) and line.values.ndim == 2
    }
    return replace(
        scenario, tracks=tracks, map=replace(scenario.map, **polylines) if map_too else scenario.map
    )


def in_a_mirror(scenario: Scenario) -> Scenario:
    """Reflect ``scenario``: y becomes -y and left becomes right; other attributes of lanes are unchanged."""
    up, tracks, m = np.array([1.0, -1.0]), scenario.tracks, scenario.map

    def polylines(lines: Ragged) -> Ragged:
        return Ragged.from_rows([[(x, -y) for x, y in line[:, :2].tolist()] for line in lines], 2)

    return replace(
        scenario,
        tracks=replace(
            tracks, position=tracks.position * up, heading=-tracks.heading, velocity=tracks.velocity * up
        ),
        map=replace(
            m,
            centerline=polylines(m.centerline),
            left_boundary=polylines(m.right_boundary),
            right_boundary=polylines(m.left_boundary),
            left_mark=m.right_mark,
            right_mark=m.left_mark,
            left_neighbor=m.right_neighbor,
            right_neighbor=m.left_neighbor,
            crossing_edge1=polylines(m.crossing_edge2),
            crossing_edge2=polylines(m.crossing_edge1),
        ),
    )


def other_future(scenario: Scenario) -> Scenario:
    """Replace the future and keep the past."""
    random, now = np.random.default_rng(3), scenario.num_observed
    tracks, shape = scenario.tracks, scenario.tracks.valid[:, now:].shape

    def changed(past: NDArray[Any], future: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate((past[:, :now], future.astype(past.dtype)), 1)

    return replace(
        scenario,
        tracks=replace(
            tracks,
            valid=changed(tracks.valid, random.random(shape) < 0.5),
            position=changed(tracks.position, random.normal(0, 1e3, (*shape, 2))),
            heading=changed(tracks.heading, random.normal(0, 1, shape)),
            velocity=changed(tracks.velocity, random.normal(0, 9, (*shape, 2))),
        ),
    )


def with_tracks(scenario: Scenario, rows: NDArray[np.int64]) -> Scenario:
    """Select tracks, in this order."""
    chosen = {f.name: getattr(scenario.tracks, f.name)[rows] for f in fields(scenario.tracks)}
    return replace(scenario, tracks=replace(scenario.tracks, **chosen))


def alone(scenario: Scenario) -> Scenario:
    """Keep the focal agent only."""
    return with_tracks(scenario, np.array([scenario.focal]))


def moment(scenario: Scenario, step: int) -> Scenario:
    """Make a scenario whose last step is ``step``, as a vehicle sees it."""
    now = scenario.num_observed
    tracks = scenario.tracks.window(step + 1 - now, now)
    tracks = replace(tracks, category=np.full(len(tracks), TrackCategory.UNSCORED, np.int8))
    cut = replace(scenario, tracks=tracks, timestamps_ns=scenario.timestamps_ns[:now], focal_id=EGO_ID)
    return with_tracks(cut, np.flatnonzero(tracks.valid.any(axis=1)))


def features_of(scenario: Scenario, config: FeatureConfig = FeatureConfig()) -> SceneFeatures:
    """Featurise a batch of one scenario."""
    return scene_features(ScenarioBatch.of([scenario]), config)


def straight(cars: int = 3, gap_m: float = 20.0, **options: Any) -> Scenario:
    """Return cars in a line at 10 m/s along x, with 50 of 110 steps observed; the first is the focal one."""
    x = 10 * 0.1 * np.arange(110) - gap_m * np.arange(cars)[:, None]
    return Scenario.from_arrays(np.stack((x, 0 * x), -1), num_observed=50, **options)


def equal_batches(a: SceneBatch, b: SceneBatch) -> bool:
    """Return whether two batches are equal, bit by bit."""
    return all(
        set(one.keys()) == set(two.keys()) and all(_equal(value, two[name]) for name, value in one.items())
        for one, two in zip(a.stores, b.stores, strict=True)
    )


def _equal(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and np.array_equal(a.numpy(), b.numpy(), equal_nan=a.is_floating_point())
    return bool(np.all(np.asarray(a) == np.asarray(b)))


def assert_same(a: Any, b: Any, skip: tuple[str, ...] = (), name: str = "") -> None:
    """Assert that two records are equal, bit by bit, except for some fields."""
    assert type(a) is type(b), name
    if is_dataclass(a):
        for f in fields(a):
            if f.name not in skip:
                assert_same(getattr(a, f.name), getattr(b, f.name), skip, f.name)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype or a.dtype.kind == b.dtype.kind == "U", name
        np.testing.assert_array_equal(a, b, err_msg=name)
    else:
        assert a == b, name
