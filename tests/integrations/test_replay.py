"""Replays of scenarios and recorded drives stream each step once; the command, its film and statistics."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rosbags.rosbag2 import StoragePlugin

from tests.conftest import error_of, output_of, run
from tests.integrations.drives import TOPIC, as_bag, identity, read_back, tracked, write_drive, write_messages
from tests.scenes import hidden
from trajpred.cli.info import describe
from trajpred.cli.replay import summary
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.integrations.maps import write_map
from trajpred.integrations.mcap import OBJECTS, ROAD, SCENE
from trajpred.integrations.recorded_drive import RecordedDrive
from trajpred.integrations.replay import (
    Replay,
    ReplayFilm,
    ReplayFrame,
    Update,
    detections,
    drive_line,
    replay,
    save_replay,
)
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
    short = hidden(native, np.s_[:, 4:])
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


def test_film_draws_each_step_s_forecast(updates: list[Update], native: Scenario, tmp_path: Path) -> None:
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


def test_a_bundle_is_described(bundle: Path) -> None:
    title, rows = describe(str(bundle))
    assert title == f"Onboard bundle {bundle}"
    assert rows["precision"] == "fp32"
    assert rows["steps"] == "50 + 60 of 0.1 s"
    assert rows["agents and lanes"] == "any number"


STEPS = 15


@pytest.fixture(scope="module")
def drive(sample_scenarios: list[Scenario], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_drive(sample_scenarios[0], tmp_path_factory.mktemp("drive") / "drive.mcap", steps=STEPS)


@pytest.fixture(scope="module")
def options(sample_folders: list[Path], drive: Path, bundle: Path) -> list[Any]:
    [archive] = sample_folders[0].glob("log_map_archive_*.json")
    return ["--tracks", drive, "--map", archive, "--bundle", bundle, "--threads", 1]


def test_a_drive_becomes_predicted_objects(
    sample_scenarios: list[Scenario],
    options: list[object],
    bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "predicted.mcap"
    scenario = sample_scenarios[0]
    printed = output_of(capsys, "replay", *options, "--out", out, "--min-probability", 0.2)
    assert "latency p50, p95, p99" in printed
    assert str(out) in printed
    found = dict(read_back(out, OBJECTS))
    assert list(found) == scenario.timestamps_ns[:STEPS].tolist() == [t for t, _ in read_back(out, SCENE)]
    assert len(list(read_back(out, ROAD))) == 1
    stream = StreamingForecaster(OnboardForecaster(bundle, threads=1), scenario.map, ego_id="nobody")
    for step, message in enumerate(found.values()):
        seen = detections(scenario, step)
        names = [identity(name).hex() for name in seen.track_id]
        known = {"vehicle", "pedestrian", "cyclist", "motorcyclist", "bus", "static"}
        types = [name if name in known else "unknown" for name in seen.object_type or []]
        types = ["static" if name in ("background", "construction") else name for name in types]
        expected = stream.update(
            int(scenario.timestamps_ns[step]) / 1e9, seen._replace(track_id=names, object_type=types)
        )
        assert [bytes(one.object_id.uuid).hex() for one in message.objects] == names
        for one, row in zip(message.objects, expected.rows(np.array(names)).tolist(), strict=True):
            best = one.kinematics.predicted_paths[0]
            assert best.confidence == pytest.approx(expected.probability[row].max(), abs=1e-4)
            path = expected.trajectory[row, expected.probability[row].argmax()]
            xy = np.array([[pose.position.x, pose.position.y] for pose in best.path[1:]])
            np.testing.assert_allclose(xy, path, atol=5e-3)


def test_a_map_of_another_frame_is_a_problem(
    drive: Path, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_map(LaneMap.from_centerlines([[[9e4, 0.0], [9e4 + 50, 0.0]]]), tmp_path / "far.json")
    assert run("replay", "--tracks", drive, "--map", tmp_path / "far.json", "--bundle", bundle) == 1
    assert "no lane of the map was near an object" in capsys.readouterr().out


def test_problems_of_a_drive_are_counted(
    sample_scenarios: list[Scenario], options: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message that is older than those before, and a position that is no number: nothing else is lost."""
    scenario = sample_scenarios[0]
    messages = [tracked(scenario, step) for step in (0, 1, 2, 1, 3)]
    lost = messages[2]["objects"][0]
    lost["kinematics"]["pose_with_covariance"]["pose"]["position"]["x"] = float("nan")
    times = scenario.timestamps_ns.tolist()
    drive = write_messages(tmp_path / "drive.mcap", messages, times)
    out = tmp_path / "predicted.mcap"
    printed = output_of(capsys, "replay", "--tracks", drive, *options[2:], "--out", out)
    assert "1 times: time went back by" in printed
    found = dict(read_back(out, OBJECTS))
    assert list(found) == times[:4]
    counts = [len(message["objects"]) for message in (*messages[:3], messages[4])]
    counts[2] -= 1
    assert [len(message.objects) for message in found.values()] == counts


@pytest.mark.parametrize("suffix", ["jsonl", "mcap"])
def test_a_drive_without_a_readable_message_leaves_an_earlier_result(
    suffix: str,
    options: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(RecordedDrive, "__iter__", lambda drive: iter(()))
    out = tmp_path / f"predicted.{suffix}"
    out.write_text("earlier")
    error = error_of(capsys, "replay", *options, "--out", out)
    assert f"drive.mcap: has no readable message in {TOPIC}" in error
    assert out.read_text() == "earlier"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--bundle empty", "not a bundle"),
        ("--bundle BUNDLE --scenario 0012", "0012"),
        ("GIVEN --out a.gif", "--out: must end in .mcap or .jsonl"),
        ("GIVEN --topic /clock", f"must be one of these, is '/clock': {TOPIC}"),
        ("GIVEN --frame odom", "objects are in 'map', the map is in 'odom'"),
        ("GIVEN --out DRIVE", "--out: is the recording itself"),
        ("OF_BAG --out bag/bag.mcap", "--out: is the recording itself"),
        ("GIVEN --origin 48 9", "'origin': is for latitudes and longitudes of Lanelet2: Argoverse 2"),
        ("GIVEN --scenario 0a", "--scenario: cannot be combined with --tracks"),
        ("GIVEN --min-probability 2", "--min-probability: must be 0 to 1"),
    ],
)
def test_wrong_options_are_named(
    words: str,
    sentence: str,
    drive: Path,
    bundle: Path,
    options: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``GIVEN`` stands for options of a drive that can be replayed, ``OF_BAG`` for those of its bag."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)  # the checkout may be read-only
    of_bag = ["--tracks", as_bag(drive, tmp_path / "bag", StoragePlugin.MCAP), *options[2:]]
    values = {"GIVEN": options, "OF_BAG": of_bag, "DRIVE": [drive], "BUNDLE": [bundle]}
    line: list[object] = []
    for word in words.split():
        line += values.get(word, [word])
    assert sentence in error_of(capsys, "replay", *line)


def test_lines_have_what_the_stream_reads() -> None:
    position = np.ma.masked_equal([[6.0, 0.0], [-999.0, 2.0]], -999.0)
    moving = torch.tensor([[1.0, 0.0], [0.0, 0.0]], requires_grad=True)
    ids: Any = [b"a", np.int64(7)]
    line = json.loads(drive_line(0.5, Detections(ids, position, velocity=moving), targets=ids))  # type: ignore[arg-type]
    assert line["track_id"] == line["targets"] == ["a", "7"]
    assert line["position"] == [[6.0, 0.0], [None, 2.0]]
    assert line["velocity"] == [[1.0, 0.0], [0.0, 0.0]]
