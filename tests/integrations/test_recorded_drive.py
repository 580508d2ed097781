"""Drives of other writers are read as their scenario: also cut ones, and those of the earlier type."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.reader import make_reader
from mcap.writer import Writer as McapWriter
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_idl, get_typestore

from tests.conftest import rejects
from tests.integrations.drives import TOPIC, as_bag, assert_read, tracked, write_drive, write_messages
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.integrations.recorded_drive import TRACKED_OBJECTS, RecordedDrive, ros_types
from trajpred.integrations.replay import detections

STEPS = 24


@pytest.fixture(scope="module")
def scenario(sample_scenarios: list[Scenario]) -> Scenario:
    return sample_scenarios[0]


@pytest.fixture(scope="module")
def recording(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_drive(scenario, tmp_path_factory.mktemp("drive") / "drive.mcap", steps=STEPS)


@pytest.fixture(scope="module")
def stamps(scenario: Scenario) -> list[int]:
    return scenario.timestamps_ns[:STEPS].tolist()


@pytest.mark.parametrize("storage", [None, StoragePlugin.MCAP, StoragePlugin.SQLITE3])
def test_drives_are_the_scenario_they_were_made_from(
    scenario: Scenario, recording: Path, tmp_path: Path, storage: StoragePlugin | None
) -> None:
    drive = RecordedDrive(as_bag(recording, tmp_path / "bag", storage) if storage else recording)
    assert drive.topic == TOPIC
    assert drive.num_messages == STEPS
    # Messages have no label of their own for these types.
    read_as = {"riderless_bicycle": "unknown", "background": "static", "construction": "static"}
    for step, objects in enumerate(drive):
        assert_read(objects, scenario, step)
        written = detections(scenario, step).object_type or []
        assert objects.object_type == [read_as.get(kind, kind) for kind in written]
    assert step == STEPS - 1
    assert not drive.problems


UP = (0.0, 0.0, math.sin(math.pi / 4), math.cos(math.pi / 4))


@pytest.mark.parametrize(
    ("availability", "quaternion", "forward", "heading"),
    [
        (0, UP, 1.0, math.nan),
        (1, UP, 1.0, math.pi / 2),
        (1, UP, -1.0, -math.pi / 2),
        (2, (0.0, 0.0, 3.0, 3.0), 1.0, math.pi / 2),
        (2, (0.0, 0.0, 0.0, 0.0), 1.0, math.nan),
    ],
)
def test_headings_follow_what_the_tracker_knows(
    scenario: Scenario,
    tmp_path: Path,
    availability: int,
    quaternion: tuple[float, ...],
    forward: float,
    heading: float,
) -> None:
    """An unknown orientation gives none; one of unknown sign points along the motion; any length is read."""
    message = tracked(scenario, 0, orientation=availability)
    message["objects"] = message["objects"][:1]
    motion: dict[str, Any] = message["objects"][0]["kinematics"]
    motion["twist_with_covariance"]["twist"]["linear"] = {"x": 5.0 * forward, "y": 0.0, "z": 0.0}
    motion["pose_with_covariance"]["pose"]["orientation"] = dict(zip("xyzw", quaternion, strict=True))
    [objects] = RecordedDrive(write_messages(tmp_path / "drive.mcap", [message], [10**9]))
    np.testing.assert_allclose(np.sin(objects.heading), [math.sin(heading)], atol=1e-9)
    velocity = [np.nan, np.nan] if np.isnan(heading) else [0.0, 5.0 * forward]
    np.testing.assert_allclose(objects.velocity, [velocity], atol=1e-9)


def test_stamps_that_never_advance_are_a_problem(scenario: Scenario, tmp_path: Path) -> None:
    messages = [tracked(scenario, 5) for _ in range(4)]
    drive = RecordedDrive(write_messages(tmp_path / "drive.mcap", messages, [1, 2, 3, 4]))
    assert len(list(drive)) == 4
    [problem] = drive.problems
    assert "never advance" in problem


def bag_of(folder: Path, topics: dict[str, str]) -> Path:
    """Write a bag with topics of types, without messages."""
    with Writer(folder, version=9) as writer:
        for topic, kind in topics.items():
            writer.add_connection(topic, kind, typestore=ros_types())
    return folder


def test_other_frames_topics_and_files_are_refused(scenario: Scenario, tmp_path: Path) -> None:
    path = write_drive(scenario, tmp_path / "drive.mcap", steps=2, frame="base_link")
    assert len(list(RecordedDrive(path, frame="base_link"))) == 2
    two = bag_of(tmp_path / "two", dict.fromkeys(("/left", "/right"), TRACKED_OBJECTS))
    none = bag_of(tmp_path / "none", {"/clock": "builtin_interfaces/msg/Time"})
    other = tmp_path / "other.mcap"
    other.write_bytes(b"not a recording")
    for recording, topic, sentence in (
        (path, None, "in 'base_link', the map is in 'map'"),
        (path, "/other", f"one of these, is '/other': {TOPIC}"),
        (two, None, "give --topic: /left, /right"),
        (none, None, rf"{TRACKED_OBJECTS}.*topics: /clock \(builtin_interfaces/msg/Time\)"),
        (other, None, "not a readable ROS 2 bag"),
        (tmp_path / "absent.mcap", None, "no such recording"),
    ):
        with pytest.raises(DataError, match=sentence):
            list(RecordedDrive(recording, topic=topic))


def test_malformed_messages_are_skipped_and_counted(recording: Path, tmp_path: Path) -> None:
    drive = RecordedDrive(as_bag(recording, tmp_path / "bag", StoragePlugin.SQLITE3, cut=(1, 4)))
    assert len(list(drive)) == STEPS - 2
    assert drive.problems.total() == 2
    assert all("a message was skipped" in problem for problem in drive.problems)


def times(drive: RecordedDrive) -> list[int]:
    return [tracked.time_ns for tracked in drive]


def test_what_a_killed_recorder_leaves_can_be_repaired(recording: Path, tmp_path: Path) -> None:
    database = as_bag(recording, tmp_path / "bag", StoragePlugin.SQLITE3) / "bag.db3"
    without_metadata = tmp_path / "killed"
    without_metadata.mkdir()
    shutil.copy(database, without_metadata / "killed_0.db3")
    truncated = tmp_path / "cut.mcap"
    truncated.write_bytes(recording.read_bytes()[: recording.stat().st_size // 2])
    logged = tmp_path / "logged.db3"
    shutil.copy(database, logged)
    logged.with_name("logged.db3-wal").write_bytes(b"messages")
    for path, tool in (
        (without_metadata, "ros2 bag reindex"),
        (truncated, "mcap recover"),
        (logged, r"write-ahead log; `sqlite3 drive.db3 \.recover`"),
    ):
        rejects(tool, RecordedDrive, path)


def test_a_damaged_file_is_read_up_to_the_damage(recording: Path, stamps: list[int], tmp_path: Path) -> None:
    content = bytearray(recording.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 2000] = bytes(2000)
    path = tmp_path / "damaged.mcap"
    path.write_bytes(content)
    drive = RecordedDrive(path)
    read_times = times(drive)
    assert 0 < len(read_times) < STEPS
    assert read_times == stamps[: len(read_times)]
    assert "mcap recover" in " ".join(drive.problems)


def rewritten(
    recording: Path, path: Path, kind: str, encoding: str, text: str, change: Any = bytes, writers: int = 1
) -> Path:
    """Copy a drive with messages and a definition of another form, by one or more writers."""
    with recording.open("rb") as source, path.open("wb") as target:
        writer = McapWriter(target)
        writer.start("ros2")
        schema = writer.register_schema(kind, encoding, text.encode())
        channels = [writer.register_channel(TOPIC, "cdr", schema, {"writer": str(i)}) for i in range(writers)]
        for row, (_, _, message) in enumerate(make_reader(source).iter_messages()):
            data = change(message.data)
            writer.add_message(channels[row % writers], message.log_time, data, message.publish_time)
        writer.finish()
    return path


def test_all_writers_of_a_topic_are_read(recording: Path, stamps: list[int], tmp_path: Path) -> None:
    definition, _ = ros_types().generate_msgdef(TRACKED_OBJECTS, ros_version=2)
    path = rewritten(recording, tmp_path / "two.mcap", TRACKED_OBJECTS, "ros2msg", definition, writers=2)
    drive = RecordedDrive(path)
    assert times(drive) == stamps
    assert drive.num_messages == STEPS


EARLIER = "autoware_auto_perception_msgs/msg/TrackedObjects"
RULE = "=" * 80 + "\n"
# As ROS 2 records it: with includes, comments and annotations.
IDL = """
#include "autoware_auto_perception_msgs/msg/TrackedObject.idl"
#include "std_msgs/msg/Header.idl"

module autoware_auto_perception_msgs { module msg {
  @verbatim (language="comment", text=
    " This is the output of object tracking and the input to prediction.")
  struct TrackedObjects {
    std_msgs::msg::Header header;
    sequence<autoware_auto_perception_msgs::msg::TrackedObject> objects;
  };
}; };
""", """
#include "unique_identifier_msgs/msg/UUID.idl"
module autoware_auto_perception_msgs { module msg {
  struct TrackedObject {
    unique_identifier_msgs::msg::UUID object_id;
    @range (min=0.0, max=1.0)
    float existence_probability;
    sequence<autoware_auto_perception_msgs::msg::ObjectClassification> classification;
    autoware_auto_perception_msgs::msg::TrackedObjectKinematics kinematics;
    autoware_auto_perception_msgs::msg::Shape shape;
  };
}; };
""", """
module autoware_auto_perception_msgs { module msg {
  module ObjectClassification_Constants { const uint8 UNKNOWN = 0; };
  struct ObjectClassification { uint8 label; float probability; };
}; };
""", """
module autoware_auto_perception_msgs { module msg {
  struct TrackedObjectKinematics {
    geometry_msgs::msg::PoseWithCovariance pose_with_covariance;
    uint8 orientation_availability;
    geometry_msgs::msg::TwistWithCovariance twist_with_covariance;
    geometry_msgs::msg::AccelWithCovariance acceleration_with_covariance;
    @value (default=False)
    boolean is_stationary;
  };
}; };
""", """
module autoware_auto_perception_msgs { module msg {
  struct Shape {
    uint8 type;
    geometry_msgs::msg::Polygon footprint;
    geometry_msgs::msg::Vector3 dimensions;
  };
}; };
"""  # fmt: skip
# Some recorders also write those of ROS itself.
POSE_WITH_COVARIANCE = """
#include "geometry_msgs/msg/Pose.idl"
module geometry_msgs { module msg {
  typedef double double__36[36];
  struct PoseWithCovariance {
    geometry_msgs::msg::Pose pose;
    double__36 covariance;
  };
}; };
"""


def recorded_idl() -> str:
    sections = []
    for text in (*IDL, POSE_WITH_COVARIANCE):
        [module] = re.findall(r"module (\w+_msgs)", text)
        [name] = re.findall(r"struct (\w+)", text)
        sections.append(f"{RULE}IDL: {module}/msg/{name}{text}")
    return "".join(sections)


@pytest.mark.parametrize("encoding", ["ros2idl", "ros2msg", ""])
def test_the_earlier_layout_is_read_by_its_own_definition(
    scenario: Scenario, recording: Path, tmp_path: Path, encoding: str
) -> None:
    types = get_typestore(Stores.ROS2_HUMBLE)
    for definition in IDL:
        types.register(get_types_from_idl(re.sub("#.*", "", definition)))
    text = {"ros2idl": recorded_idl(), "ros2msg": types.generate_msgdef(EARLIER, ros_version=2)[0], "": ""}

    def serialized(data: bytes) -> bytes:
        earlier = bytes(types.serialize_cdr(ros_types().deserialize_cdr(data, TRACKED_OBJECTS), EARLIER))
        assert len(earlier) != len(data), "the layouts differ"
        return earlier

    path = rewritten(recording, tmp_path / "earlier.mcap", EARLIER, encoding, text[encoding], serialized)
    drive = RecordedDrive(path)
    for step, objects in enumerate(drive):
        assert_read(objects, scenario, step)
    assert step == STEPS - 1
    assert not drive.problems


def test_inputs_of_the_earlier_type_made_elsewhere(shared: Path) -> None:
    folder = shared / "data/faults"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    for name in ("auto_idl.mcap", "auto_humble"):
        drive = RecordedDrive(folder / name)
        assert [len(tracked.track_id) for tracked in drive] == [3] * 10
        assert not drive.problems
