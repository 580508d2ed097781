"""Synthetic scenarios: connected roads, physical motion, reproducible bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.path import Path as Outline

from tests.conftest import equal, tree
from tools.synthesize import KINDS, make_scenario, synthesize
from trajpred.data.geometry import direction, to_local, wrap_angle
from trajpred.errors import DataError
from trajpred.sources.argoverse2 import discover, read_scenario


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("synthetic") / "with spaces"
    assert synthesize(out, 10, 3, workers=1, progress=False) == {"train": 8, "val": 1, "test": 1}
    return out


def test_reading_returns_what_was_generated(folder: Path) -> None:
    scenarios = [make_scenario(3, i) for i in range(10)]
    generated = {scenario.scenario_id: scenario for scenario in scenarios}
    for split, listed in discover(folder).items():
        for raw in listed:
            read = read_scenario(raw.path)
            made = generated.pop(raw.name)
            assert (read.num_observed, read.num_steps) == (50, 110)
            assert read.has_future == (split != "test")
            assert equal(read, made) or split == "test"
    assert not generated


def test_bytes_depend_on_the_seed_and_the_index_alone(folder: Path, tmp_path: Path) -> None:
    synthesize(tmp_path / "few", 3, 3, val=0.0, test=0.0, workers=1, progress=False)
    few = tree(tmp_path / "few" / "train")
    many = tree(folder / "train")
    assert len(few) == 6
    assert few.items() <= many.items()
    assert not np.array_equal(make_scenario(4, 0).tracks.position, make_scenario(3, 0).tracks.position)


def test_numbers_out_of_range_and_used_folders_are_rejected(folder: Path, tmp_path: Path) -> None:
    before = tree(folder)
    out = tmp_path / "a"
    for field, limit, seed in (("limit", 0, 0), ("seed", 1, -1)):
        with pytest.raises(DataError) as caught:
            synthesize(out, limit, seed)
        assert caught.value.field == field
        assert not out.exists()
    with pytest.raises(DataError, match="not empty"):
        synthesize(folder, 1)
    assert tree(folder) == before


def test_roads_are_connected_and_drivable() -> None:
    """In four scenarios of each kind of road network."""
    for number in range(4 * len(KINDS)):
        lanes = make_scenario(5, number).map
        outlines = [Outline(area[:, :2]) for area in lanes.drivable_area]
        for i in range(len(lanes)):
            line = lanes.centerline[i][:, :2]
            left = lanes.left_boundary[i][:, :2]
            for j in lanes.successors[i].tolist():  # ids are rows
                following = lanes.centerline[j][:, :2]
                assert i in lanes.predecessors[j]
                np.testing.assert_allclose(line[-1], following[0], atol=0.02)
                bend = direction(following[1] - following[0]) - direction(line[-1] - line[-2])
                assert abs(wrap_angle(bend)) < 0.25
            left_lane = lanes.left_neighbor[i]
            right_lane = lanes.right_neighbor[i]
            assert left_lane == -1 or lanes.right_neighbor[left_lane] == i
            assert right_lane == -1 or lanes.left_neighbor[right_lane] == i
            np.testing.assert_allclose((left + lanes.right_boundary[i][:, :2]) / 2, line, atol=0.02)
            assert to_local(left[0], line[0], direction(line[1] - line[0]))[1] > 0
            inside = np.zeros(len(line) - 2, bool)
            for area in outlines:
                inside |= area.contains_points(line[1:-1], radius=-0.1)
                inside |= area.contains_points(line[1:-1], radius=0.1)
            assert inside.all()
