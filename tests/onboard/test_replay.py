"""Replays: what the stream says at every step, what is counted, and the tool that shows it."""

from __future__ import annotations

import io
import itertools
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from tests.conftest import run
from trajpred.benchmark.timing import own_process
from trajpred.cli.onboard import BAR, ReplayReport, bar, summary
from trajpred.errors import DataError
from trajpred.onboard.forecaster import STAGES, OnboardForecaster
from trajpred.onboard.replay import Replay, Update, detections, drive_on_repeat, replay
from trajpred.onboard.stream import OnboardForecast, StreamingForecaster
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.scenario_batch import ScenarioBatch
from trajpred.viz.replay_film import ReplayFilm, Shown

NATIVE = "0a1e6f0a-1817-4a98-b02e-db8c9327d151"


@pytest.fixture(scope="module")
def native(sample_scenarios: Sequence[Scenario]) -> Scenario:
    return next(one for one in sample_scenarios if one.scenario_id == NATIVE)


@pytest.fixture(scope="module")
def updates(bundle: Path, native: Scenario) -> list[Update]:
    """One replay by a runtime that has seen nothing before."""
    return list(replay(OnboardForecaster(bundle, threads=1), native))


def first(scenario: Scenario, steps: int) -> Scenario:
    """Its first ``steps`` steps."""
    tracks = scenario.tracks
    names = ("valid", "position", "heading", "velocity")
    cut = replace(tracks, **{name: getattr(tracks, name)[:, :steps] for name in names})
    return replace(scenario, tracks=cut, timestamps_ns=scenario.timestamps_ns[:steps], num_observed=1)


def test_every_step_is_shown_once_and_in_time(updates: list[Update], native: Scenario) -> None:
    assert [one.step for one in updates] == list(range(native.num_steps))
    assert np.diff([one.seconds for one in updates]) == pytest.approx(0.1, abs=0.01)
    assert not [told for one in updates for told in one.forecast.warnings]
    for one in updates:
        seen = set(native.tracks.track_id[native.tracks.valid[:, one.step]].tolist())
        assert seen <= set(one.forecast.track_id.tolist()) | set(one.forecast.not_predicted)
        assert one.forecast.validate() is one.forecast


def test_the_last_observed_step_says_what_the_offline_way_says(
    forecaster: OnboardForecaster, updates: list[Update], native: Scenario
) -> None:
    told, offline = (
        updates[native.num_observed - 1].forecast,
        forecaster.forecast(ScenarioBatch.of([native])),
    )
    assert set(told.track_id.tolist()) == set(offline.track_id.tolist())
    rows = told.rows(offline.track_id)
    assert np.abs(told.trajectory[rows] - offline.trajectory).max() < 2e-3


def test_nothing_of_the_future_is_told(forecaster: OnboardForecaster, native: Scenario) -> None:
    whole, part = (list(itertools.islice(replay(forecaster, one), 8)) for one in (native, first(native, 8)))
    for one, other in zip(whole, part, strict=True):
        assert np.array_equal(one.forecast.trajectory, other.forecast.trajectory)


def test_lanes_are_encoded_once(updates: list[Update]) -> None:
    assert updates[0].encoded > 10
    assert sum(one.encoded for one in updates[1:]) < updates[0].encoded


def test_it_ends_when_nobody_is_seen_any_more(forecaster: OnboardForecaster, native: Scenario) -> None:
    valid = native.tracks.valid & (np.arange(native.num_steps) < 7)
    short = replace(native, tracks=replace(native.tracks, valid=valid))
    assert [one.step for one in replay(forecaster, short)] == list(range(7))


def test_at_true_speed(forecaster: OnboardForecaster, native: Scenario) -> None:
    start = time.perf_counter()
    *_, last = replay(forecaster, first(native, 6), realtime=True)
    spent = time.perf_counter() - start
    assert spent >= last.seconds == pytest.approx(0.5, abs=0.02)


def test_detections_are_the_states_of_that_step(native: Scenario) -> None:
    seen, tracks = detections(native, 60), native.tracks
    for i, name in enumerate(seen.track_id):
        row = tracks.index(name)
        assert tracks.valid[row, 60] and seen.position[i].tolist() == tracks.position[row, 60].tolist()
        assert seen.object_type[i] == OBJECT_TYPES[tracks.object_type[row]]
    assert len(seen.track_id) == tracks.valid[:, 60].sum()


def test_laps_go_on_without_a_jump(forecaster: OnboardForecaster, native: Scenario) -> None:
    short = replace(native, num_observed=5)
    stream = StreamingForecaster(forecaster, native.map)
    told = [stream.update(*each) for each in itertools.islice(drive_on_repeat(short), 12)]
    assert not [warning for one in told for warning in one.warnings]
    # Two drive_on_repeat ago is too long; those of the lap before are still remembered.
    assert {name.rsplit(" ")[-1] for name in told[-1].track_id.tolist()} == {"0", "1", "2"}


def made(
    latency_ms: float, spent: dict[str, float], agents: int = 2, warnings: tuple[str, ...] = ()
) -> Update:
    """An update of which only what is counted matters."""
    nobody = np.zeros((agents, 1, 1))
    names = np.array([str(i) for i in range(agents)])
    forecast = OnboardForecast(
        "", names, np.zeros((agents, 1, 1, 2)), np.ones((agents, 1)), nobody, nobody,
        not_predicted={"x": "not seen for 1.5 s"}, warnings=warnings,
        stage_ms=dict.fromkeys(STAGES, 0.0) | spent,
    )  # fmt: skip
    return Update(0, 0.0, forecast, latency_ms, 3)


def test_what_updates_come_to() -> None:
    result = Replay()
    result.add(made(100.0, {"lanes": 40.0, "encoder": 20.0, "decoder": 30.0}, warnings=("odd",)))
    for latency in range(1, 101):
        result.add(made(float(latency), {}))
    assert result.cold_ms == 100.0 and result.encoded == 303 and result.missed == [1] * 101
    assert result.percentiles_ms() == pytest.approx({"p50": 50.5, "p95": 95.05, "p99": 99.01})
    whole = 100 + sum(range(1, 101))
    shares = result.shares()
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["encoder"] == pytest.approx(20 / whole) and shares["decoder"] == pytest.approx(30 / whole)
    assert shares["pre-processing"] == pytest.approx((40 + 10 + sum(range(1, 101))) / whole)
    assert result.warnings.total() == 1


def test_the_stages_are_the_latency(updates: list[Update]) -> None:
    result = Replay()
    for one in updates:
        result.add(one)
        assert 0 < sum(one.forecast.stage_ms.values()) < one.latency_ms
    assert set(result.shares()) == {"pre-processing", "encoder", "decoder", "output"}


def test_stages_that_were_left_out_took_no_time(forecaster: OnboardForecaster, native: Scenario) -> None:
    stream = StreamingForecaster(forecaster, native.map)
    assert stream.update(0.0, detections(native, 0)).stage_ms["decoder"] > 0
    none = stream.update(0.1, detections(native, 1), targets=[])
    assert none.stage_ms["decoder"] == 0 < none.stage_ms["encoder"]


@pytest.mark.parametrize(("share", "filled", "over"), [(0.0, 0, False), (0.5, 12, False), (1.7, 24, True)])
def test_the_bar(share: float, filled: int, over: bool) -> None:
    drawn = bar(share)
    assert drawn.count("█") == filled and len(drawn.rstrip("!")) == BAR and drawn.endswith("!") == over


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_a_line_that_changes_and_a_pipe_one_a_second(terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, highlight=False)
    with ReplayReport(0.1, console) as report:
        for step in range(25):
            warnings = ("[odd] detections",) if step == 13 else ()
            report.add(made(20.0, {}, warnings=warnings)._replace(step=step, seconds=step / 10))
    said = out.getvalue()
    assert said.count("warning: [odd] detections") == 1
    assert ("█" in said) == terminal
    assert said.count("agents predicted") >= 25 if terminal else said.count("agents predicted") == 3
    assert ("2.4 s" in said) == terminal


def test_the_table() -> None:
    result, out = Replay(), io.StringIO()
    for latency in (90.0, 20.0, 30.0):
        result.add(made(latency, {"decoder": 10.0}))
    Console(file=out, width=100).print(summary(result, 123.4))
    said = out.getvalue()
    for part in ("25.0, 29.5, 29.9 ms", "90.0 ms", "2 to 2", "share of decoder", "21%", "123 MB"):
        assert part in said, part
    assert "warnings" not in said


#: In a process of its own: this one may have as much to give from what other tests have freed.
GROWN = """
import numpy as np
from trajpred.onboard.replay import resident_mb
before = resident_mb()
more = np.ones(8_000_000)
print([resident_mb() - before])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell")
def test_memory_of_this_process() -> None:
    [grown] = own_process(GROWN)
    assert 50 < grown < 80


def test_a_film_shows_each_step_what_was_said_then(updates: list[Update], native: Scenario) -> None:
    shown = [Shown.of(one, native) for one in updates]
    film = ReplayFilm(native, shown)
    assert [moment.step for moment in film.moments[:110]] == list(range(110)) and len(film) == 125
    assert shown[49].told.startswith(f"{len(updates[49].forecast.track_id)} road users predicted")
    focal = updates[49].forecast.rows(np.array([native.focal_id]))
    path = updates[49].forecast.trajectory[focal]
    assert np.array_equal(
        shown[49].forecast.trajectory[[native.focal_id] == shown[49].forecast.track_id], path
    )
    still = [replace_forecast(one, updates[49]) for one in shown]
    other = ReplayFilm(native, still)
    assert (film[60] != other[60]).any(), "another forecast is another picture"
    assert (film[49] == other[49]).all(), "the same forecast the same"
    with pytest.raises(DataError, match="one update at least"):
        ReplayFilm(native, [])


def replace_forecast(shown: Shown, update: Update) -> Shown:
    """``shown`` with the futures of another update."""
    path = update.forecast.trajectory[update.forecast.rows(shown.forecast.track_id)]
    return shown._replace(forecast=replace(shown.forecast, trajectory=path))


def test_the_tool(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    film = tmp_path / "deep" / "replay.gif"
    given = ["--bundle", bundle, "--scenario", NATIVE, "--threads", 1]
    assert run("replay", *given, "--out", film, "--repeat", 2) == 0
    said = capsys.readouterr().out
    assert said.count("agents predicted,") == 22 and "latency p50, p95, p99" in said and NATIVE in said
    with Image.open(film) as pictures:
        assert pictures.n_frames > 50
    assert film.stat().st_size < 3e6


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--bundle", "nowhere"], "make one with python tools/export.py --out nowhere"),
        (["--bundle", "BUNDLE", "--scenario", "0012"], "no split holds scenario '0012'"),
        (["--bundle", "BUNDLE", "--out", "film.avi"], "must end in .gif or .mp4"),
        (["--bundle", "BUNDLE", "--repeat", "0"], "must be positive"),
        (["--bundle", "LICENSE"], "no bundle"),
    ],
)
def test_bad_arguments_get_one_sentence(
    bundle: Path, args: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("replay", *(str(bundle) if arg == "BUNDLE" else arg for arg in args)) == 2
    said = capsys.readouterr().err
    assert says in said and "Traceback" not in said and len(said.splitlines()) == 1
