"""Autoware's earlier tracked objects are read by their own definition, recorded or not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mcap.reader import make_reader
from mcap.writer import Writer
from rosbags.typesys import Stores, get_types_from_idl, get_typestore
from rosbags.typesys.store import Typestore

from tests.integrations.drives import TOPIC, assert_read, write_drive
from trajpred.data.scenario import Scenario
from trajpred.integrations.recorded_drive import TRACKED_OBJECTS, RecordedDrive, ros_types

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


def earlier_types() -> Typestore:
    types = get_typestore(Stores.ROS2_HUMBLE)
    for text in IDL:
        types.register(get_types_from_idl(re.sub("#.*", "", text)))
    return types


@pytest.mark.parametrize("encoding", ["ros2idl", "ros2msg", ""])
def test_the_earlier_layout_is_read_by_its_own_definition(
    sample_scenarios: list[Scenario], tmp_path: Path, encoding: str
) -> None:
    scenario = sample_scenarios[0]
    types = earlier_types()
    newer = write_drive(scenario, tmp_path / "newer.mcap", steps=3)
    text = {"ros2idl": recorded_idl(), "ros2msg": types.generate_msgdef(EARLIER, ros_version=2)[0], "": ""}
    path = tmp_path / "earlier.mcap"
    with newer.open("rb") as source, path.open("wb") as target:
        writer = Writer(target)
        writer.start("ros2")
        schema = writer.register_schema(EARLIER, encoding, text[encoding].encode())
        channel = writer.register_channel(TOPIC, "cdr", schema)
        for _, _, message in make_reader(source).iter_messages():
            objects = ros_types().deserialize_cdr(message.data, TRACKED_OBJECTS)
            data = bytes(types.serialize_cdr(objects, EARLIER))
            assert len(data) != len(message.data), "the layouts differ"
            writer.add_message(channel, message.log_time, data, message.publish_time)
        writer.finish()
    drive = RecordedDrive(path)
    messages = list(drive)
    assert len(messages) == 3
    assert not drive.problems
    for step, tracked in enumerate(messages):
        assert_read(tracked, scenario, step)


def test_inputs_of_the_earlier_type_made_elsewhere(shared: Path) -> None:
    folder = shared / "data/faults"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    for name in ("auto_idl.mcap", "auto_humble"):
        drive = RecordedDrive(folder / name)
        assert [len(tracked.track_id) for tracked in drive] == [3] * 10
        assert not drive.problems
