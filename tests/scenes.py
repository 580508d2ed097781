"""Scenarios for graphs, and transformations that leave predictions unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trajpred.data.batch import ScenarioBatch
from trajpred.data.forecast import Forecast
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import heading_known
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import EGO_ID, TrackCategory
from trajpred.features.config import FeatureConfig
from trajpred.features.scene_graph import SceneBatch, SceneFeatures, scene_features

#: A translation by 10 km.
FAR = (6000.0, -8000.0)
QUARTER = np.pi / 2
#: Of :func:`drive`: metres per second, and the time of its beginning.
SPEED = 15.0
EPOCH_NS = 315_969_904 * 10**9


def moved(
    scenario: Scenario, shift: tuple[float, float] = FAR, angle: float = QUARTER, map_too: bool = True
) -> Scenario:
    """Rotate ``scenario`` by ``angle`` about the city's origin, then translate it by ``shift``."""
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])

    def place(xy: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate((xy[:, :2] @ turn + shift, xy[:, 2:]), 1)

    tracks = scenario.tracks
    valid = scenario.tracks.valid
    position = tracks.position.copy()
    position[valid] = place(position[valid])
    known = heading_known(tracks.heading, tracks.position, valid)
    heading = np.where(known, (tracks.heading + angle + np.pi) % (2 * np.pi) - np.pi, 0.0)
    tracks = replace(tracks, position=position, heading=heading, velocity=tracks.velocity @ turn)
    lanes = scenario.map
    if map_too:
        moved_lines = {}
        for field in fields(LaneMap):
            line = getattr(lanes, field.name)
            if isinstance(line, Ragged) and line.values.ndim == 2:
                moved_lines[field.name] = Ragged(place(line.values), line.offsets)
        lanes = replace(lanes, **moved_lines)
    return replace(scenario, tracks=tracks, map=lanes)


def in_a_mirror(scenario: Scenario) -> Scenario:
    """Reflect ``scenario``: y becomes -y and left becomes right; other attributes of lanes are unchanged."""
    up = np.array([1.0, -1.0])
    tracks = scenario.tracks
    m = scenario.map

    def polylines(lines: Ragged) -> Ragged:
        return Ragged.from_rows([line[:, :2] * up for line in lines], 2)

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
    random = np.random.default_rng(3)
    now = scenario.num_observed
    tracks = scenario.tracks
    shape = scenario.tracks.valid[:, now:].shape

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
    return replace(scenario, tracks=scenario.tracks.take(rows))


def hidden(scenario: Scenario, *places: Any) -> Scenario:
    """Make states of tracks unknown; ``places`` are indices of tracks and steps."""
    valid = scenario.tracks.valid.copy()
    for place in places:
        valid[place] = False
    return replace(scenario, tracks=replace(scenario.tracks, valid=valid))


def alone(scenario: Scenario) -> Scenario:
    """Keep the focal agent only."""
    return with_tracks(scenario, np.array([scenario.focal]))


def moment(scenario: Scenario, step: int) -> Scenario:
    """Make a scenario whose last step is ``step``, as a vehicle sees it."""
    cut = scenario.window(future=0, later=step + 1 - scenario.num_observed)
    tracks = replace(cut.tracks, category=np.full(len(cut.tracks), TrackCategory.UNSCORED, np.int8))
    seen = np.flatnonzero(tracks.valid.any(axis=1))
    return with_tracks(replace(cut, tracks=tracks, focal_id=EGO_ID), seen)


def features_of(scenario: Scenario, config: FeatureConfig = FeatureConfig()) -> SceneFeatures:
    """Featurise a batch of one scenario."""
    return scene_features(ScenarioBatch.of([scenario]), config)


def straight(cars: int = 3, gap_m: float = 20.0, **options: Any) -> Scenario:
    """Return cars in a line at 10 m/s along x, with 50 of 110 steps observed; the first is the focal one."""
    x = 10 * 0.1 * np.arange(110) - gap_m * np.arange(cars)[:, None]
    return Scenario.from_arrays(np.stack((x, 0 * x), -1), num_observed=50, **options)


def drive(seconds: NDArray[np.floating], num_observed: int, name: str = "scenario") -> Scenario:
    """Return a car at ``SPEED`` along x, recorded at ``seconds`` after ``EPOCH_NS``."""
    position = np.stack((3000 + SPEED * seconds, 0 * seconds), -1)
    velocity = np.broadcast_to([SPEED, 0.0], (1, len(seconds), 2))
    heading = np.zeros((1, len(seconds)))
    scenario = Scenario.from_arrays(
        position[None], num_observed=num_observed, heading=heading, velocity=velocity, scenario_id=name
    )
    return replace(scenario, timestamps_ns=EPOCH_NS + np.round(seconds * 1e9).astype(np.int64))


def equal_batches(a: SceneBatch, b: SceneBatch) -> bool:
    """Return whether two batches are equal, bit by bit."""
    for store, other in zip(a.stores, b.stores, strict=True):
        if set(store.keys()) != set(other.keys()):
            return False
        if not all(_equal(value, other[name]) for name, value in store.items()):
            return False
    return True


def _equal(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and np.array_equal(a.numpy(), b.numpy(), equal_nan=a.is_floating_point())
    return bool(np.all(np.asarray(a) == np.asarray(b)))


def assert_same(a: Any, b: Any, skip: tuple[str, ...] = (), name: str = "", atol: float = 0.0) -> None:
    """Assert that two records are equal, floats within ``atol``, except for some fields."""
    assert type(a) is type(b), name
    if is_dataclass(a):
        for f in fields(a):
            if f.name not in skip:
                assert_same(getattr(a, f.name), getattr(b, f.name), skip, f.name, atol)
    elif isinstance(a, np.ndarray) and a.dtype.kind == "f":
        assert a.dtype == b.dtype, name
        np.testing.assert_allclose(a, b, rtol=0, atol=atol, err_msg=name)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype or a.dtype.kind == b.dtype.kind == "U", name
        np.testing.assert_array_equal(a, b, err_msg=name)
    else:
        assert a == b, name


def assert_same_forecasts(
    found: Sequence[Forecast], expected: Sequence[Forecast], atol: float = 0.0, of_probability: float = 0.0
) -> None:
    """Assert that forecasts have the same tracks, futures within ``atol`` (m), and probabilities."""
    for a, b in zip(found, expected, strict=True):
        assert (a.scenario_id, a.track_id.tolist()) == (b.scenario_id, b.track_id.tolist())
        np.testing.assert_allclose(a.trajectory, b.trajectory, rtol=0, atol=atol)
        np.testing.assert_allclose(a.probability, b.probability, rtol=0, atol=of_probability)
