"""Tables: their windows are those of sources written by hand; what is wrong with them is one sentence."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import error_of, output_of, run
from tests.integrations.map_files import commonroad, lanelet2
from tests.integrations.recordings import write_ind
from trajpred import Scenario, resample
from trajpred.data.geometry import wrap_angle
from trajpred.data.lane_map import LaneMap
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import DataError
from trajpred.integrations import table
from trajpred.integrations.maps import write_map
from trajpred.integrations.table import SOURCE, TableOptions
from trajpred.predictors import load_predictor
from trajpred.predictors.predictor import forecast_store
from trajpred.sources import RawScenario
from trajpred.sources.columns import Preset
from trajpred.sources.tables import column_names
from trajpred.store import ScenarioStore, prepare

NAME = "trajpred.integrations.table:SOURCE"
PLAIN = ("track=id", "time=t:ms", "x=X", "y=Y")


def windows(raw: Path, options: TableOptions) -> list[RawScenario]:
    """Return all windows, before recordings are divided; warn of what looks wrong."""
    problems: dict[str, list[str]] = {}
    found = table._found(raw, problems, options)
    for sentences in problems.values():
        warnings.warn(sentences[0], stacklevel=2)
    return [window for recording in found for window in recording.windows]


def by_hand(rows: np.ndarray, rate: float, start_s: float) -> Scenario:
    """Cut the window at ``start_s`` out of rows of track, frame, x, y, vx, vy, heading."""
    first = np.ceil(start_s * rate - 1e-6)
    observed = int(np.ceil((start_s + 5) * rate - 1e-6) - first)
    future = int(6 * rate)
    frame = rows[:, 1] - first
    inside = (frame >= 0) & (frame < observed + future)
    names, row = np.unique(rows[inside, 0], return_inverse=True)
    states = np.full((len(names), observed + future, 5), np.nan)
    states[row, frame[inside].astype(int)] = rows[inside, 2:]
    seen = np.isfinite(states[..., 0])
    candidate = seen[:, observed - 1]
    step = (states[:, observed - 1, :2] - states[:, observed - 1 - round(rate), :2]) / round(rate)
    steady = states[:, observed - 1, None, :2] + step[:, None] * np.arange(1, future + 1)[:, None]
    error = np.nan_to_num(np.hypot(*np.moveaxis(states[:, observed:, :2] - steady, -1, 0))).max(axis=1)
    focal = max(np.flatnonzero(candidate), key=lambda i: (seen[i].sum(), error[i]))
    scenario = Scenario.from_arrays(
        states[..., :2],
        num_observed=observed,
        step_s=1 / rate,
        velocity=states[..., 2:4],
        heading=states[..., 4],
        track_id=[f"{name:g}" for name in names],
        focal=int(focal),
    )
    return resample(scenario, 0.1)


def require_equal(scenario: Scenario, hand: Scenario) -> None:
    """Compare the states of two windows at the times of the shorter one."""
    assert scenario.focal_id == hand.focal_id
    offset = scenario.num_observed - hand.num_observed
    steps = np.arange(hand.num_steps)
    for row, name in enumerate(hand.tracks.track_id):
        valid = hand.tracks.valid[row]
        at = scenario.tracks.index(name), steps[valid] + offset
        assert scenario.tracks.valid[at].all()
        np.testing.assert_allclose(scenario.tracks.position[at], hand.tracks.position[row, valid], atol=1e-3)
        np.testing.assert_allclose(scenario.tracks.velocity[at], hand.tracks.velocity[row, valid], atol=1e-2)
        turn = scenario.tracks.heading[at] - hand.tracks.heading[row, valid]
        assert np.cos(turn).min() > 0.9999


def test_ind_is_the_source_by_hand(tmp_path: Path) -> None:
    """25 Hz, rows in any order, headings in degrees; classes and rate from the metadata."""
    file = write_ind(tmp_path / "raw")
    header, *lines = file.read_text().splitlines()
    np.random.default_rng(1).shuffle(lines)
    file.write_text("\n".join([header, *lines]))
    states = np.loadtxt(lines, delimiter=",", usecols=(1, 2, 4, 5, 9, 10, 6))
    states[:, 6] = wrap_angle(np.radians(states[:, 6]))
    meta: dict[str, list[float]] = {}
    for line in (tmp_path / "raw/00_tracksMeta.csv").read_text().splitlines()[1:]:
        cells = line.split(",")
        meta[cells[1]] = [float(cells[5]), float(cells[6])]  # width and length, 0 of pedestrians
    options = TableOptions(preset="inD")
    splits = SOURCE.scenarios(tmp_path / "raw", options)
    assert [window.name for window in splits["train"]] == [f"00_{15 * i:05d}" for i in range(12)]
    assert [window.name for window in splits["val"]] == ["00_00285"]
    for window in (*splits["train"][::4], *splits["val"]):
        scenario = SOURCE.scenario(window, options)
        tenths = int(window.name.rpartition("_")[2])
        require_equal(scenario, by_hand(states, 25.0, tenths / 10))
        assert (scenario.num_observed, scenario.num_steps) == (50, 110)
        for name, code in zip(scenario.tracks.track_id, scenario.tracks.object_type, strict=True):
            kind = ("vehicle", "vehicle", "cyclist", "pedestrian", "vehicle")[int(name) % 5]
            assert OBJECT_TYPES[code] == kind
        sizes = np.array([meta[name][::-1] for name in scenario.tracks.track_id])
        np.testing.assert_allclose(scenario.tracks.size, np.where(sizes > 0, sizes, np.nan))


def test_interaction_joins_vehicles_and_pedestrians_on_a_map(tmp_path: Path) -> None:
    """Pedestrians have no headings: theirs are those of the motion."""
    names = "track_id,frame_id,timestamp_ms,agent_type,x,y,vx,vy"
    times = range(1, 131)
    cars = [f"1,{t},{100 * t},car,{0.8 * t},1,8,0,0.01,4.5,1.8" for t in times]
    people = [f"P1,{t},{100 * t},pedestrian/bicycle,3,{-0.1 * t},0,-1" for t in times]
    (tmp_path / "vehicle_tracks_007.csv").write_text("\n".join([f"{names},psi_rad,length,width", *cars]))
    (tmp_path / "pedestrian_tracks_007.csv").write_text("\n".join([names, *people]))
    (tmp_path / "map.xml").write_bytes(commonroad())
    options = TableOptions(preset="interaction", map=tmp_path / "map.xml", origin=None)
    [first, *_] = windows(tmp_path, options)
    scenario = SOURCE.scenario(first, options)
    assert scenario.tracks.track_id.tolist() == ["1", "P1"]
    assert [OBJECT_TYPES[code] for code in scenario.tracks.object_type] == ["vehicle", "pedestrian"]
    np.testing.assert_allclose(scenario.tracks.heading[0], 0.01)
    np.testing.assert_allclose(scenario.tracks.heading[1, 20:], -np.pi / 2)
    np.testing.assert_allclose(scenario.tracks.position[0, :, 0], 0.8 * np.arange(1, 111))
    assert len(scenario.map) == 2
    np.testing.assert_array_equal(scenario.tracks.size, [[4.5, 1.8], [np.nan, np.nan]])


def test_highd_has_corners_of_boxes_and_y_down(tmp_path: Path) -> None:
    rows = [f"{n},3,{2.0 * n},{10 - 0.2 * n},4,2,50,-5" for n in range(1, 300)]
    names = "frame,id,x,y,width,height,xVelocity,yVelocity"
    (tmp_path / "01_tracks.csv").write_text("\n".join([names, *rows]))
    (tmp_path / "01_tracksMeta.csv").write_text("id,width,height,class\n3,4,2,Truck\n")
    (tmp_path / "01_recordingMeta.csv").write_text("id,frameRate\n1,25\n")
    options = TableOptions(preset="highd")
    scenario = SOURCE.scenario(windows(tmp_path, options)[0], options)
    np.testing.assert_allclose(scenario.tracks.position[0, 49], [2 * 125 + 2, -(10 - 0.2 * 125 + 1)])
    np.testing.assert_allclose(scenario.tracks.velocity[0, 49], [50, 5])
    np.testing.assert_allclose(scenario.tracks.heading[0, 49], np.arctan2(5, 50))
    assert scenario.tracks.size.tolist() == [[4, 2]]


def test_a_lanelet2_map_lies_where_its_origin_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cars on the map from 48° N 9° E; from 0.01° farther north it is a kilometre away: one warning each."""
    (tmp_path / "map.osm").write_bytes(lanelet2())
    time = np.arange(140) * 0.1
    (tmp_path / "val").mkdir()
    file = plain(tmp_path / "val/drive.parquet", {"1": np.stack((time, 5 * time, 0 * time), -1)})
    near = TableOptions(columns=PLAIN, map=tmp_path / "map.osm", origin=(48.0, 9.0))
    scenario = SOURCE.scenario(windows(file, near)[0], near)
    middles = [line[len(line) // 2] for line in scenario.map.centerline]
    assert np.abs(np.subtract(middles, [30, 6])).max() < 16, "0 to 60 m, and 3 to 9 m"
    assert scenario.lane_distance == 0
    far = replace(near, origin=(48.01, 9.0))
    table = ("info", file, "--columns", *PLAIN, "--map", near.map)
    for latitude, away in (("48.0", False), ("48.01", True)):
        assert run(*table, "--origin", latitude, "9.0") == 0
        words = " ".join(capsys.readouterr().out.split())
        assert ("1,104 m from every road user" in words) == away
    assert run(*table, "--origin", "48.0", "9.0", "--save", tmp_path / "map.json") == 2
    assert "--save: is not for raw data" in capsys.readouterr().err
    store = tmp_path / "store"
    summary = prepare(NAME, tmp_path, store, options=far, workers=1, progress=False)
    [problem] = summary.unseen.values()
    words = "3 of 3 maps have no lane within 100 m of a road user, such as drive_00000 (1,104 m): check the"
    assert problem.startswith(words)
    for workers in (1, 2):
        with pytest.warns(UserWarning) as said:
            model = load_predictor("argoverse-nano")
            list(forecast_store(model, ScenarioStore(store, "val"), batch_size=1, workers=workers))
        sentences = [str(warning.message) for warning in said if "lanes" in str(warning.message)]
        [sentence] = sentences
        assert re.match(r"drive_000\d\d: argoverse-nano reads 0 of 5 lanes, all are farther than", sentence)


def test_an_edit_of_a_map_elsewhere_or_of_metadata_is_prepared_again(tmp_path: Path) -> None:
    """Files of the same size; shards are named after their content."""
    meta = write_ind(tmp_path / "raw", seconds=12.0, tracks=6).with_name("00_tracksMeta.csv")
    map = tmp_path / "maps" / "map.osm"
    map.parent.mkdir()
    map.write_bytes(lanelet2())
    options = TableOptions(preset="ind", map=map, origin=(48.0, 9.0))
    stored = []
    for file, old, new in (
        (map, "", ""),
        (map, "solid_dashed", "dashed_solid"),
        (meta, "pedestrian", "motorcycle"),
        (meta, "", ""),
    ):
        text = file.read_text()
        file.write_text(text.replace(old, new) if old else text)
        prepare(NAME, tmp_path / "raw", tmp_path / "store", options=options, workers=1, progress=False)
        stored.append({path.name for path in (tmp_path / "store").rglob("shard-*") if path.suffix != ".json"})
    first, other_marks, other_classes, unchanged = stored
    assert len(first) == len(first | other_marks) / 2 == len(other_marks | other_classes) / 2 > 0
    assert other_classes == unchanged


def plain(path: Path, tracks: dict[str, np.ndarray], **more: object) -> Path:
    """Write states ``[N, 3]`` of time in seconds, x and y, as parquet."""
    states = np.concatenate(list(tracks.values()))
    names = np.repeat(list(tracks), [len(rows) for rows in tracks.values()])
    columns = {"id": names, "t": states[:, 0] * 1000, "X": states[:, 1], "Y": states[:, 2]}
    pq.write_table(pa.table(columns | more), path)
    return path


def test_tracks_keep_their_own_times(tmp_path: Path) -> None:
    """Detections at 10 Hz, jittered, each track in its own phase: constant motion stays so.

    Where a track has no state at the last observed step itself, later ones do not make one.
    """
    rng = np.random.default_rng(2)
    tracks = {}
    for n in range(5):
        time = np.sort(n * 0.023 + np.arange(200) * 0.1 + rng.uniform(-0.02, 0.02, 200))
        tracks[f"car {n}"] = np.column_stack((time, 12 * time, 3 * n - 2 * time))
    file = plain(tmp_path / "drive.parquet", tracks)
    options = TableOptions(columns=PLAIN)
    window = windows(file, options)[3]
    scenario = SOURCE.scenario(window, options)
    valid = scenario.tracks.valid
    assert np.delete(valid, 49, axis=1).all()
    seconds = scenario.timestamps_ns / 1e9 + min(rows[0, 0] for rows in tracks.values())
    lateral = [3.0 * int(name[-1]) for name in scenario.tracks.track_id]
    expected = np.stack((np.tile(12 * seconds, (5, 1)), np.subtract.outer(lateral, 2 * seconds)), -1)
    np.testing.assert_allclose(scenario.tracks.position[valid], expected[valid], atol=1e-6)
    velocity = scenario.tracks.velocity[valid]
    np.testing.assert_allclose(velocity, np.broadcast_to([12.0, -2.0], velocity.shape), atol=1e-4)


def test_recordings_are_read_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = np.column_stack((np.arange(150) * 0.1, np.arange(150.0), np.zeros(150)))
    case = np.repeat(np.arange(6), 150)
    file = plain(
        tmp_path / "all.parquet", {"7": np.tile(states, (6, 1)) + case[:, None] * [0, 100, 0]}, case=case
    )
    options = TableOptions(columns=("recording=case", *PLAIN))
    whole = [SOURCE.scenario(window, options) for window in windows(file, options)]
    monkeypatch.setattr(table, "MAX_ROWS", 310)
    again = [SOURCE.scenario(window, options) for window in windows(file, options)]
    assert len({window.part.together for window in windows(file, options)}) == 3
    assert len(whole) == 6 * 3
    for first, second in zip(whole, again, strict=True):
        assert first.scenario_id == second.scenario_id
        np.testing.assert_array_equal(first.tracks.position, second.tracks.position)
    starts = {round(scene.tracks.position[0, 0, 0] - scene.timestamps_ns[0] / 1e8) for scene in whole}
    assert starts == {0, 100, 200, 300, 400, 500}


def test_no_window_of_a_validation_recording_is_trained_on(tmp_path: Path) -> None:
    for number in range(6):
        write_ind(tmp_path / "many", number, seconds=16, tracks=5)
    options = TableOptions(preset="ind")
    splits = SOURCE.scenarios(tmp_path / "many", options)
    train_files = {window.path for window in splits["train"]}
    val_files = {window.path for window in splits["val"]}
    assert train_files.isdisjoint(val_files)
    assert len(train_files | val_files) == 6
    # Folders of splits stay as they are.
    write_ind(tmp_path / "split" / "train", 1, seconds=16, tracks=5)
    write_ind(tmp_path / "split" / "val", 2, seconds=16, tracks=5)
    splits = SOURCE.scenarios(tmp_path / "split", options)
    assert (len(splits["train"]), len(splits["val"])) == (4, 4)


Change = Callable[[str], str]


def column(name: str, change: Change) -> Change:
    """Return a change of all values of a column of a CSV file."""

    def changed(text: str) -> str:
        lines = [line.split(",") for line in text.splitlines()]
        at = lines[0].index(name)
        for line in lines[1:]:
            line[at] = change(line[at])
        return "\n".join(",".join(line) for line in lines)

    return changed


@pytest.mark.parametrize(
    ("columns", "change", "sentence"),
    [
        (["time=frame:s"], None, "positions move 0.04 times as fast as vx and vy"),
        (["time=frame:ms"], None, "positions move 40 times as fast as vx and vy"),
        (["time=frame:30hz"], None, "positions move 1.2 times as fast as vx and vy"),
        (["x=xCenter:km", "y=yCenter:km"], None, r"steps are faster than 80 m/s, up to 1.\d+e.04 m/s"),
        (["x=xCenter:mm", "y=yCenter:mm"], None, r"99 % of the steps are slower than 0.01\d m/s"),
        (["heading=heading:rad"], None, "'heading': reaches 3[56]., which cannot be radians"),
        ([], column("heading", lambda h: str(np.radians(float(h)))), r"headings are \d\d+ degrees off the"),
        ([], column("yCenter", lambda y: str(-float(y))), r"headings are \d\d+ degrees off the"),
        (["x=yCenter", "y=xCenter"], None, "headings are 90 degrees off the motion"),
        (["x=x_center"], None, "'x_center': column is missing; 00_tracks.csv .* have: recordingId, tra"),
        (["track=recordingId"], None, "rows repeat a time of a track: left out"),
        (["vx=xVelocity:km/h", "vy=yVelocity:km/h"], None, "positions move 3.6 times as fast as vx and vy"),
        (["x=xCenter:ft", "y=yCenter:ft"], None, "positions move 0.305 times as fast as vx and vy"),
        (["time=frame:us"], None, "'frame': states of a track are 1e-06 s apart in the median"),
        (["length=length:ft"], None, "vehicles are 1.4 m long in the median"),
        (["type=locationId"], None, "'locationId': has only unknown classes, '1'; .*: type=locationId:"),
    ],
)  # fmt: skip
def test_mistakes_end_in_a_sentence_with_the_figure(
    columns: list[str], change: Change | None, sentence: str, tmp_path: Path
) -> None:
    file = write_ind(tmp_path, seconds=30)
    if change:
        file.write_text(change(file.read_text()))
    options = TableOptions(preset="ind", columns=tuple(columns))
    problem = ""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            SOURCE.scenario(windows(file, options)[0], options)
        except DataError as error:
            problem = str(error)
    sentences = [str(warning.message) for warning in said] + [problem]
    assert re.search(sentence, " | ".join(sentences)), sentences
    assert len(sentences) < 4


def test_broken_recordings_are_reported_and_the_rest_is_prepared(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    for number in range(6):
        write_ind(raw, number, seconds=16, tracks=5)
    lines = (raw / "01_tracks.csv").read_text().splitlines()
    lines[40] = lines[40].replace("truck", "").rpartition(",")[0] + ",fast"
    (raw / "01_tracks.csv").write_text("\n".join(lines))
    (raw / "02_tracks.csv").write_text(lines[0] + "\n")
    slow = column("frame", lambda n: str(int(n) if int(n) < 200 else 200 + 3 * (int(n) - 200)))
    (raw / "03_tracks.csv").write_text(slow((raw / "03_tracks.csv").read_text()))
    (raw / "04_tracksMeta.csv").unlink()
    lines = (raw / "05_tracks.csv").read_text().splitlines()
    (raw / "05_tracks.csv").write_text("\n".join([*lines, lines[3], lines[9]]))
    with pytest.warns(UserWarning, match=r"05: 2 of [\d,]+ rows repeat a time of a track: left out"):
        summary = prepare(
            NAME, raw, tmp_path / "store", options=TableOptions(preset="ind"), workers=1, progress=False
        )
    skipped = {name: reason for found in summary.skipped.values() for name, reason in found.items()}
    assert {name[:2] for name in skipped} == {"01", "02", "03", "04"}
    assert skipped["01_00000"] == "01_tracks.csv, field 'yVelocity': must be numbers, has 'fast'"
    assert skipped["02_00000"] == "02_tracks.csv, field 'xCenter': the recording has less than two states"
    assert "03_tracks.csv, field 'frame': mixes steps of 0.04 and 0.12 s" in skipped["03_00000"]
    assert skipped["04_00000"].startswith("04_tracksMeta.csv: is not a readable table")
    assert sum(summary.scenarios.values()) == 8


@pytest.mark.parametrize("names", [["frame", "x m"], ["frame"]])
def test_names_of_columns_may_be_quoted(names: list[str], tmp_path: Path) -> None:
    file = tmp_path / "meta.csv"
    file.write_text(",".join(f'"{name}"' for name in names) + "\n")
    assert column_names(file, Preset("")) == names


def test_info_shows_a_table_before_it_is_prepared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_ind(tmp_path)
    page = " ".join(output_of(capsys, "info", file, "--preset", "ind").split())
    counts = "20: 4 cyclist, 4 pedestrian, 12 vehicle"
    for fact in (counts, "in 40.0 s, every 0.04 s", "train 12 scenarios", "val 1 scenarios", "map no map"):
        assert fact in page
    store = tmp_path / "store"
    assert run("prepare", "--preset", "ind", "--raw", file, "--store", store, "--workers", 1) == 0
    advice = f"Train on it: trajpred train --weights argoverse-nano --data.store {store}\n"
    assert capsys.readouterr().out.endswith(advice)
    assert len(ScenarioStore(store, "train")) == 12
    assert "is a table: state its columns with --preset or --columns" in error_of(capsys, "info", file)


@pytest.mark.parametrize(("metres", "share"), [(0.0, "100%"), (55.0, "0%")])
def test_prepare_and_info_tell_a_map_beside_the_road(
    metres: float, share: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twenty cars on four lanes, with a map on the road and beside it."""
    time = np.arange(0, 20, 0.1)
    cars: dict[str, np.ndarray] = {}
    for n in range(20):
        cars[str(n)] = np.stack((time, 8 * time + 10 * n, 0 * time + 3.5 * (n % 4)), -1)
    (tmp_path / "raw/val").mkdir(parents=True)
    plain(tmp_path / "raw/val/a.parquet", cars)
    lines = [[[-50.0, y + metres], [600.0, y + metres]] for y in (0.0, 3.5, 7.0, 10.5)]
    write_map(LaneMap.from_centerlines(lines), tmp_path / "map.json")
    words = ("--source", "table", "--map", tmp_path / "map.json", "--columns", *PLAIN)
    problem = "only 0% of 140 moving road users are on a lane of their direction: check frame and origin"
    page = " ".join(output_of(capsys, "info", tmp_path / "raw", *words).split())
    assert f"on lanes {share} of 140 moving road users on lanes" in page
    assert (problem in page) == (metres > 0)
    store = tmp_path / "store"
    assert run("prepare", "--raw", tmp_path / "raw", "--store", store, "--workers", 1, *words) == 0
    said = capsys.readouterr()
    assert f"val: 7 scenarios, {share} of 140 moving road users on lanes\n" in said.out
    assert (f"warning: val: {problem}" in said.err) == (metres > 0)
    assert f"{share} of 140 moving road users on lanes" in " ".join(output_of(capsys, "info", store).split())
