"""The ROS 2 node in C++ predicts a recorded drive as Python does; it is built with stubs of the messages."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.integrations.drives import tracked, write_messages
from tests.model.small import SIZES, TINY, checkpoint_of, small_model
from tests.onboard.cpp import SOURCE, built_once, install, json_headers, run
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import EGO_ID
from trajpred.errors import DataError
from trajpred.export.export_bundle import export_bundle
from trajpred.integrations.mcap import predicted_objects
from trajpred.integrations.recorded_drive import RecordedDrive
from trajpred.onboard import Detections, OnboardForecaster, StreamingForecaster
from trajpred.predictors.baselines import lane_following
from trajpred.sources.argoverse2 import archive_of, map_from
from trajpred.sources.reading import MapProblems

pytestmark = pytest.mark.slow

NODE = ROOT / "tools" / "onboard_cpp" / "examples" / "ros2_node"
STUBS = Path(__file__).with_name("ros_stubs")
OBJECTS = "/perception/object_recognition/tracking/objects"
ODOMETRY = "/localization/kinematic_state"
STEPS = 20
#: Steps: more than the poses of a path.
HORIZON = 120
#: The odometry is later than the objects by (s), and the ego turns (rad/s).
LATER_S = 0.03
TURN_RATE = 0.2
#: A step whose message is in another frame, and one whose message comes again, late.
ELSEWHERE = 7
REPEATED = 12


class FailingForecaster(OnboardForecaster):
    """Fails in every update, as ``ros_stubs/no_onnx.cpp`` does: all futures are those of the fallback."""

    def run(self, graph: str, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        raise DataError("no ONNX Runtime")


#: What runs the graphs in Python, by what runs them in the node.
RUNTIMES = {"onnxruntime": OnboardForecaster, "fallback alone": FailingForecaster}


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def node(runtime: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The node, with stubs of ROS 2's packages."""
    folder = tmp_path_factory.mktemp("node")
    if runtime == "onnxruntime":
        return built_by_cmake(folder, request.getfixturevalue("programs"))
    if shutil.which("g++") is None:
        pytest.skip("the node needs g++")
    library = built_once(folder / "library").parent / "libtrajpred_onboard.a"
    includes = [f"-I{SOURCE / 'include'}", f"-isystem{STUBS}", f"-isystem{json_headers() or '/usr/include'}"]
    sources = [NODE / "predictor_node.cpp", STUBS / "no_onnx.cpp", library]
    strict = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    made = run("g++", *strict, *includes, *sources, "-o", folder / "predictor_node")
    assert made.returncode == 0, made.stderr
    return folder / "predictor_node"


def built_by_cmake(folder: Path, programs: Path) -> Path:
    """Build the node as a workspace of ROS 2 does, with the installed library."""
    packages = folder / "packages"
    packages.mkdir()
    (packages / "ament_cmake-config.cmake").write_text("macro(ament_package)\nendmacro()\n")
    for name in ("autoware_perception_msgs", "nav_msgs", "rclcpp"):
        lines = (
            f"add_library({name}::{name} INTERFACE IMPORTED)",
            f'target_include_directories({name}::{name} SYSTEM INTERFACE "{STUBS}" "{json_headers()}")',
            f"set({name}_TARGETS {name}::{name})",
        )
        (packages / f"{name}-config.cmake").write_text("\n".join(lines))
    found = f"-DCMAKE_PREFIX_PATH={install(programs, folder / 'installed')};{packages}"
    strict = ("-DCMAKE_COMPILE_WARNING_AS_ERROR=ON", "-DCMAKE_CXX_FLAGS=-O1 -Wall -Wextra -Wpedantic")
    made = run("cmake", "-S", NODE, "-B", folder / "build", found, *strict)
    assert made.returncode == 0, made.stderr
    built = run("cmake", "--build", folder / "build")
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "build" / "predictor_node"


@pytest.fixture(scope="module")
def bundle(sample_scenarios: Sequence[Scenario], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of so many steps that not all fit into a path."""
    folder = tmp_path_factory.mktemp("long")
    decoder = {"class_path": "trajpred.model.ModeDecoder", "init_args": {**SIZES, "horizon": HORIZON}}
    checkpoint = checkpoint_of(small_model(**TINY | {"decoder": decoder}), folder / "long.ckpt")
    export_bundle(checkpoint, folder / "bundle", sample_scenarios[:1], progress=False)
    return folder / "bundle"


def drive_of(scenario: Scenario) -> list[dict[str, Any]]:
    """The tracked objects of each step, without the ego, some of them as trackers report them at times."""
    others = scenario.tracks.take(np.flatnonzero(scenario.tracks.track_id != EGO_ID))
    messages = [tracked(replace(scenario, tracks=others), step) for step in range(STEPS)]
    for message in messages:
        zero, unavailable, reversed_, classless, *_ = message["objects"]
        motion = zero["kinematics"]["pose_with_covariance"]["pose"]
        motion["orientation"] = {"x": 0.0, "y": 0.0, "z": 0.0, "w": 0.0}
        unavailable["kinematics"]["orientation_availability"] = 0
        reversed_["kinematics"]["orientation_availability"] = 1
        reversed_["kinematics"]["twist_with_covariance"]["twist"]["linear"]["x"] *= -1
        classless["classification"] = []
        same_id = deepcopy(message["objects"][-1])
        same_id["kinematics"]["pose_with_covariance"]["pose"]["position"]["x"] += 500.0
        nameless = [deepcopy(item) for item in message["objects"][4:7]]
        for item in nameless:
            item["object_id"]["uuid"] = [0] * 16
        message["objects"] += [same_id, *nameless]
    messages[ELSEWHERE]["header"]["frame_id"] = "base_link"
    return messages


def odometry_of(scenario: Scenario, step: int) -> dict[str, Any]:
    """The ego a little after a step, at constant velocity and turn rate."""
    row = scenario.tracks.index(EGO_ID)
    velocity = scenario.tracks.velocity[row, step]
    x, y = scenario.tracks.position[row, step] + LATER_S * velocity
    heading = float(scenario.tracks.heading[row, step]) + LATER_S * TURN_RATE
    ahead = np.array([math.cos(heading), math.sin(heading)])
    left = np.array([-math.sin(heading), math.cos(heading)])
    sec, nanosec = divmod(int(scenario.timestamps_ns[step] + LATER_S * 1e9), 10**9)
    turn = {"x": 0.0, "y": 0.0, "z": math.sin(heading / 2), "w": math.cos(heading / 2)}
    linear = {"x": float(velocity @ ahead), "y": float(velocity @ left), "z": 0.0}
    twist = {"linear": linear, "angular": {"x": 0.0, "y": 0.0, "z": TURN_RATE}}
    return {
        "header": {"stamp": {"sec": sec, "nanosec": nanosec}, "frame_id": "map"},
        "pose": {"pose": {"position": {"x": float(x), "y": float(y), "z": 0.0}, "orientation": turn}},
        "twist": {"twist": twist},
    }


def test_the_node_predicts_a_drive_as_python_does(
    node: Path, runtime: str, bundle: Path, sample_scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    """An object that shares its id, or has none, as others have not, does not get their futures."""
    scenario = sample_scenarios[0]
    messages = drive_of(scenario)
    archive = archive_of(scenario.map)
    (tmp_path / "lanes.json").write_text(json.dumps(archive))
    lines: list[tuple[str, Mapping[str, Any]]] = []
    for step, message in enumerate(messages):
        lines.append((ODOMETRY, odometry_of(scenario, step)))
        lines.append((OBJECTS, message))
        if step == REPEATED:
            lines.append((OBJECTS, messages[step - 3]))
    done = run_node(node, lines, bundle=bundle, map=tmp_path / "lanes.json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line)["message"] for line in done.stdout.splitlines()]
    assert "objects are in the frame base_link, not in map" in done.stderr
    assert "time went back by 0.3" in done.stderr
    assert ("no ONNX Runtime" in done.stderr) == (runtime == "fallback alone")

    accepted = [message for step, message in enumerate(messages) if step != ELSEWHERE]
    stamps = np.delete(scenario.timestamps_ns[:STEPS], ELSEWHERE)
    path = write_messages(tmp_path / "drive.mcap", accepted, stamps.tolist())
    expected = list(python_messages(path, scenario, stamps, RUNTIMES[runtime](bundle, threads=1), archive))
    assert len(found) == len(expected) == STEPS - 1
    for theirs, ours in zip(found, expected, strict=True):
        assert_same_message(theirs, ours)


def run_node(
    node: Path, lines: Sequence[tuple[str, Mapping[str, Any]]], **parameters: Path
) -> subprocess.CompletedProcess[str]:
    """Run the node on messages, with these parameters."""
    words = [str(node), "--ros-args"]
    for name, value in parameters.items():
        words += ["-p", f"{name}:={value}"]
    text = "".join(json.dumps({"topic": topic, "message": message}) + "\n" for topic, message in lines)
    return subprocess.run(words, input=text, capture_output=True, text=True, timeout=600)


def python_messages(
    path: Path, scenario: Scenario, stamps: np.ndarray, runtime: OnboardForecaster, archive: dict[str, Any]
) -> Iterator[Any]:
    """Yield the predicted objects of a recording, with the ego of the scenario."""
    lane_map = map_from(archive, MapProblems())
    stream = StreamingForecaster(runtime, lane_map, fallback=lane_following)
    row = scenario.tracks.index(EGO_ID)
    for objects in RecordedDrive(path):
        step = int(np.flatnonzero(scenario.timestamps_ns == objects.time_ns)[0])
        ego = scenario.tracks
        seen = Detections(
            [*objects.track_id, EGO_ID],
            np.vstack((objects.position, ego.position[row, step])),
            np.append(objects.heading, ego.heading[row, step]),
            np.vstack((objects.velocity, ego.velocity[row, step])),
            [*objects.object_type, "vehicle"],
        )
        forecast = stream.update(objects.time_ns / 1e9, seen)
        yield predicted_objects(objects, forecast, step_s=runtime.bundle.step_s, min_probability=0.1)


def assert_same_message(found: dict[str, Any], expected: Any) -> None:
    stamp = found["header"]["stamp"]
    assert (stamp["sec"], stamp["nanosec"]) == (expected.header.stamp.sec, expected.header.stamp.nanosec)
    assert len(found["objects"]) == len(expected.objects) > 5
    assert len({bytes(item.object_id.uuid) for item in expected.objects}) == len(expected.objects)
    for theirs, ours in zip(found["objects"], expected.objects, strict=True):
        assert theirs["object_id"]["uuid"] == list(ours.object_id.uuid)
        assert theirs["existence_probability"] == ours.existence_probability
        labels = [item["label"] for item in theirs["classification"]]
        assert labels == [item.label for item in ours.classification]
        assert theirs["shape"]["dimensions"]["x"] == ours.shape.dimensions.x
        paths = theirs["kinematics"]["predicted_paths"]
        assert len(paths) == len(ours.kinematics.predicted_paths)
        for path, other in zip(paths, ours.kinematics.predicted_paths, strict=True):
            assert len(path["path"]) == len(other.path) == 1 + HORIZON // 2 <= 100
            assert path["time_step"] == {"sec": 0, "nanosec": 200_000_000}
            assert path["confidence"] == pytest.approx(other.confidence, abs=1e-4)
            assert_same_poses(path["path"], other.path)


def assert_same_poses(found: list[dict[str, Any]], expected: Any) -> None:
    places = [pose["position"] for pose in found]
    position = np.array([(place["x"], place["y"], place["z"]) for place in places])
    other = np.array([[pose.position.x, pose.position.y, pose.position.z] for pose in expected])
    np.testing.assert_allclose(position, other, rtol=0, atol=2e-3)  # of which 0.5 mm are rounded away
    heading = [math.atan2(pose["orientation"]["z"], pose["orientation"]["w"]) for pose in found]
    turned = heading - np.array([math.atan2(pose.orientation.z, pose.orientation.w) for pose in expected])
    np.testing.assert_allclose(np.cos(2 * turned), 1, atol=1e-4)


def test_a_parameter_that_is_missing_or_wrong_is_one_sentence(node: Path, tmp_path: Path) -> None:
    (tmp_path / "lanes.json").write_text('{"lane_segments": {}, "pedestrian_crossings": {}}')
    for parameters, message in (
        ({}, "must be initialized"),
        ({"bundle": tmp_path / "none", "map": tmp_path / "lanes.json"}, "no such bundle"),
    ):
        done = run_node(node, [], **parameters)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert message in done.stderr


def test_the_package_depends_on_what_it_uses() -> None:
    manifest = ElementTree.parse(NODE / "package.xml").getroot()
    depends = {element.text for element in manifest if element.tag.endswith("depend")}
    found = re.findall(r"find_package\((\w+)", (NODE / "CMakeLists.txt").read_text("utf-8"))
    assert depends | {"trajpred_onboard"} == set(found)
