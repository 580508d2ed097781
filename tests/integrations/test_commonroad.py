"""CommonRoad scenarios: states, windows and roles against the file's own numbers and commonroad-io's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import rejects, run
from tests.integrations.map_files import commonroad as content
from trajpred import Scenario
from trajpred.data.tracks import OBJECT_TYPES, TrackCategory
from trajpred.integrations import commonroad
from trajpred.integrations.commonroad import discover
from trajpred.sources import find_source
from trajpred.sources.windows import Windows
from trajpred.store import ScenarioStore

Read = Callable[[bytes], list[Scenario]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(file: bytes) -> list[Scenario]:
        (tmp_path / "ZAM.xml").write_bytes(file)
        return [commonroad.read(window) for window in discover(tmp_path)["val"]]

    return read


def test_a_short_recording_is_one_window_with_unknown_steps_around_it(read: Read) -> None:
    [scene] = read(content(32))
    assert (scene.num_steps, scene.num_observed, scene.step_s) == (110, 50, 0.1)
    assert scene.scenario_id == "ZAM_000"
    assert scene.city == "ZAM_Test-1"
    assert len(scene.map) == 2
    car = scene.tracks.index("12")
    seen = np.flatnonzero(scene.tracks.valid[car])
    assert seen.tolist() == list(range(35, 67))  # 15 of 32 steps are observed, as 50 of 110
    steps = np.arange(32)
    assert np.allclose(scene.tracks.position[car, seen], np.stack((0.8 * steps, 0.01 * steps**2), -1))
    assert np.allclose(scene.tracks.heading[car, seen], 0.01 * steps)
    forward = np.stack((np.cos(0.01 * steps), np.sin(0.01 * steps)), -1)
    assert np.allclose(scene.tracks.velocity[car, seen], 8 * forward)
    kinds = [OBJECT_TYPES[i] for i in scene.tracks.object_type]
    assert scene.tracks.track_id.tolist() == ["11", "12", "13"]
    assert kinds == ["cyclist", "vehicle", "vehicle"]
    # The car departs from its velocity, the cyclist does not; the parked car stays for the whole recording.
    assert scene.focal_id == "12"
    roles = [TrackCategory.SCORED, TrackCategory.FOCAL, TrackCategory.UNSCORED]
    assert scene.tracks.category.tolist() == roles
    assert scene.tracks.valid[2].sum() == 32
    np.testing.assert_array_equal(scene.tracks.size, [[0.8, 0.8], [4.4, 1.7], [np.nan, np.nan]])


def test_windows_are_cut_as_often_as_asked(tmp_path: Path) -> None:
    (tmp_path / "ZAM.xml").write_bytes(content(145))
    assert [window.name for window in discover(tmp_path)["val"]] == ["ZAM_000", "ZAM_015", "ZAM_030"]
    for every_s, starts in ((0.5, range(0, 36, 5)), (2.0, [0, 20]), (0.01, range(36))):
        windows = find_source("commonroad").scenarios(tmp_path, Windows(every_s))["val"]
        assert [window.part for window in windows] == [*starts]
        for i in (1, -1):
            scene = commonroad.read(windows[i])
            assert scene.scenario_id == windows[i].name
            assert scene.tracks.valid[:2].all()
            assert scene.tracks.position[1, 0] == pytest.approx([0.8 * starts[i], 0.01 * starts[i] ** 2])


def test_point_masses_move_along_the_axes_of_the_map(read: Read) -> None:
    """States without an orientation, as the library writes them, have both parts of the velocity."""
    states = content().replace(b"orientation", b"yaw")
    both = b"<velocity><exact>0</exact></velocity><velocityY><exact>5</exact></velocityY>"
    [scene] = read(states.replace(b"<velocity><exact>8</exact></velocity>", both))
    car = scene.tracks.index("12")
    seen = scene.tracks.valid[car]
    np.testing.assert_allclose(scene.tracks.velocity[car, seen], np.tile([0.0, 5.0], (30, 1)))
    np.testing.assert_allclose(scene.tracks.heading[car, seen], np.pi / 2)
    sideways = content().replace(b"</velocity>", b"</velocity><velocityY><exact>1</exact></velocityY>")
    [scene] = read(sideways)  # with an orientation: in the frame of the car
    heading = scene.tracks.heading[car, seen]
    expected = np.stack((8 * np.cos(heading) - np.sin(heading), 8 * np.sin(heading) + np.cos(heading)), -1)
    np.testing.assert_allclose(scene.tracks.velocity[car, seen], expected)


def test_a_speed_alone_is_turned_as_the_track_moves(read: Read) -> None:
    """Also before its heading is known: the cyclist moves by 0.8 m per step along y, recorded with 9 m/s."""
    turned = content().replace(b"orientation", b"yaw").replace(b"<velocity><exact>8", b"<velocity><exact>9")
    turned = re.sub(rb"<x>([-\d.e]+)</x><y>([-\d.e]+)</y>", rb"<x>\2</x><y>\1</y>", turned)
    [scene] = read(turned)
    cyclist = scene.tracks.index("11")
    seen = np.flatnonzero(scene.tracks.valid[cyclist])
    np.testing.assert_allclose(scene.tracks.velocity[cyclist, seen[1:]], np.tile([0.0, 9.0], (29, 1)))


def test_states_without_a_speed_or_heading_do_not_discard_those_of_others(read: Read) -> None:
    """A parked car needs no speed; a cyclist's are estimated where they are not recorded."""
    speed = b"<velocity><exact>8</exact></velocity>"
    lanes, cyclist, car, parked = re.split(rb"(?=<\w+Obstacle id)", content())
    cyclist = cyclist.replace(speed, b"").replace(b"orientation", b"yaw")
    car = car.replace(speed, speed.replace(b"8", b"3"))
    [scene] = read(lanes + cyclist + car + parked.replace(speed, b""))
    [recorded] = read(content())
    valid = scene.tracks.valid[1]
    velocity = scene.tracks.velocity[:, valid]
    # The car's recorded speeds, which differ from those of its positions, stay.
    np.testing.assert_allclose(velocity[1], recorded.tracks.velocity[1, valid] * 3 / 8, atol=1e-12)
    np.testing.assert_allclose(velocity[0, 1:], [[8.0, 0.0]] * (valid.sum() - 1), atol=1e-6)
    np.testing.assert_array_equal(velocity[2], 0.0)
    assert recorded.tracks.velocity[2].any(), "the file's speed, where it has one"


def without_states(file: bytes, states: slice) -> bytes:
    """Remove some of the states of a part of a file."""
    for state in re.findall(rb"<state>.*?</state>", file, re.DOTALL)[states]:
        file = file.replace(state, b"")
    return file


def test_parked_cars_are_focal_only_where_nobody_else_is(read: Read) -> None:
    """The parked car is there in all 30 steps, the cyclist until step 19, the other car from step 10 on."""
    before, cyclist, rest = content().partition(b'<dynamicObstacle id="12"')
    rest = without_states(rest, slice(10)).replace(b"<time><exact>0<", b"<time><exact>10<", 1)
    [scene] = read(without_states(before, slice(19, None)) + cyclist + rest)
    assert scene.tracks.valid.sum(axis=1).tolist() == [20, 20, 30]
    assert scene.focal_id == "12"
    parked_alone = content().replace(b">bicycle<", b">train<").replace(b">car<", b">train<")
    assert read(parked_alone)[0].focal_id == "13"


@pytest.mark.parametrize("kind", ["successors", "outgoing"])
@pytest.mark.parametrize("side", ["Left", "Straight", "Right"])
def test_lanelets_that_leave_an_incoming_one_are_intersections(kind: str, side: str, read: Read) -> None:
    [scene] = read(content().replace(b"successorsLeft", f"{kind}{side}".encode()))
    assert scene.map.is_intersection.tolist() == [False, True]


def test_recordings_without_a_lane_are_one_sentence_and_broken_lanelets_a_warning(read: Read) -> None:
    broken = content().replace(b'<lanelet id="1">', b'<lanelet id="9"></lanelet><lanelet id="1">')
    with pytest.warns(UserWarning, match="ZAM.xml: 1 lanelet left out: 9"):
        [scene] = read(broken)
    assert scene.map.lane_id.tolist() == [1, 2]
    rejects("the map has no lane that", lambda: read(content().replace(b">urban<", b">sidewalk<")))


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (content(19), "recorded for 1.9 s, less than 2 s"),
        (content().replace(b'timeStepSize="0.1"', b""), "commonRoad.timeStepSize"),
        (content().replace(b"<exact>29</exact>", b"<exact>99999</exact>"), "more than 10000"),
        (re.sub(b">(car|bicycle|parkedVehicle)<", b">train<", content()), "no road user"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_scenario_is_one_sentence(file: bytes, problem: str, read: Read) -> None:
    rejects(problem, read, file)


def test_recorded_states_are_those_of_the_library(shared: Path) -> None:
    """commonroad-io 2026.1: the number of states, and the mean of x, y and heading."""
    folder = shared / "data" / "maps" / "commonroad"
    published = {
        "USA_Lanker-1": (938, [-1.8696168443496812, -2.6456313432835836, 0.84839860554371]),
        "USA_US101-3": (384, [12.140352343749997, -19.056136458333313, -0.7175867187499998]),
    }
    scenes = [commonroad.read(window) for window in discover(folder)["val"]]
    assert [scene.city for scene in scenes] == list(published)
    for scene in scenes:
        states, means = published[scene.city]
        valid = scene.tracks.valid
        assert valid.sum() == states
        assert scene.has_future
        assert len(scene.map) > 12
        x, y = scene.tracks.position[valid].mean(axis=0)
        heading = scene.tracks.heading[valid].mean()
        assert np.allclose([x, y, heading], means, atol=1e-9)


def test_recordings_of_several_steps_are_reported_when_they_are_prepared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    for step_s in ("0.04", "0.1", "0.2"):
        recording = content(150).replace(b'timeStepSize="0.1"', f'timeStepSize="{step_s}"'.encode())
        (raw / f"ZAM{step_s}.xml").write_bytes(recording)
    store = tmp_path / "store"
    assert run("prepare", "--source", "commonroad", "--raw", raw, "--store", store, "--workers", 1) == 0
    warning = capsys.readouterr().err
    for kind in ("125 + 150 steps of 0.04 s", "50 + 60 steps of 0.1 s", "25 + 30 steps of 0.2 s"):
        assert kind in warning
    assert "a raw folder of their own into a store of their own" in warning
    same_step = ["--step-s", 0.1, "--observe-s", 2, "--predict-s", 3, "--every-s", 2]
    for _ in range(2):  # the store is kept by the same options
        command = ["--source", "commonroad", "--raw", raw, "--store", tmp_path / "same", *same_step]
        assert run("prepare", *command, "--workers", 1) == 0
    assert "mixes scenarios" not in capsys.readouterr().err
    scene = ScenarioStore(tmp_path / "same", "val")[0]
    assert (scene.num_observed, scene.num_steps) == (20, 50)
    assert scene.step_s == pytest.approx(0.1)


def test_the_first_obstacle_of_a_file_may_appear_late(read: Read) -> None:
    first, cyclist, rest = content().partition(b'<dynamicObstacle id="12"')
    late_first = without_states(first, slice(17)).replace(b"initialState", b"state")
    [late] = read(late_first + cyclist + rest)
    assert late.focal_id == "12"
