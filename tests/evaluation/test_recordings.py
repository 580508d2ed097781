"""Intervals by recording and by blocks of time cover the truth where windows overlap. Scenes are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import error_of, rejects, run
from trajpred.data.scenario import Scenario
from trajpred.evaluation import read_results
from trajpred.evaluation.score import units
from trajpred.evaluation.table import _recordings, compare, ratios, student

#: Seconds of a window; they start every second.
WINDOW_S = 11.0


@pytest.mark.parametrize(("recordings", "minutes"), [(1, 3), (2, 2), (3, 2), (1, 20), (3, 10), (30, 1)])
def test_intervals_of_overlapping_windows_cover_the_truth(recordings: int, minutes: int) -> None:
    """The value of a window is the mean of independent noise over its seconds: the true mean is 0."""
    random = np.random.default_rng(0)
    begin = np.arange(minutes * 60 - int(WINDOW_S))
    names = [str(number) for number in range(recordings) for _ in begin]
    of_windows = units(names, np.tile(begin, recordings).astype(float), WINDOW_S)
    code, number = _recordings(pa.table({"recording": of_windows}))
    is_in = np.eye(number)[code]
    covered: list[bool] = []
    for _ in range(4):
        noise = random.standard_normal((1000, recordings, minutes * 60))
        sums = np.cumsum(np.pad(noise, ((0, 0), (0, 0), (1, 0))), axis=2)
        values = (sums[..., begin + int(WINDOW_S)] - sums[..., begin]).reshape(1000, -1) / WINDOW_S
        weight = np.broadcast_to(is_in.sum(axis=0)[:, None], (number, 1000))
        covered += [interval.low <= 0 <= interval.high for interval in ratios((values @ is_in).T, weight)]
    # Of 4,000 draws at 95 %, the share has a standard deviation of 0.34 %.
    assert 0.93 <= np.mean(covered) <= 0.963


def test_few_recordings_are_divided_into_blocks_of_time() -> None:
    found = units(["a"] * 4 + ["b"] * 2, np.array([0, 32, 33, 70, 5, 6.0]), 11.0)
    assert found == ["a 0", "a 0", "a 0", "a 1", "b 0", "b 0"]
    many = [str(number // 2) for number in range(20)]
    assert units(many, np.arange(20.0), 11.0) == many
    alone = ["a", "b"]
    assert units(alone, np.zeros(2), 11.0) == alone


def test_a_mean_has_no_interval_of_less_than_two_recordings_with_agents() -> None:
    total = np.array([[1.0, 0.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    weight = np.array([[1.0, 0.0, 4.0], [1.0, 2.0, 5.0], [0.0, 0.0, 3.0]])
    two, one, never = ratios(total, weight)
    assert two.low < two.mean == 1.5 < two.high
    assert one.mean == 1.5
    assert never.mean == 0
    assert np.isnan([one.low, one.high]).all()


def test_quantiles_of_students_law() -> None:
    from scipy.stats import t

    for freedom in (2, 3, 5, 10, 100):
        assert student(freedom) == pytest.approx(t.ppf(0.975, freedom), rel=0.05 if freedom == 2 else 0.02)


def test_a_digest_is_of_the_last_observed_states(sample_scenarios: list[Scenario]) -> None:
    scenario = sample_scenarios[0]
    moved = replace(scenario.tracks, position=scenario.tracks.position + 0.01)
    assert replace(scenario, tracks=moved).digest != scenario.digest
    assert replace(scenario, timestamps_ns=scenario.timestamps_ns + 1_000_000).digest != scenario.digest
    assert replace(scenario, scenario_id="other").digest != scenario.digest
    assert scenario.window(future=scenario.num_future - 5).digest == scenario.digest


def test_other_scenes_of_the_same_names_are_neither_scored_nor_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One table in metres and in feet."""
    (tmp_path / "raw" / "val").mkdir(parents=True)
    for number in range(3):
        rows = [f"1,{step / 10},{step},{number}" for step in range(150)]
        (tmp_path / "raw" / "val" / f"{number}.csv").write_text("\n".join(["id,t,x,y", *rows]))
    results = []
    for unit in ("m", "ft"):
        store = tmp_path / unit
        columns = ["--columns", "track=id", "time=t:s", f"x=x:{unit}", f"y=y:{unit}"]
        command = ["prepare", "--source", "table", "--raw", tmp_path / "raw", "--store", store]
        assert run(*command, *columns, "--workers", 1) == 0
        scored = ["--store", store, "--workers", 1]
        out = tmp_path / f"{unit}.parquet"
        assert run("predict", "--checkpoint", "constant_velocity", *scored, "--out", out) == 0
        assert run("evaluate", "--checkpoint", out, *scored) == 0
        results.append(tmp_path / f"{unit}.json")
        assert run("evaluate", "--checkpoint", "constant_velocity", *scored, "--out", results[-1]) == 0
    error = error_of(capsys, "evaluate", "--checkpoint", tmp_path / "m.parquet", *scored)
    assert "was predicted for other scenes: 0_00000 and" in error
    error = error_of(capsys, "compare", "--results", *results)
    assert "were scored on different scenes: 0_00000 and" in error
    rejects("different scenes", lambda: compare(read_results(results[0]), read_results(results[1])))
