"""Predictions files, av2's and those of Argoverse 1: every fault is reported by scenario and track."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from av2.datasets.motion_forecasting.eval.submission import ChallengeSubmission
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.conftest import error_of, rejected, rejects, run
from tests.predictors.random_forecasts import F, K, assert_same, random_forecast, scene, sorted_modes
from tests.sources.argoverse1_files import made_rows, write
from trajpred.cli.info import describe
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import TrackCategory
from trajpred.evaluation import evaluate
from trajpred.predictors import FilePredictor, load_predictor
from trajpred.predictors.baselines import constant_velocity
from trajpred.predictors.predict import write_predictions
from trajpred.predictors.prediction_rows import read_submission
from trajpred.predictors.predictions_file import problems_of, read_predictions
from trajpred.store import ScenarioStore, prepare

COLUMNS = ["scenario_id", "track_id", "probability", "predicted_trajectory_x", "predicted_trajectory_y"]
X, Y = COLUMNS[3:]
Row = dict[str, Any]


def test_names_that_would_change_are_rejected(tmp_path: Path) -> None:
    row = {"scenario_id": "a", "track_id": "b", "probability": 1.0, X: [1.0], Y: [1.0]}
    for column, name in (("scenario_id", "7\0"), ("track_id", "a\nb"), ("track_id", "x" * 100_000)):
        path = write_rows(tmp_path / "odd.parquet", [row | {column: name}])
        caught = rejects(f"odd.parquet, field '{column}': must be .* printable", read_predictions, path)
        assert len(str(caught)) < 400


def rows_of(*tracks: tuple[str, str], p: Sequence[float] = (0.5, 0.3, 0.2)) -> list[Row]:
    """Rows of ``(scenario, track)`` with a mode of three steps for each of ``p``."""
    random = np.random.default_rng(0)
    return [
        dict(zip(COLUMNS, (*name, weight, *random.normal(0, 9, (2, 3)).tolist()), strict=True))
        for name in tracks
        for weight in p
    ]


def write_rows(path: Path, rows: list[Row]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_we_read_files_of_av2(tmp_path: Path) -> None:
    forecasts = [random_forecast(f"s{i}", 3, seed=i) for i in range(4)]
    paths = [dict(zip(f.track_id.tolist(), f.trajectory, strict=True)) for f in forecasts]
    given = {f.scenario_id: (f.probability[0], p) for f, p in zip(forecasts, paths, strict=True)}
    ChallengeSubmission(given).to_parquet(tmp_path / "p.parquet")
    file = read_predictions(tmp_path / "p.parquet")
    assert file.scenario_ids == list(given)
    assert not file.problems
    assert not file.note
    assert file.joint == dict.fromkeys(given, True)
    assert not file.single
    for forecast in forecasts:
        assert_same(file.forecast(scene(forecast.scenario_id, 3)), forecast)


def test_futures_in_another_frame_are_described(tmp_path: Path) -> None:
    road = np.stack((2000 + 0.5 * np.arange(60), np.full(60, -900.0)), -1)
    scenario = Scenario.from_arrays(road[None], num_observed=30)
    whole = constant_velocity(scenario)
    path = whole.trajectory
    frames = {"own": path, "local": path - road[29], "exchanged": path[..., ::-1]}
    problems = {}
    for name, path in frames.items():
        write_predictions(tmp_path / name, [replace(whole, trajectory=path)])
        predictor = FilePredictor(tmp_path / name)
        predictor([scenario])
        problems[name] = predictor.problems.get("scenario", [])
    assert problems["own"] == []
    begins = f"begins {np.hypot(*road[29]):,.0f} m from its last observed position: predict x and y in metres"
    assert begins in problems["local"][0]
    assert len(problems["exchanged"]) == 1


def test_a_standing_car_without_a_heading_faces_along_its_lane_as_for_a_model(tmp_path: Path) -> None:
    north = np.array([[3.0, -50.0], [3.0, 50.0]])
    waiting = Scenario.from_arrays(np.zeros((1, 50, 2)), num_observed=50, map=[north])
    [forecast] = load_predictor("argoverse-nano")([waiting])
    path = tmp_path / "predictions.parquet"
    write_predictions(path, [forecast])
    read = read_predictions(path).forecast(waiting)
    np.testing.assert_allclose(forecast.heading[0, :, 0], np.pi / 2, atol=0.2)
    np.testing.assert_allclose(read.heading[0, :, 0], np.pi / 2, atol=0.2)


def test_real_scenarios_keep_headings_and_speeds(store_path: Path, tmp_path: Path) -> None:
    scenarios = list(ScenarioStore(store_path, "val"))
    forecasts = [constant_velocity(one) for one in scenarios]
    write_predictions(tmp_path / "p.parquet", forecasts)
    file = read_predictions(tmp_path / "p.parquet")
    for scenario, expected in zip(scenarios, forecasts, strict=True):
        found = file.forecast(scenario)
        assert_same(found, expected)
        np.testing.assert_allclose(found.speed, expected.speed, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.heading, expected.heading, rtol=0, atol=1e-9)
        assert file.missing(scenario) == []


@settings(max_examples=25)
@given(data=st.data())
def test_any_forecasts_in_any_order(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any sizes, ties among the probabilities, rows in any order and row groups of any size."""
    path, forecasts = tmp_path_factory.mktemp("any") / "p.parquet", []
    for i in range(data.draw(st.integers(0, 4), "scenarios")):
        A = data.draw(st.integers(1, 4), "A")
        modes = data.draw(st.integers(1, 7), "K")
        steps = data.draw(st.integers(1, 5), "F")
        weight = np.array(data.draw(st.lists(st.integers(1, 3), min_size=modes, max_size=modes), "p"), float)
        one = random_forecast(f"s{i}", A, seed=i, modes=modes, steps=steps)
        forecasts.append(replace(one, probability=np.tile(weight / weight.sum(), (A, 1))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trajpred.predictors.predict.CHUNK", 2)
        write_predictions(path, forecasts)
    table = pq.read_table(path)
    if len(table) and data.draw(st.booleans(), "interleaved"):
        # The first mode of every track, then the second ones: the order of modes within a track stays.
        place = table.to_pandas().groupby(["scenario_id", "track_id"]).cumcount()
        table = table.take(np.argsort(place.to_numpy(), kind="stable"))
    pq.write_table(table, path, row_group_size=data.draw(st.integers(1, 50), "rows"))
    file = read_predictions(path)
    assert len(file.scenario_ids) == len(forecasts)
    assert not file.problems
    assert all(file.joint.values())
    for one in forecasts:
        assert_same(file.forecast(scene(one.scenario_id, len(one.track_id))), one)
        assert file.steps(one.scenario_id) == one.trajectory.shape[2]


def test_modes_of_equal_probability_stay_in_the_same_world(tmp_path: Path) -> None:
    """Mode k of every track ends at x = k, whatever ties and rounding there are."""
    one = random_forecast("s", 3)
    world = np.broadcast_to(np.arange(K)[None, :, None, None], one.trajectory.shape).astype(float)
    weight = np.array([[0.1, 0.2, 0.2, 0.2, 0.2, 0.1]])
    rounding = np.array([[0], [1], [-1]]) * np.array([0, 1, -1, 1, -1, 0]) * 1e-9
    for probability in (np.tile(weight, (3, 1)), weight + rounding):
        write_predictions(tmp_path / "p.parquet", [replace(one, trajectory=world, probability=probability)])
        rows = pq.read_table(tmp_path / "p.parquet").to_pandas()
        rows["probability"] = probability.ravel()
        rows.to_parquet(tmp_path / "foreign.parquet")
        for name in ("p.parquet", "foreign.parquet"):
            file = read_predictions(tmp_path / name)
            assert file.joint == {"s": True}
            end = file.forecast(scene("s", 3)).trajectory[:, :, -1, 0]
            assert end.tolist() == [[1, 2, 3, 4, 0, 5]] * 3


def test_probabilities_per_track_are_marginal_predictions(tmp_path: Path) -> None:
    """Before 0.3, av2 wrote probabilities per track, in any order."""
    old = random_forecast("old", 3, shared=False)
    rows = [
        (old.scenario_id, track, p, path[:, 0], path[:, 1])
        for track, paths, weights in zip(old.track_id, old.trajectory, old.probability, strict=True)
        for path, p in zip(paths, weights, strict=True)
    ]
    new = [("new", "0", 1.0, np.zeros(F), np.zeros(F))]
    pd.DataFrame(rows + new, columns=COLUMNS).to_parquet(tmp_path / "p.parquet")
    file = read_predictions(tmp_path / "p.parquet")
    assert file.joint == {"old": False, "new": True}
    assert not file.problems
    assert "1 of 2 scenarios" in file.note
    assert "marginal" in file.note
    assert_same(file.forecast(scene("old", 3)), old)


def test_other_column_types_are_read(tmp_path: Path) -> None:
    """Float32, fixed-size lists, categories, numbers as ids, additional columns."""
    one = random_forecast("7", 2, steps=3)
    path = one.trajectory.astype("f4")
    x = pa.FixedSizeListArray.from_arrays(path[..., 0].ravel(), 3)
    y = pa.FixedSizeListArray.from_arrays(path[..., 1].ravel(), 3)
    columns = {
        **{"extra": np.arange(2 * K), Y: y, X: x},
        "probability": one.probability.astype("f4").ravel(),
        "track_id": np.repeat([0, 1], K),
        "scenario_id": pa.array(["7"] * 2 * K).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    found = read_predictions(tmp_path / "p.parquet").forecast(scene("7", 2))
    np.testing.assert_allclose(found.trajectory, sorted_modes(one)[0], rtol=1e-6)


def put(row: int, **values: Any) -> Callable[[list[Row]], object]:
    names = {"x": X, "y": Y, "p": "probability"}
    return lambda rows: rows[row].update({names[name]: value for name, value in values.items()})


#: Faults in track 1 of scenario s, whose rows are 3 to 5, and their descriptions.
FAULTS: dict[str, tuple[Callable[[list[Row]], object], str]] = {
    "nan first": (put(3, x=[np.nan, 1.0, 2.0]), "coordinate that is not finite"),
    "null": (put(4, x=[1.0, None, 2.0]), "coordinate that is not finite"),
    "empty": (put(4, x=[], y=[]), "empty trajectory"),
    "more x than y": (put(4, x=[1.0] * 4), "different numbers of x and y"),
    "ragged": (put(4, x=[1.0], y=[1.0]), "modes of different lengths"),
    "shorter": (lambda rows: [put(i, x=[1.0], y=[1.0])(rows) for i in (3, 4, 5)], "modes or steps"),
    "fewer modes": (lambda rows: (rows.pop(5), put(3, p=0.6)(rows), put(4, p=0.4)(rows)), "modes or steps"),
    "negative": (lambda rows: (put(3, p=-0.5)(rows), put(4, p=1.3)(rows)), "negative probability"),
    "probability nan": (put(4, p=np.nan), "probability that is not finite"),
    "sum": (put(4, p=0.25), "sum to 0.95, not to 1"),
    "duplicate": (lambda rows: rows.extend(rows[3:6]), "in the file 2 times"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_reported_and_remove_their_track_only(tmp_path: Path, fault: str) -> None:
    rows = rows_of(("s", "0"), ("s", "1"), ("s", "2"), ("t", "1"))
    change, text = FAULTS[fault]
    sound = [row.copy() for row in rows]
    change(rows)
    file = read_predictions(write_rows(tmp_path / "p.parquet", rows))
    assert file.problems.keys() == {"s"}
    assert file.scenario_ids == ["s", "t"]
    assert all(problem.startswith("track 1: ") for problem in file.problems["s"])
    assert any(text in problem for problem in file.problems["s"]), file.problems
    assert file.track_ids("s") == ["0", "2"]
    assert file.track_ids("t") == ["1"]
    assert file.joint == {"s": True, "t": True}
    found = file.forecast(scene("s", 3))
    modes = [np.stack((row[X], row[Y]), -1) for row in sound]
    np.testing.assert_array_equal(found.trajectory, [modes[0:3], modes[6:9]])


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    """Damaged ones are those of ``tests/fuzz``."""
    path = tmp_path / "bad.parquet"
    assert write_predictions(path, []) == (0, 0)
    assert not read_predictions(path).scenario_ids
    for make in (path.unlink, path.mkdir, lambda: (path.rmdir(), path.write_text("scenario_id"))):
        make()
        rejects(r"bad\.parquet", load_predictor, path)


@pytest.mark.parametrize("column", COLUMNS)
def test_missing_and_unusable_columns_are_named(tmp_path: Path, column: str) -> None:
    table, path = pa.Table.from_pylist(rows_of(("s", "0"))), tmp_path / "bad.parquet"
    i = table.column_names.index(column)
    others = [(table.set_column(i, column, pa.array([[["a"]]] * len(table))), "cannot be read")]
    others.append((table.drop_columns([column]), f"no column {column}"))
    if column.endswith("_id"):
        others.append((table.set_column(i, column, pa.array(["a", None, "a"])), "missing in 1 rows"))
    for other, message in others:
        pq.write_table(other, path)
        found = rejects(rf"bad\.parquet.*{message}", read_predictions, path)
        assert found.field == column


def test_missing_and_unknown_tracks_are_reported(tmp_path: Path) -> None:
    one = replace(random_forecast("s", 4, steps=30), track_id=np.array(["1", "9", "AV", "3"]))
    write_predictions(tmp_path / "p.parquet", [one])
    file = read_predictions(tmp_path / "p.parquet")
    valid = np.ones((6, 110), bool)
    valid[5, 49] = valid[1, :50] = False
    scored, unscored = TrackCategory.SCORED, TrackCategory.UNSCORED
    scenario = scene("s", 6, valid=valid, category=[3, unscored, scored, unscored, unscored, scored])
    assert file.missing(scenario) == [
        "focal track 0 is missing",
        "scored track 2 is missing",
        "track 9 is not in the scenario",
        "track AV is not in the scenario",
        "30 steps are predicted instead of 60: predict all of them",
    ]
    assert file.missing(scene("t", 2)) == ["the scenario is not in the file"]
    assert file.forecast(scenario).track_id.tolist() == ["3"], "track 1 was never observed"
    write_predictions(tmp_path / "single.parquet", [random_forecast("s", 1), random_forecast("t", 1)])
    single = read_predictions(tmp_path / "single.parquet")
    assert single.single
    assert single.missing(scene("s", 3)) == []


def test_incomplete_files_are_evaluated_and_reported(store_path: Path, tmp_path: Path) -> None:
    store = ScenarioStore(store_path, "val")
    kept, short, *others = list(store)
    forecasts = [constant_velocity(kept), constant_velocity(short, 30), random_forecast("unknown", 2)]
    write_predictions(tmp_path / "p.parquet", forecasts)
    predictor = FilePredictor(tmp_path / "p.parquet")
    found = evaluate(predictor, store, batch_size=2, progress=False)
    whole = evaluate(load_predictor("constant_velocity"), store, progress=False)
    assert found.metrics["focal"]["count"] == 1
    assert found.scenarios == len(store)
    assert found.metrics["all"]["count"] + found.missing["all"] == whole.metrics["all"]["count"]
    expected = {one.scenario_id: ["the scenario is not in the file"] for one in others}
    expected |= {short.scenario_id: ["30 steps are predicted instead of 60: predict all of them"]}
    expected |= {"unknown": ["is not in this split"]}
    assert problems_of(predictor, store.scenario_ids) == expected


#: Modes of each sequence: distances in metres to the left of what the focal car does, and probabilities.
MODES = {"7": ([3.0, 0.5, 1.0], [0.5, 0.3, 0.2]), "12": ([1.5, 2.5], [0.25, 0.75]), "40": ([0.25], [1.0])}
DATASET = "argoverse_forecasting"
Table = NDArray[np.float64]


@pytest.fixture(scope="module")
def store_of_argoverse1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sequences, in which the focal car drives 10 m/s along x, at y = 50."""
    folder = tmp_path_factory.mktemp("argoverse1")
    seven = write(folder / "raw", made_rows())
    for name in MODES:
        seven.with_stem(name).write_bytes(seven.read_bytes())
    prepare("argoverse1", folder / "raw", folder / "store", workers=1, progress=False)
    return folder / "store"


def table(columns: int = 4) -> Table:
    """Return the rows of all :data:`MODES`, 30 steps of 1 m each."""
    rows = [
        (int(name), 120 + step, 50 + left, p)
        for name, modes in MODES.items()
        for left, p in zip(*modes, strict=True)
        for step in range(30)
    ]
    return np.array(rows)[:, :columns]


def save(path: Path, rows: NDArray, name: str = DATASET) -> Path:
    """Write rows as argoverse-api does."""
    with h5py.File(path, "w") as file:
        file.create_dataset(name, data=rows, compression="gzip", compression_opts=9)
    return path


@pytest.mark.parametrize("columns", [4, 3], ids=["probabilities", "uniform"])
def test_it_is_scored_as_parquet(store_of_argoverse1: Path, tmp_path: Path, columns: int) -> None:
    store = ScenarioStore(store_of_argoverse1, "val")
    rows = [
        {
            "scenario_id": name,
            "track_id": "focal",
            "probability": p if columns == 4 else 1 / len(modes[0]),
            "predicted_trajectory_x": np.arange(120.0, 150.0),
            "predicted_trajectory_y": np.full(30, 50 + left),
        }
        for name, modes in MODES.items()
        for left, p in zip(*modes, strict=True)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    predictor = FilePredictor(save(tmp_path / "submission.h5", table(columns)))
    found = evaluate(predictor, store, plausibility=True, progress=False).metrics
    same = FilePredictor(tmp_path / "p.parquet")
    expected = evaluate(same, store, plausibility=True, progress=False).metrics
    assert found == expected
    assert predictor.problems == {}
    assert found["focal"]["count"] == 3
    best = [min(left) for left, _ in MODES.values()]
    assert found["focal"]["minFDE6"] == pytest.approx(np.mean(best))
    first = [3.0, 2.5 if columns == 4 else 1.5, 0.25]
    assert found["focal"]["minFDE1"] == pytest.approx(np.mean(first)), "the most probable, else the first"


def test_commands_take_it(
    store_of_argoverse1: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = save(tmp_path / "submission.h5", table())
    title, facts = describe(str(path))
    assert title == f"Predictions {path}"
    assert facts["tracks"] == "3, 1 to 1 of a scenario"
    assert facts["steps"] == "30"
    command = ["evaluate", "--store", store_of_argoverse1, "--checkpoint", path]
    assert run(*command, "--check-with-av2") == 0
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert re.match(r"error: \S+submission.h5: needs h5py: pip install .*h5", error_of(capsys, *command))


def filled(row: slice, column: int, value: float) -> Callable[[Table], Table]:
    def change(rows: Table) -> Table:
        rows[row, column] = value
        return rows

    return change


#: Faults, the field that is named and what the sentence must contain.
FAULTS_H5: dict[str, tuple[Callable[[Table], NDArray], str, str]] = {
    "columns": (lambda rows: rows[:, :2], DATASET, r"3 or 4 columns .* has shape \(180, 2\)"),
    "text": (lambda rows: rows.astype("S9"), DATASET, "must contain numbers"),
    "fraction": (filled(slice(5, 6), 0, 7.5), "sequence", "whole number: row 5"),
    "no number": (filled(slice(5, 6), 0, np.nan), "sequence", "whole number: row 5"),
    "cut": (lambda rows: rows[:-1], "sequence", "30 rows for each of its modes: sequence 40"),
    "twice": (lambda rows: np.concatenate((rows, rows[:30])), "sequence", "two places of the file: seq"),
    "varies": (filled(slice(95, 96), 3, 0.3), "probability", "same in the 30 rows of a mode: sequence 12"),
}


@pytest.mark.parametrize("fault", FAULTS_H5)
def test_files_of_another_layout_are_rejected(tmp_path: Path, fault: str) -> None:
    change, field, message = FAULTS_H5[fault]
    path = save(tmp_path / "submission.h5", change(table()))
    rejected(lambda: read_submission(path), "submission.h5", field, message)


def test_files_without_its_rows_are_rejected(tmp_path: Path) -> None:
    path = save(tmp_path / "submission.h5", table(), name="forecasts")
    rejected(lambda: read_submission(path), "submission.h5", DATASET, "is missing")
    with h5py.File(path, "w") as file:
        file.create_dataset(DATASET, (10**12, 3), "f8", compression="gzip")
    rejected(lambda: read_submission(path), "submission.h5", DATASET, "claims to unpack")
    path.write_text("sequence,x,y")
    rejected(lambda: read_submission(path), "submission.h5", None, "not a readable HDF5 file")
    path.unlink()
    rejected(lambda: read_submission(path), "submission.h5", None, "not a readable HDF5 file")


def test_wrong_sequences_are_left_out(tmp_path: Path) -> None:
    """Their faults are found as those of parquet files."""
    change = filled(slice(90, 120), 3, 0.5)
    file = read_predictions(save(tmp_path / "submission.h5", change(table())))
    assert file.problems == {"12": ["track focal: probabilities that sum to 1.25, not to 1"]}
    assert [file.track_ids(name) for name in MODES] == [["focal"], [], ["focal"]]
