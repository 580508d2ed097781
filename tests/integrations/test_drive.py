"""The command streams a recorded drive as the runtime does, and answers for every tracked object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import run
from tests.integrations.drives import TOPIC, identity, read_back, tracked, write_drive, write_messages
from trajpred.data.lane_map import LaneMap
from trajpred.integrations.maps import write_map
from trajpred.integrations.mcap import OBJECTS, ROAD, SCENE
from trajpred.integrations.recorded_drive import RecordedDrive
from trajpred.integrations.replay import detections, drive_line
from trajpred.onboard import Detections, OnboardForecaster, StreamingForecaster
from trajpred.sources.argoverse2 import read_scenario

STEPS = 15


@pytest.fixture(scope="module")
def drive(sample_folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    scenario = read_scenario(sample_folders[0])
    return write_drive(scenario, tmp_path_factory.mktemp("drive") / "drive.mcap", steps=STEPS)


def given(folder: Path, drive: Path, bundle: Path) -> list[object]:
    [archive] = folder.glob("log_map_archive_*.json")
    return ["--tracks", drive, "--map", archive, "--bundle", bundle, "--threads", 1]


def test_a_drive_becomes_predicted_objects(
    sample_folders: list[Path], drive: Path, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = sample_folders[0], tmp_path / "predicted.mcap"
    scenario = read_scenario(folder)
    options = given(folder, drive, bundle)
    assert run("replay", *options, "--out", out, "--min-probability", 0.2) == 0
    printed = capsys.readouterr().out
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
    sample_folders: list[Path], bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message that is older than those before, and a position that is no number: nothing else is lost."""
    folder = sample_folders[0]
    scenario = read_scenario(folder)
    messages = [tracked(scenario, step) for step in (0, 1, 2, 1, 3)]
    lost = messages[2]["objects"][0]
    lost["kinematics"]["pose_with_covariance"]["pose"]["position"]["x"] = float("nan")
    times = scenario.timestamps_ns.tolist()
    drive = write_messages(tmp_path / "drive.mcap", messages, times)
    options = given(folder, drive, bundle)
    out = tmp_path / "predicted.mcap"
    assert run("replay", *options, "--out", out) == 0
    assert "1 times: time went back by" in capsys.readouterr().out
    found = dict(read_back(out, OBJECTS))
    assert list(found) == times[:4]
    counts = [len(message["objects"]) for message in (*messages[:3], messages[4])]
    counts[2] -= 1
    assert [len(message.objects) for message in found.values()] == counts


@pytest.mark.parametrize("suffix", ["jsonl", "mcap"])
def test_a_drive_without_a_readable_message_leaves_an_earlier_result(
    suffix: str,
    sample_folders: list[Path],
    drive: Path,
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(RecordedDrive, "__iter__", lambda drive: iter(()))
    out = tmp_path / f"predicted.{suffix}"
    out.write_text("earlier")
    assert run("replay", *given(sample_folders[0], drive, bundle), "--out", out) == 2
    assert f"drive.mcap: has no readable message in {TOPIC}" in capsys.readouterr().err
    assert out.read_text() == "earlier"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--out", "a.gif"], "--out: must end in .mcap or .jsonl"),
        (["--topic", "/clock"], f"must be one of these, is '/clock': {TOPIC}"),
        (["--frame", "odom"], "objects are in 'map', the map is in 'odom'"),
        (["--out", "DRIVE"], "--out: is the recording itself"),
        (["--origin", "48", "9"], "'origin': is for latitudes and longitudes of Lanelet2: Argoverse 2"),
        (["--scenario", "0a"], "--scenario: cannot be combined with --tracks"),
        (["--min-probability", "2"], "--min-probability: must be 0 to 1"),
    ],
)
def test_wrong_options_are_named(
    sample_folders: list[Path],
    drive: Path,
    bundle: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    sentence: str,
) -> None:
    more = [str(drive) if word == "DRIVE" else word for word in more]
    for tracks in (drive, drive.parent):
        assert run("replay", *given(sample_folders[0], tracks, bundle), *more) == 2
    assert sentence in capsys.readouterr().err


def test_lines_have_what_the_stream_reads() -> None:
    position = np.ma.masked_equal([[6.0, 0.0], [-999.0, 2.0]], -999.0)
    moving = torch.tensor([[1.0, 0.0], [0.0, 0.0]], requires_grad=True)
    ids: Any = [b"a", np.int64(7)]
    line = json.loads(drive_line(0.5, Detections(ids, position, velocity=moving), targets=ids))  # type: ignore[arg-type]
    assert line["track_id"] == line["targets"] == ["a", "7"]
    assert line["position"] == [[6.0, 0.0], [None, 2.0]]
    assert line["velocity"] == [[1.0, 0.0], [0.0, 0.0]]
