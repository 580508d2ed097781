"""Replays stream every step of a scenario once, and their statistics add up; the command and its film."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import run
from trajpred.cli.info import describe
from trajpred.cli.replay import summary
from trajpred.data.scenario import Scenario
from trajpred.integrations.replay import Replay, ReplayFilm, ReplayFrame, Update, replay, save_replay
from trajpred.onboard import Detections, OnboardForecast, OnboardForecaster, StreamingForecaster

NATIVE = "0a1e6f0a-1817-4a98-b02e-db8c9327d151"


@pytest.fixture(scope="module")
def native(sample_scenarios: Sequence[Scenario]) -> Scenario:
    return next(one for one in sample_scenarios if one.scenario_id == NATIVE)


@pytest.fixture(scope="module")
def updates(bundle: Path, native: Scenario) -> list[Update]:
    """A replay with an empty lane cache."""
    return list(replay(OnboardForecaster(bundle, threads=1), native))


def test_every_step_is_streamed_once(updates: list[Update], native: Scenario) -> None:
    """Each road user has futures or a reason, and lanes are encoded once."""
    assert [one.step for one in updates] == list(range(native.num_steps))
    assert np.diff([one.seconds for one in updates]) == pytest.approx(0.1, abs=0.01)
    for one in updates:
        detected = set(native.tracks.track_id[native.tracks.valid[:, one.step]].tolist())
        assert detected <= set(one.forecast.track_id.tolist()) | set(one.forecast.not_predicted)
        assert one.forecast.validate() is one.forecast
        assert not one.forecast.warnings
        assert 0 < sum(one.forecast.stage_ms.values()) < one.latency_ms
    assert 10 < updates[0].encoded > sum(one.encoded for one in updates[1:])


def test_a_realtime_replay_takes_as_long_as_the_scenario_until_its_last_detection(
    shared_forecaster: OnboardForecaster, native: Scenario
) -> None:
    valid = native.tracks.valid & (np.arange(native.num_steps) < 4)
    short = replace(native, tracks=replace(native.tracks, valid=valid))
    start = time.perf_counter()
    streamed = list(replay(shared_forecaster, short, realtime=True))
    assert time.perf_counter() - start >= streamed[-1].seconds == pytest.approx(0.3, abs=0.02)
    assert [one.step for one in streamed] == list(range(4))


def made(latency_ms: float, stages: dict[str, float], warnings: tuple[str, ...] = ()) -> Update:
    """Make an update of two agents with the given times."""
    zeros, names = np.zeros((2, 1, 1)), np.array(["0", "1"])
    forecast = OnboardForecast(
        "", names, np.zeros((2, 1, 1, 2)), np.ones((2, 1)), zeros, zeros,
        not_predicted={"x": "not seen for 1.5 s"}, warnings=warnings,
        stage_ms=dict.fromkeys(OnboardForecaster.STAGES, 0.0) | stages,
    )  # fmt: skip
    return Update(0, 0.0, forecast, latency_ms, 3)


def test_statistics() -> None:
    result = Replay()
    result.add(made(100.0, {"lanes": 40.0, "encoder": 20.0, "decoder": 30.0}, warnings=("odd",)))
    for latency in range(1, 101):
        result.add(made(float(latency), {}))
    assert result.encoded == 303
    assert result.missed == [1] * 101
    assert result.percentiles_ms() == pytest.approx({"p50": 50.5, "p95": 95.05, "p99": 99.01})
    whole, shares = 100 + sum(range(1, 101)), result.shares()
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["encoder"] == pytest.approx(20 / whole)
    assert shares["decoder"] == pytest.approx(30 / whole)
    assert shares["pre-processing"] == pytest.approx((40 + 10 + sum(range(1, 101))) / whole)
    assert result.warnings.total() == 1
    rows = summary(result)
    assert rows["latency p50, p95, p99"] == "50.5, 95.0, 99.0 ms"
    assert "share of decoder" in rows
    assert rows["first update (map, surrounding lanes)"] == "100.0 ms"
    assert rows["agents predicted per update"] == "2 to 2"


def test_command_reports_the_latency(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("replay", "--bundle", bundle, "--scenario", NATIVE, "--threads", 1) == 0
    printed = capsys.readouterr()
    assert "latency p50, p95, p99" in printed.out
    assert f"{NATIVE}: 100%" in printed.err


def test_a_bundle_that_always_fails_ends_with_1(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*scene: object, **options: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(OnboardForecaster, "forecast", fail)
    assert run("replay", "--bundle", bundle) == 1


def test_film_draws_the_forecast_of_each_step(
    updates: list[Update], native: Scenario, tmp_path: Path
) -> None:
    def with_futures(frame: ReplayFrame, update: Update) -> ReplayFrame:
        rows = update.forecast.rows(frame.forecast.track_id)
        return frame._replace(forecast=replace(frame.forecast, trajectory=update.forecast.trajectory[rows]))

    frames = [ReplayFrame.of(one, native) for one in updates]
    film = ReplayFilm(native, frames)
    frozen = ReplayFilm(native, [with_futures(one, updates[49]) for one in frames])
    assert [frame.step for frame in film.frames[:110]] == list(range(110))
    assert len(film) == 125
    assert ReplayFilm(native, frames, step_s=0.05).true_steps == film.true_steps / 2 == 30
    assert (film[60] != frozen[60]).any()
    assert (film[49] == frozen[49]).all()
    save_replay(native, frames[48:51], tmp_path / "deep" / "replay.gif")
    with Image.open(tmp_path / "deep" / "replay.gif") as pictures:
        assert pictures.n_frames == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bundle", "nowhere"], "make one with trajpred export --out nowhere"),
        (["--bundle", "BUNDLE", "--scenario", "0012"], "0012"),
        (["--bundle", "BUNDLE", "--out", "film.avi"], ".gif, .mp4 or .jsonl"),
        (["--bundle", "folder"], "not a bundle"),
    ],
)
def test_invalid_options_give_one_line(
    bundle: Path,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)  # the checkout may be read-only
    assert run("replay", *(str(bundle) if option == "BUNDLE" else option for option in options)) == 2
    text = capsys.readouterr().err
    assert message in text
    assert "Traceback" not in text
    assert len(text.splitlines()) == 1


def test_a_bundle_and_its_forecasters_say_what_they_are(bundle: Path) -> None:
    title, rows = describe(str(bundle))
    assert title == f"Onboard bundle {bundle}"
    assert rows["precision"] == "fp32"
    assert rows["steps"] == "50 + 60 of 0.1 s"
    assert rows["agents and lanes"] == "any number"
    forecaster = OnboardForecaster(bundle)
    opened = f"Bundle({bundle}: small, 6 modes of 60 steps from 50, fp32)"
    assert repr(forecaster) == f"OnboardForecaster({opened})"
    stream = StreamingForecaster(forecaster)
    assert repr(stream).startswith(f"StreamingForecaster({forecaster!r}, LaneMap(0 lane segments")
    forecast = stream.update(0.0, Detections(["a"], [[0.0, 0.0]]))
    assert repr(forecast).startswith("OnboardForecast(")
    assert "modes of 60 steps" in repr(forecast)
