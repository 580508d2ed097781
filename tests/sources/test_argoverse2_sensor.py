"""Windows of Argoverse 2's Sensor logs: those that others cut by the same rules, and unusable logs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import feather

from tests.conftest import rejects
from trajpred.data.geometry import wrap_angle
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import TrackCategory
from trajpred.errors import DataError
from trajpred.sources import SOURCES, argoverse2, argoverse2_sensor
from trajpred.sources.windows import Spacing
from trajpred.store import ScenarioStore, prepare

BOXES = "annotations.feather"
POSES = "city_SE3_egovehicle.feather"


def only_log(raw: Path) -> Path:
    [log] = (raw / "val").iterdir()
    return log


def converted(column: str, convert: Callable[[np.ndarray], np.ndarray]) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        values = pa.array(convert(table[column].to_numpy()))
        return table.set_column(table.schema.get_field_index(column), column, values)

    return changed


def change(file: Path, damage: Callable[[pa.Table], pa.Table]) -> None:
    feather.write_feather(damage(feather.read_table(file, memory_map=False)), str(file))


@pytest.fixture
def logs(shared: Path) -> Path:
    return shared / "data/argoverse2/sensor"


@pytest.fixture
def raw(logs: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the validation log."""
    shutil.copytree(logs / "val", tmp_path / "raw/val")
    return tmp_path / "raw"


def test_windows_equal_those_that_were_cut_by_the_same_rules(logs: Path) -> None:
    """Truth: the twelve windows beside the logs, rounded to 1 mm, 1e-4 rad and 1 mm/s."""
    windows = argoverse2_sensor.discover(logs)
    numbers = {split: len(listed) for split, listed in windows.items()}
    assert numbers == {"train": 8, "val": 4, "test": 0}
    surplus = 0
    for split, listed in windows.items():
        for window in listed:
            scenario = argoverse2_sensor.read(window)
            folder = logs.parent / "from_sensor_logs" / split / scenario.scenario_id
            expected = argoverse2.read_scenario(folder)
            surplus += len(scenario.tracks) - len(expected.tracks)
            check_window(scenario, expected)
    assert surplus <= 3, "tracks that stay far away"


def check_window(scenario: Scenario, expected: Scenario) -> None:
    assert scenario.focal_id == expected.focal_id
    assert scenario.city == expected.city
    ends = expected.timestamps_ns[[0, -1]]
    assert scenario.timestamps_ns[[0, -1]] == pytest.approx(ends, abs=500)
    rows = rows_of(scenario, expected.tracks.track_id)
    tracks = scenario.tracks
    truth = expected.tracks
    for name in ("category", "object_type", "valid"):
        assert np.array_equal(getattr(tracks, name)[rows], getattr(truth, name)), name
    assert np.abs(tracks.position[rows] - truth.position).max() < 1e-3
    assert np.abs(wrap_angle(tracks.heading[rows] - truth.heading)).max() < 1e-4
    assert np.abs(tracks.velocity[rows] - truth.velocity).max() < 1e-3
    line = scenario.map.centerline
    true_line = expected.map.centerline
    assert np.array_equal(line.lengths, true_line.lengths)
    assert np.abs(line.values[:, :2] - true_line.values[:, :2]).max() < 0.02
    assert np.array_equal(scenario.map.lane_id, expected.map.lane_id)


def rows_of(scenario: Scenario, names: Iterable[str]) -> list[int]:
    return [scenario.tracks.index(name) for name in names]


def shared_rows(a: Scenario, b: Scenario) -> tuple[list[int], list[int]]:
    """Return the rows of the tracks that both scenarios have."""
    names = [name for name in a.tracks.track_id if name in b.tracks.track_id]
    return rows_of(a, names), rows_of(b, names)


def test_observed_states_use_no_later_frame(raw: Path) -> None:
    """Boxes of all later frames move; the history stays the same."""
    log = only_log(raw)
    window = argoverse2_sensor.discover(raw)["val"][0]
    assert window.beside == (window.path / "map",), "a changed map is noticed"
    before = argoverse2_sensor.read(window)

    time = feather.read_table(log / BOXES)["timestamp_ns"].to_numpy()
    moved = np.where(time > before.timestamps_ns[49], 0.3, 0.0)
    change(log / BOXES, converted("tx_m", lambda x: x + moved))
    after = argoverse2_sensor.read(window)
    rows, rows_after = shared_rows(before, after)
    for name in ("position", "heading", "velocity", "valid"):
        values = getattr(before.tracks, name)[rows]
        values_after = getattr(after.tracks, name)[rows_after]
        assert np.array_equal(values[:, :50], values_after[:, :50]), name
    first_future = before.tracks.velocity[rows, 50]
    assert not np.array_equal(first_future, after.tracks.velocity[rows_after, 50])


@pytest.mark.parametrize("lost", [[30], [20, 21, 22], [60, 100], [*range(110, 120)]])
def test_a_lost_sweep_is_a_frame_without_tracks(raw: Path, lost: list[int]) -> None:
    """Boxes of some sweeps are missing; what remains of each window is as in the whole log."""
    paths = argoverse2_sensor.discover(raw)["val"]
    before = [argoverse2_sensor.read(path) for path in paths]
    sweeps = np.unique(feather.read_table(only_log(raw) / BOXES)["timestamp_ns"].to_numpy())

    def without_lost(table: pa.Table) -> pa.Table:
        is_lost = pc.is_in(table["timestamp_ns"], pa.array(sweeps[lost]))
        return table.filter(pc.invert(is_lost))

    change(only_log(raw) / BOXES, without_lost)
    assert argoverse2_sensor.discover(raw)["val"] == paths
    for path, whole in zip(paths, before, strict=True):
        scenario = argoverse2_sensor.read(path)
        assert (scenario.num_observed, scenario.num_steps) == (50, 110)
        gone = np.isin(np.round(whole.timestamps_ns), sweeps[lost])
        apart = np.abs(scenario.timestamps_ns - whole.timestamps_ns)
        assert apart[gone].max(initial=0) < 4e6, "they jitter"
        assert not apart[~gone].any()
        assert not scenario.tracks.valid[:, gone].any()
        rows, rows_whole = shared_rows(scenario, whole)
        for name in ("valid", "position", "heading"):
            values = getattr(scenario.tracks, name)[rows]
            expected = getattr(whole.tracks, name)[rows_whole]
            assert np.array_equal(values[:, ~gone], expected[:, ~gone]), name


def test_a_store_of_windows(raw: Path, tmp_path: Path) -> None:
    (raw / "test/empty").mkdir(parents=True)
    summary = prepare("argoverse2-sensor", raw, tmp_path / "store", workers=1, progress=False)
    assert summary.scenarios["val"] == 4
    assert summary.scenarios.get("test", 0) == 0
    [(name, problem)] = summary.skipped["test"].items()
    assert name == "empty_000"
    assert "map/log_map_archive_*.json" in problem
    store = ScenarioStore(tmp_path / "store", "val")
    assert len({scenario.focal_id for scenario in store}) == 4
    for scenario in store:
        assert (scenario.tracks.category == TrackCategory.FOCAL).sum() == 1
    boxes = feather.read_table(only_log(raw) / BOXES).to_pandas().groupby("track_uuid")
    measured = boxes[["length_m", "width_m"]].first().loc[scenario.tracks.track_id[:-1]]
    np.testing.assert_allclose(scenario.tracks.size[:-1], measured, rtol=1e-6)
    assert np.isnan(scenario.tracks.size[-1]).all(), "of the recording vehicle"


def test_windows_every_half_second_include_the_usual_ones(raw: Path, tmp_path: Path) -> None:
    """The same log and frame give the same scenario, whatever is cut beside it."""
    frames = 157
    usual = argoverse2_sensor.discover(raw)["val"]
    often = argoverse2_sensor.discover(raw, Spacing(0.5))["val"]
    assert [window.part for window in often] == [*range(0, frames - 109, 5)]
    assert {*usual} < {*often}
    assert argoverse2_sensor.discover(raw, Spacing(0.01))["val"][1].part == 1, "every frame at most"
    store = tmp_path / "store"
    summary = prepare("argoverse2-sensor", raw, store, options=Spacing(0.5), workers=1, progress=False)
    assert summary.scenarios == {"val": len(often)}
    assert summary.skipped == {"val": {}}
    rows = ScenarioStore(tmp_path / "store", "val")
    for window in usual:
        alone = argoverse2_sensor.read(window)
        beside = rows[rows.index(alone.scenario_id)]
        assert beside.focal_id == alone.focal_id
        assert (beside.timestamps_ns == alone.timestamps_ns).all()
    for index, window in enumerate(often):
        scenario = rows[index]
        focal = scenario.tracks.position[scenario.focal]
        assert scenario.tracks.valid[scenario.focal].all()
        assert np.hypot(*(focal[-1] - focal[49])) > 1
        assert scenario.timestamps_ns[0] - rows[0].timestamps_ns[0] == pytest.approx(
            window.part * 1e8, abs=5e7
        )


def test_a_log_with_fewer_movers_than_windows_gives_those_that_have_one(raw: Path) -> None:
    """Boxes of all but two tracks that are focal leave: two windows stay."""
    windows = argoverse2_sensor.discover(raw)["val"]
    kept = [argoverse2_sensor.read(window).focal_id for window in windows[:2]]
    change(only_log(raw) / BOXES, lambda t: t.filter(pc.is_in(t["track_uuid"], pa.array(kept))))
    focal = []
    for window in windows:
        try:
            focal.append(argoverse2_sensor.read(window).focal_id)
        except DataError as error:
            assert "no track qualifies as the focal one" in str(error)
    assert sorted(focal) == sorted(kept)


def without_last_observed_sweep(boxes: pa.Table) -> pa.Table:
    sweeps = np.unique(boxes["timestamp_ns"].to_numpy())
    return boxes.filter(pc.not_equal(boxes["timestamp_ns"], sweeps[49]))


UNIT = "field 'timestamp_ns': must be nanoseconds"


@pytest.mark.parametrize(
    ("file", "damage", "problem"),
    [
        (BOXES, lambda t: t.drop_columns(["track_uuid"]), f"{BOXES}, field 'track_uuid': column is missing"),
        (BOXES, converted("qw", lambda x: 0 * x + 3.0), "field 'qw': and qx, qy, qz must be unit quat"),
        (BOXES, converted("tx_m", lambda x: x * np.nan), f"{BOXES}, field 'tx_m'"),
        (BOXES, converted("timestamp_ns", lambda ns: ns // 1000), f"{BOXES}, {UNIT}"),
        (BOXES, converted("timestamp_ns", lambda ns: ns.astype(np.float32)), f"{BOXES}, {UNIT}"),
        (POSES, converted("timestamp_ns", lambda ns: ns.astype(str)), f"{POSES}, {UNIT}"),
        (POSES, converted("timestamp_ns", lambda ns: ns // 1000), "no pose at the time of an annotated fr"),
        (BOXES, without_last_observed_sweep, "last observed frame of the window at frame 0 was lost"),
        (BOXES, lambda t: t.slice(0, 4000), "has [0-9]+ frames, a window 110"),
        (BOXES, lambda t: t.slice(0, 0), "field 'timestamp_ns': the file has no rows"),
        (POSES, lambda t: t.slice(0, 50), "has no pose at the time of an annotated frame"),
    ],
)
def test_unusable_logs_are_described_in_one_sentence(
    raw: Path, file: str, damage: Callable[[pa.Table], pa.Table], problem: str
) -> None:
    change(only_log(raw) / file, damage)
    rejects(problem, lambda: argoverse2_sensor.read(argoverse2_sensor.discover(raw)["val"][0]))


def test_logs_of_the_test_split_have_no_annotations(tmp_path: Path) -> None:
    log = tmp_path / "test" / "log"
    (log / "map").mkdir(parents=True)
    (log / "map" / "log_map_archive_log____PIT_city_1.json").write_text("{}")
    (log / POSES).write_bytes(b"")
    [window] = argoverse2_sensor.discover(tmp_path)["test"]
    rejects(r"log: has no annotations \(annotations.feather", argoverse2_sensor.read, window)


def test_damaged_files_and_empty_folders_are_described(raw: Path) -> None:
    log = only_log(raw)
    [lane_map] = (log / "map").iterdir()
    for file, content, problem in (
        (lane_map, json.dumps({"lane_segments": {}}), "pedestrian_crossings"),
        (log / BOXES, "not a table", r"annotations.feather: is not a readable feather file"),
    ):
        file.write_text(content)
        window = argoverse2_sensor.discover(raw)["val"][0]
        rejects(problem, argoverse2_sensor.read, window)
    rejects("no scenarios; expected", SOURCES["argoverse2-sensor"].scenarios, raw / "val")
