"""Predictions files: av2 reads what we write and we what it writes; faults are told by scenario and track."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from av2.datasets.motion_forecasting.eval.submission import ChallengeSubmission
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.graph.conftest import store_path  # noqa: F401
from tests.graph.scenes import straight
from tests.model.small import small_model
from trajpred.errors import DataError
from trajpred.evaluation import evaluate
from trajpred.forecast import Forecast
from trajpred.graph.scene_graph import build_batch
from trajpred.model import Forecaster
from trajpred.predictors import load_predictor
from trajpred.predictors.motion import constant_velocity
from trajpred.predictors.predict import Agents, predict, select_tracks, tracks_to_predict, write_predictions
from trajpred.predictors.predictions_file import FilePredictor, read_predictions
from trajpred.predictors.predictor import BASELINES
from trajpred.scenario import Scenario, TrackCategory
from trajpred.store import ScenarioStore

K, F = 6, 60
COLUMNS = ["scenario_id", "track_id", "probability", "predicted_trajectory_x", "predicted_trajectory_y"]
Row = dict[str, Any]


@pytest.fixture
def prepared(store_path: Path) -> Path:  # noqa: F811
    """A store of the sample."""
    return store_path


def made_up(
    scenario_id: str, tracks: int, seed: int = 0, modes: int = K, steps: int = F, shared: bool = True
) -> Forecast:
    """Random futures of the tracks of :func:`straight`, thousands of metres from the origin."""
    random = np.random.default_rng(seed)
    path = 5e3 + random.normal(0, 50, (tracks, modes, steps, 2))
    weight = random.dirichlet(np.ones(modes), 1 if shared else tracks)
    return Forecast.from_trajectories(
        scenario_id,
        np.arange(tracks).astype(str),
        path,
        np.broadcast_to(weight, (tracks, modes)).copy(),
        origin=path[:, 0, 0],
        origin_heading=np.zeros(tracks),
        step_s=0.1,
    )


def scene(scenario_id: str, tracks: int, **options: Any) -> Scenario:
    return straight(tracks, scenario_id=scenario_id, **options)


def sorted_modes(forecast: Forecast) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """By descending probability, one track at a time."""
    orders = [sorted(range(len(p)), key=lambda k, p=p: -p[k]) for p in forecast.probability.tolist()]
    pairs = zip(forecast.trajectory, forecast.probability, orders, strict=True)
    paths, weights = zip(*((path[order], weight[order]) for path, weight, order in pairs), strict=True)
    return np.stack(paths), np.stack(weights)


def assert_same(found: Forecast, expected: Forecast) -> None:
    path, weight = sorted_modes(expected)
    assert found.track_id.tolist() == expected.track_id.tolist()
    np.testing.assert_array_equal(found.trajectory, path)
    np.testing.assert_allclose(found.probability, weight, rtol=0, atol=1e-12)


def rows_of(*tracks: tuple[str, str], seed: int = 0, p: Sequence[float] = (0.5, 0.3, 0.2)) -> list[Row]:
    """Rows of ``(scenario, track)`` with a mode of three steps for each of ``p``."""
    random = np.random.default_rng(seed)
    return [
        dict(zip(COLUMNS, (*name, weight, *random.normal(0, 9, (2, 3)).tolist()), strict=True))
        for name in tracks
        for weight in p
    ]


def write_rows(path: Path, rows: list[Row]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


class TestRoundTrip:
    @pytest.mark.parametrize("tracks", [1, 4])
    def test_av2_reads_what_we_write(self, tmp_path: Path, tracks: int) -> None:
        forecasts = [made_up(f"s{i}", tracks, seed=i) for i in range(3)]
        assert write_predictions(tmp_path / "p.parquet", iter(forecasts)) == (3, 3 * tracks)
        found = ChallengeSubmission.from_parquet(tmp_path / "p.parquet").predictions
        assert found.keys() == {"s0", "s1", "s2"}
        for forecast in forecasts:
            probability, paths = found[forecast.scenario_id]
            path, weight = sorted_modes(forecast)
            np.testing.assert_allclose(probability, weight[0], rtol=0, atol=1e-12)
            for track, expected in zip(forecast.track_id.tolist(), path, strict=True):
                np.testing.assert_array_equal(paths[track], expected)

    def test_we_read_what_av2_writes(self, tmp_path: Path) -> None:
        forecasts = [made_up(f"s{i}", 3, seed=i) for i in range(4)]
        paths = [dict(zip(f.track_id.tolist(), f.trajectory, strict=True)) for f in forecasts]
        given = {f.scenario_id: (f.probability[0], p) for f, p in zip(forecasts, paths, strict=True)}
        ChallengeSubmission(given).to_parquet(tmp_path / "p.parquet")
        file = read_predictions(tmp_path / "p.parquet")
        assert file.scenario_ids == list(given) and len(file) == 4 and not file.problems and not file.note
        assert file.joint == dict.fromkeys(given, True) and not file.single
        for forecast in forecasts:
            assert_same(file.forecast(scene(forecast.scenario_id, 3)), forecast)

    def test_real_scenarios_keep_headings_and_speeds(self, prepared: Path, tmp_path: Path) -> None:
        scenarios = list(ScenarioStore(prepared, "val"))
        forecasts = [constant_velocity(one) for one in scenarios]
        write_predictions(tmp_path / "p.parquet", forecasts)
        file = read_predictions(tmp_path / "p.parquet")
        for scenario, expected in zip(scenarios, forecasts, strict=True):
            found = file.forecast(scenario)
            assert_same(found, expected)
            np.testing.assert_allclose(found.speed, expected.speed, rtol=0, atol=1e-9)
            np.testing.assert_allclose(found.heading, expected.heading, rtol=0, atol=1e-9)
            assert file.missing(scenario) == []
        submission = ChallengeSubmission.from_parquet(tmp_path / "p.parquet")
        assert submission.predictions.keys() == {one.scenario_id for one in scenarios}

    def test_other_lengths_and_many_row_groups(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("trajpred.predictors.predict.CHUNK", 2)
        forecasts = [made_up(f"s{i}", 1 + i, seed=i, modes=1 + i, steps=30 - i) for i in range(5)]
        write_predictions(tmp_path / "p.parquet", forecasts)
        assert pq.ParquetFile(tmp_path / "p.parquet").num_row_groups == 3
        file = read_predictions(tmp_path / "p.parquet")
        for i, forecast in enumerate(forecasts):
            assert_same(file.forecast(scene(f"s{i}", 1 + i)), forecast)
            assert file.steps(f"s{i}") == 30 - i

    @settings(max_examples=25, deadline=None)
    @given(data=st.data())
    def test_any_forecasts(self, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
        """Any sizes, ties among the probabilities, the tracks in one piece or strewn over the file."""
        path = tmp_path_factory.mktemp("any") / "p.parquet"
        forecasts = []
        for i in range(data.draw(st.integers(0, 4), "scenarios")):
            A, modes, steps = (
                data.draw(st.integers(1, n), name) for n, name in ((4, "A"), (7, "K"), (5, "F"))
            )
            weight = np.array(
                data.draw(st.lists(st.integers(1, 3), min_size=modes, max_size=modes), "p"), float
            )
            one = made_up(f"s{i}", A, seed=i, modes=modes, steps=steps)
            forecasts.append(replace(one, probability=np.tile(weight / weight.sum(), (A, 1))))
        write_predictions(path, forecasts)
        table = pq.read_table(path)
        if len(table) and data.draw(st.booleans(), "strewn"):
            # The first mode of every track, then the second ones, and so on.
            place = table.to_pandas().groupby(["scenario_id", "track_id"]).cumcount()
            table = table.take(np.argsort(place.to_numpy(), kind="stable"))
        pq.write_table(table, path, row_group_size=data.draw(st.integers(1, 50), "rows"))
        file = read_predictions(path)
        assert len(file) == len(forecasts) and not file.problems and all(file.joint.values())
        for one in forecasts:
            assert_same(file.forecast(scene(one.scenario_id, len(one.track_id))), one)


class TestOrder:
    def test_tracks_of_equal_probabilities_stay_in_the_same_world(self, tmp_path: Path) -> None:
        """Mode k of every track ends at x = k: ties and rounding may not tear worlds apart."""
        one = made_up("s", 3)
        world = np.broadcast_to(np.arange(K)[None, :, None, None], one.trajectory.shape).astype(float)
        weight = np.array([[0.1, 0.2, 0.2, 0.2, 0.2, 0.1]])
        rounding = np.array([[0], [1], [-1]]) * np.array([0, 1, -1, 1, -1, 0]) * 1e-9
        for probability in (np.tile(weight, (3, 1)), weight + rounding):
            write_predictions(
                tmp_path / "p.parquet", [replace(one, trajectory=world, probability=probability)]
            )
            ours = read_predictions(tmp_path / "p.parquet")
            rows = pq.read_table(tmp_path / "p.parquet").to_pandas()
            rows["probability"] = probability.ravel()
            rows.to_parquet(tmp_path / "foreign.parquet")
            for file in (ours, read_predictions(tmp_path / "foreign.parquet")):
                assert file.joint == {"s": True}
                end = file.forecast(scene("s", 3)).trajectory[:, :, -1, 0]
                assert end.tolist() == [[1, 2, 3, 4, 0, 5]] * 3

    def test_rows_may_stand_anywhere(self, tmp_path: Path) -> None:
        forecasts = [made_up(f"s{i}", 3, seed=i) for i in range(3)]
        write_predictions(tmp_path / "p.parquet", forecasts)
        rows = pd.read_parquet(tmp_path / "p.parquet").sample(frac=1, random_state=1)
        rows.to_parquet(tmp_path / "strewn.parquet")
        file = read_predictions(tmp_path / "strewn.parquet")
        assert not file.problems and all(file.joint.values())
        for one in forecasts:
            found = file.forecast(scene(one.scenario_id, 3))
            row = found.rows(one.track_id)
            assert_same(select_tracks(found, one.track_id), one)
            assert sorted(row.tolist()) == [0, 1, 2]

    def test_probabilities_per_track_are_marginal_predictions(self, tmp_path: Path) -> None:
        """Before 0.3, av2 wrote for each track its own probabilities, sorted or not."""
        old = made_up("old", 3, shared=False)
        rows = [
            (old.scenario_id, track, p, path[:, 0], path[:, 1])
            for track, paths, weights in zip(old.track_id, old.trajectory, old.probability, strict=True)
            for path, p in zip(paths, weights, strict=True)
        ]
        new = [("new", "0", 1.0, np.zeros(F), np.zeros(F))]
        pd.DataFrame(rows + new, columns=COLUMNS).to_parquet(tmp_path / "p.parquet")
        file = read_predictions(tmp_path / "p.parquet")
        assert file.joint == {"old": False, "new": True} and not file.problems
        assert "1 of 2 scenarios" in file.note and "marginal" in file.note
        assert_same(file.forecast(scene("old", 3)), old)

    def test_types_that_others_write(self, tmp_path: Path) -> None:
        """Float32, fixed-size lists, categories, numbers as ids, further columns."""
        one = made_up("7", 2, steps=3)
        x, y = (
            pa.FixedSizeListArray.from_arrays(one.trajectory[..., i].astype("f4").ravel(), 3) for i in (0, 1)
        )
        table = pa.table(
            {
                "extra": np.arange(2 * K),
                COLUMNS[4]: y,
                COLUMNS[3]: x,
                "probability": one.probability.astype("f4").ravel(),
                "track_id": np.repeat([0, 1], K),
                "scenario_id": pa.array(["7"] * 2 * K).dictionary_encode(),
            }
        )
        pq.write_table(table, tmp_path / "p.parquet")
        found = read_predictions(tmp_path / "p.parquet").forecast(scene("7", 2))
        np.testing.assert_allclose(found.trajectory, sorted_modes(one)[0], rtol=1e-6)


def put(column: str, value: Any, row: int = 4) -> Callable[[list[Row]], object]:
    def change(rows: list[Row]) -> None:
        rows[row][column] = value

    return change


def all_of_b(change: Callable[[Row], object]) -> Callable[[list[Row]], object]:
    def every(rows: list[Row]) -> None:
        for row in rows[3:6]:
            change(row)

    return every


X = COLUMNS[3]
FAULTS: dict[str, tuple[Callable[[list[Row]], object], str]] = {
    "nan first": (put(X, [np.nan, 1.0, 2.0], row=3), "coordinate that is not finite"),
    "nan last": (put(X, [1.0, 2.0, np.nan], row=5), "coordinate that is not finite"),
    "null": (put(X, [1.0, None, 2.0]), "coordinate that is not finite"),
    "infinite": (put(COLUMNS[4], [1.0, np.inf, 2.0]), "coordinate that is not finite"),
    "empty x and y": (lambda rows: rows[4].update({X: [], COLUMNS[4]: []}), "empty trajectory"),
    "no list": (put(X, None), "empty trajectory"),
    "empty throughout": (all_of_b(lambda row: row.update({X: [], COLUMNS[4]: []})), "empty trajectory"),
    "more x than y": (put(X, [1.0] * 4), "more x than y"),
    "ragged": (lambda rows: rows[4].update({X: [1.0], COLUMNS[4]: [1.0]}), "modes of different lengths"),
    "shorter": (all_of_b(lambda row: row.update({X: [1.0], COLUMNS[4]: [1.0]})), "modes and steps"),
    "fewer modes": (
        lambda rows: (rows.pop(5), rows[3].update(probability=0.6), rows[4].update(probability=0.4))[0],
        "modes and steps",
    ),
    "negative": (
        lambda rows: (rows[3].update(probability=-0.5), rows[4].update(probability=1.3))[0],
        "negative probability",
    ),
    "probability nan": (put("probability", np.nan), "probability that is not finite"),
    "probability null": (put("probability", None), "probability that is not finite"),
    "probability infinite": (put("probability", np.inf), "probability that is not finite"),
    "sum": (put("probability", 0.25), "sum to 0.95, not to 1"),
    "zero": (all_of_b(lambda row: row.update(probability=0.0)), "sum to 0, not to 1"),
    "twice": (lambda rows: rows.extend(rows[3:6]), "in the file 2 times"),
    "twice in a row": (lambda rows: rows.__setitem__(slice(3, 3), rows[3:6]), "in the file 2 times"),
}


class TestFaults:
    @pytest.mark.parametrize("fault", FAULTS)
    def test_is_told_by_scenario_and_track_and_costs_that_track_alone(
        self, tmp_path: Path, fault: str
    ) -> None:
        rows = rows_of(("s", "0"), ("s", "1"), ("s", "2"), ("t", "1"))
        change, text = FAULTS[fault]
        sound = [row.copy() for row in rows]
        change(rows)
        file = read_predictions(write_rows(tmp_path / "p.parquet", rows))
        assert file.problems.keys() == {"s"} and file.scenario_ids == ["s", "t"]
        assert all(told.startswith("track 1: ") for told in file.problems["s"])
        assert any(text in told for told in file.problems["s"]), file.problems
        assert file.track_ids("s") == ["0", "2"] and file.track_ids("t") == ["1"]
        assert file.joint == {"s": True, "t": True}, "what is left is sound"
        found = file.forecast(scene("s", 3))
        for track, first in (("0", 0), ("2", 6)):
            expected = [list(zip(row[X], row[COLUMNS[4]], strict=True)) for row in sound[first : first + 3]]
            assert found.trajectory[found.track_id.tolist().index(track)].tolist() == [
                [list(point) for point in mode] for mode in expected
            ]

    def test_of_two_shapes_the_more_frequent_one_stays(self, tmp_path: Path) -> None:
        rows = rows_of(("s", "0"), p=[1.0]) + rows_of(("s", "1"), ("s", "2"))
        file = read_predictions(write_rows(tmp_path / "p.parquet", rows))
        assert file.track_ids("s") == ["1", "2"] and list(file.problems) == ["s"]

    def test_a_scenario_without_a_usable_track_is_still_told_of(self, tmp_path: Path) -> None:
        path = write_rows(tmp_path / "p.parquet", rows_of(("s", "0"), p=[0.5]))
        file = read_predictions(path)
        assert file.problems["s"] and file.scenario_ids == ["s"] and file.steps("s") == 0
        found = file.forecast(scene("s", 1))
        assert found.trajectory.shape == (0, 1, 60, 2)
        assert file.missing(scene("s", 1)) == ["focal track 0 is missing"]

    def test_without_a_row(self, tmp_path: Path) -> None:
        assert write_predictions(tmp_path / "p.parquet", []) == (0, 0)
        file = read_predictions(tmp_path / "p.parquet")
        assert len(file) == 0 and not file.problems and not file.note


class TestBadFiles:
    @pytest.mark.parametrize("kind", ["absent", "folder", "empty", "text", "cut", "scrambled"])
    def test_are_named(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "bad.parquet"
        write_predictions(path, [made_up("s", 2)])
        content = path.read_bytes()
        scrambled = content[:4] + bytes(200) + content[204:]
        other = {
            "empty": b"",
            "text": b"scenario_id,track_id\n",
            "cut": content[:-99],
            "scrambled": scrambled,
        }
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind != "absent":
            path.write_bytes(other[kind])
        with pytest.raises(DataError, match=r"bad\.parquet"):
            load_predictor(path)

    @pytest.mark.parametrize("column", COLUMNS)
    def test_a_column_that_lacks_or_is_of_another_type(self, tmp_path: Path, column: str) -> None:
        table, path = pa.Table.from_pylist(rows_of(("s", "0"))), tmp_path / "bad.parquet"
        pq.write_table(table.drop_columns([column]), path)
        with pytest.raises(DataError, match=rf"bad\.parquet.*no column {column}") as found:
            read_predictions(path)
        assert found.value.field == column
        i = table.column_names.index(column)
        pq.write_table(table.set_column(i, column, pa.array([[["a"]]] * len(table))), path)
        with pytest.raises(DataError, match=rf"bad\.parquet, field '{column}': cannot be read"):
            read_predictions(path)

    @pytest.mark.parametrize("column", ["scenario_id", "track_id"])
    def test_a_row_without_a_name(self, tmp_path: Path, column: str) -> None:
        rows = rows_of(("s", "0"))
        rows[1][column] = None
        with pytest.raises(DataError, match="missing in 1 rows") as found:
            read_predictions(write_rows(tmp_path / "p.parquet", rows))
        assert found.value.field == column


class TestWriting:
    def test_what_fails_on_the_way_leaves_the_old_file(self, tmp_path: Path) -> None:
        def failing() -> Iterator[Forecast]:
            yield from (made_up(f"s{i}", 1) for i in range(300))
            raise KeyboardInterrupt

        path = tmp_path / "deeper" / "p.parquet"
        with pytest.raises(KeyboardInterrupt):
            write_predictions(path, failing())
        assert list(path.parent.iterdir()) == []
        write_predictions(path, [made_up("old", 1)])
        with pytest.raises(KeyboardInterrupt):
            write_predictions(path, failing())
        assert list(path.parent.iterdir()) == [path] and read_predictions(path).scenario_ids == ["old"]

    def test_marginal_probabilities_have_no_place(self, tmp_path: Path) -> None:
        marginal = made_up("s", 3, shared=False)
        with pytest.raises(
            DataError, match=r"scenario s have different prob.*joint futures.* focal track alone"
        ):
            write_predictions(tmp_path / "p.parquet", [marginal])
        write_predictions(tmp_path / "p.parquet", [select_tracks(marginal, np.array(["1"]))])
        found = read_predictions(tmp_path / "p.parquet").forecast(scene("s", 3))
        assert_same(found, select_tracks(marginal, np.array(["1"])))

    def test_a_scenario_twice_or_a_forecast_that_is_not_valid_is_refused(self, tmp_path: Path) -> None:
        one = made_up("s", 2)
        with pytest.raises(DataError, match="scenario s was forecast twice"):
            write_predictions(tmp_path / "p.parquet", [one, one])
        with pytest.raises(DataError, match=r"p\.parquet.*not finite"):
            write_predictions(tmp_path / "p.parquet", [replace(one, trajectory=one.trajectory * np.nan)])
        assert list(tmp_path.iterdir()) == []

    def test_sums_are_as_exact_as_av2_wants_them(self, tmp_path: Path) -> None:
        one = made_up("s", 2)
        write_predictions(tmp_path / "p.parquet", [replace(one, probability=one.probability * 1.0009)])
        ChallengeSubmission.from_parquet(tmp_path / "p.parquet")


class TestCompleteness:
    def test_says_what_lacks_and_what_is_strange(self, tmp_path: Path) -> None:
        one = replace(made_up("s", 4, steps=30), track_id=np.array(["1", "9", "AV", "3"]))
        write_predictions(tmp_path / "p.parquet", [one])
        file = read_predictions(tmp_path / "p.parquet")
        valid = np.ones((6, 110), bool)
        valid[5, 49] = False
        scored, unscored = TrackCategory.SCORED, TrackCategory.UNSCORED
        scenario = scene("s", 6, valid=valid, category=[3, scored, scored, unscored, unscored, scored])
        assert file.missing(scenario) == [
            "focal track 0 is missing",
            "scored track 2 is missing",
            "track 9 is not in the scenario",
            "track AV is not in the scenario",
            "30 steps are predicted instead of 60",
        ]
        assert file.missing(scene("t", 2)) == ["the scenario is not in the file"]

    def test_a_single_agent_file_needs_the_focal_track_alone(self, tmp_path: Path) -> None:
        write_predictions(tmp_path / "p.parquet", [made_up("s", 1), made_up("t", 1)])
        file = read_predictions(tmp_path / "p.parquet")
        assert file.single and file.missing(scene("s", 3)) == []

    def test_tracks_that_were_never_observed_have_no_forecast(self, tmp_path: Path) -> None:
        write_predictions(tmp_path / "p.parquet", [made_up("s", 3)])
        valid = np.ones((3, 110), bool)
        valid[1, :50] = False
        found = read_predictions(tmp_path / "p.parquet").forecast(scene("s", 3, valid=valid))
        assert found.track_id.tolist() == ["0", "2"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with joint modes."""
    model, path = small_model(), tmp_path_factory.mktemp("model") / "joint.ckpt"
    content = {"state_dict": model.state_dict()}
    model.on_save_checkpoint(content)
    torch.save(content, path)
    return path


class Selected:
    """What ``predict`` is to write, straight from a baseline or a model."""

    name = "selected"
    training: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, source: str | Path, agents: Agents, joint: bool) -> None:
        self.source, self.agents, self.joint = source, agents, joint

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        found = zip(self.every(scenarios), scenarios, strict=True)
        return [select_tracks(one, tracks_to_predict(scenario, self.agents)) for one, scenario in found]

    def every(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        if self.source in BASELINES:
            return [BASELINES[str(self.source)](one) for one in scenarios]
        model = Forecaster.load(self.source)
        return model.forecast(build_batch(scenarios, model.scene), joint=self.joint)


class TestPredictor:
    @pytest.mark.parametrize(
        ("name", "agents", "joint"),
        [
            ("constant_velocity", "scored", True),
            ("lane_following", "focal", False),
            ("model", "focal", False),
            ("model", "scored", True),
        ],
    )
    def test_a_file_scores_as_what_it_was_written_from(
        self, prepared: Path, tmp_path: Path, checkpoint: Path, name: str, agents: Agents, joint: bool
    ) -> None:
        store, out = ScenarioStore(prepared, "val"), tmp_path / "p.parquet"
        source = checkpoint if name == "model" else name
        written = predict(source, out, prepared, "val", agents, joint, batch_size=2, progress=False)
        wanted = [len(tracks_to_predict(scenario, agents)) for scenario in store]
        assert written == (len(store), sum(wanted))
        file = load_predictor(out)
        assert isinstance(file, FilePredictor) and file.name == "p.parquet" and file.training == {}
        assert all(file.file.joint.values()) and not file.file.note
        found = evaluate(file, store, batch_size=3, progress=False)
        expected = evaluate(Selected(source, agents, joint), store, batch_size=2, progress=False)
        assert found.missing == expected.missing and found.metrics.keys() == expected.metrics.keys()
        for group, values in expected.metrics.items():
            assert found.metrics[group] == pytest.approx(values, abs=1e-6)
        assert found.worlds == pytest.approx(expected.worlds, abs=1e-6)
        assert file.problems == {}

    def test_what_lacks_is_missing_and_told(self, prepared: Path, tmp_path: Path) -> None:
        store = ScenarioStore(prepared, "val")
        kept, short, *_ = scenarios = list(store)
        forecasts = [constant_velocity(kept), constant_velocity(short, 30), made_up("unknown", 2)]
        write_predictions(tmp_path / "p.parquet", forecasts)
        predictor = load_predictor(tmp_path / "p.parquet")
        assert isinstance(predictor, FilePredictor)
        found = evaluate(predictor, store, batch_size=2, progress=False)
        whole = evaluate(load_predictor("constant_velocity"), store, progress=False)
        assert found.metrics["focal"]["count"] == 1 and found.scenarios == len(store)
        assert found.metrics["all"]["count"] + found.missing["all"] == whole.metrics["all"]["count"]
        told = {one.scenario_id: ["the scenario is not in the file"] for one in scenarios[2:]}
        told |= {short.scenario_id: ["30 steps are predicted instead of 60"]}
        assert predictor.problems == told
        assert predictor.foreign(store.scenario_ids) == {"unknown": ["is not in this split"]}


class TestPredict:
    def test_scenarios_without_a_future_too(self, prepared: Path, tmp_path: Path, checkpoint: Path) -> None:
        for source in ("lane_following", checkpoint):
            written = predict(source, tmp_path / "p.parquet", prepared, split="test", progress=False)
            store = ScenarioStore(prepared, "test")
            assert not any(one.has_future for one in store) and written == (len(store), len(store))
            submission = ChallengeSubmission.from_parquet(tmp_path / "p.parquet").predictions
            assert {s: list(tracks) for s, (_, tracks) in submission.items()} == {
                one.scenario_id: [one.focal_id] for one in store
            }

    def test_limit(self, prepared: Path, tmp_path: Path) -> None:
        predict("constant_velocity", tmp_path / "p.parquet", prepared, limit=2, progress=False)
        ids = ScenarioStore(prepared, "val").scenario_ids
        assert read_predictions(tmp_path / "p.parquet").scenario_ids == ids[:2]

    def test_needs_joint_futures_for_several_agents(
        self,
        prepared: Path,
        tmp_path: Path,
    ) -> None:
        model = small_model(
            decoder={"class_path": "trajpred.model.ModeDecoder", "init_args": {"dim": 32, "heads": 4}}
        )
        content = {"state_dict": model.state_dict()}
        model.on_save_checkpoint(content)
        torch.save(content, tmp_path / "marginal.ckpt")
        out = tmp_path / "p.parquet"
        with pytest.raises(DataError, match="need joint futures"):
            predict(tmp_path / "marginal.ckpt", out, prepared, agents="scored")
        with pytest.raises(DataError, match=r"marginal\.ckpt: this model has no joint modes"):
            predict(tmp_path / "marginal.ckpt", out, prepared, agents="scored", joint=True)
        with pytest.raises(DataError, match="no joint futures"):
            predict("lane_following", out, prepared, agents="scored", joint=True, progress=False)
        assert not out.exists()

    @pytest.mark.parametrize(
        "wrong", [{"out": Path("p.csv")}, {"batch_size": 0}, {"limit": 0}, {"split": "nothing"}]
    )
    def test_arguments_that_make_no_sense(
        self, prepared: Path, tmp_path: Path, wrong: dict[str, Any]
    ) -> None:
        options: dict[str, Any] = {"out": tmp_path / "p.parquet", "store": prepared, **wrong}
        with pytest.raises(DataError):
            predict("constant_velocity", **options)
