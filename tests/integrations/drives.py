"""Recorded drives made from scenarios, written with mcap-ros2-support: the package reads with rosbags."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from mcap_ros2.writer import Writer
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as BagWriter

from trajpred.data.scenario import Scenario
from trajpred.data.tracks import TYPICAL_SIZE
from trajpred.integrations.recorded_drive import LABELS, TRACKED_OBJECTS, TrackedObjects, ros_types
from trajpred.integrations.replay import detections

TOPIC = "/perception/object_recognition/tracking/objects"
#: The label that each object type of the sample is written as.
LABEL = {name: LABELS.index(name) for name in dict.fromkeys(LABELS)}


def identity(track_id: str) -> bytes:
    """Return the UUID that a track has in the recording."""
    return uuid.uuid5(uuid.NAMESPACE_OID, track_id).bytes


def tracked(scenario: Scenario, step: int, *, frame: str = "map", orientation: int = 2) -> dict[str, Any]:
    """Return the message of one step: velocities in the object's frame, as Autoware has them; no zeros."""
    seen = detections(scenario, step)
    objects = []
    for row, name in enumerate(seen.track_id):
        heading = float(np.asarray(seen.heading)[row])
        x, y = np.asarray(seen.position)[row]
        vx, vy = np.asarray(seen.velocity)[row]
        cos = math.cos(heading)
        sin = math.sin(heading)
        kind = (seen.object_type or [])[row]
        length, width = TYPICAL_SIZE[kind]
        point = {"x": float(x), "y": float(y), "z": 1.5}
        turn = {"x": 0.0, "y": 0.0, "z": math.sin(heading / 2), "w": math.cos(heading / 2)}
        linear = {"x": vx * cos + vy * sin, "y": vy * cos - vx * sin, "z": 0.0}
        motion = {
            "pose_with_covariance": {"pose": {"position": point, "orientation": turn}},
            "twist_with_covariance": {"twist": {"linear": linear}},
            "orientation_availability": orientation,
        }
        label = {"label": LABEL.get(kind, 0), "probability": 0.9}
        box = {"dimensions": {"x": length, "y": width, "z": 1.6}}
        objects.append(
            {
                "object_id": {"uuid": list(identity(name))},
                "existence_probability": 0.75,
                "classification": [{"label": 0, "probability": 0.1}, label],
                "kinematics": motion,
                "shape": box,
            }
        )
    sec, nanosec = divmod(int(scenario.timestamps_ns[step]), 10**9)
    return {"header": {"stamp": {"sec": sec, "nanosec": nanosec}, "frame_id": frame}, "objects": objects}


def assert_read(objects: TrackedObjects, scenario: Scenario, step: int) -> None:
    """Assert that the tracked objects of a recording are those of a step of the scenario."""
    expected = detections(scenario, step)
    assert objects.time_ns == scenario.timestamps_ns[step], "when measured, not logged"
    assert objects.track_id == [identity(name).hex() for name in expected.track_id]
    np.testing.assert_array_equal(objects.position, expected.position)
    np.testing.assert_allclose(objects.velocity, expected.velocity, atol=1e-9)
    turned = objects.heading - np.asarray(expected.heading)
    np.testing.assert_allclose(np.exp(1j * turned), 1, atol=1e-9)
    assert (objects.size > 0).all()


def write_drive(scenario: Scenario, path: Path, steps: int | None = None, **look: Any) -> Path:
    """Write the first steps of a scenario, by default all, as an MCAP file of an Autoware vehicle."""
    messages = [tracked(scenario, step, **look) for step in range(steps or scenario.num_steps)]
    return write_messages(path, messages, scenario.timestamps_ns.tolist())


def write_messages(path: Path, messages: Sequence[dict[str, Any]], times: Sequence[int]) -> Path:
    definition, _ = ros_types().generate_msgdef(TRACKED_OBJECTS, ros_version=2)
    with path.open("wb") as stream:
        writer = Writer(stream, chunk_size=2**14)
        schema = writer.register_msgdef(TRACKED_OBJECTS, definition)
        for message, time_ns in zip(messages, times, strict=False):
            # Logged later than it was measured, as on a vehicle.
            late = time_ns + 70_000_000
            writer.write_message(TOPIC, schema, message, log_time=late, publish_time=late)
        writer.finish()
    return path


def as_bag(recording: Path, folder: Path, storage: StoragePlugin, cut: tuple[int, ...] = ()) -> Path:
    """Copy messages of an MCAP file, some of them cut, to a ROS 2 bag of rosbags, beside another topic."""
    with recording.open("rb") as stream, BagWriter(folder, version=9, storage_plugin=storage) as writer:
        topic = writer.add_connection(TOPIC, TRACKED_OBJECTS, typestore=ros_types())
        other = writer.add_connection("/clock", "builtin_interfaces/msg/Time", typestore=ros_types())
        for row, (_, _, message) in enumerate(make_reader(stream).iter_messages()):
            writer.write(other, message.log_time, b"\0\1\0\0" + bytes(8))
            writer.write(topic, message.log_time, message.data[: 200 if row in cut else None])
    return folder


def read_back(path: Path, topic: str) -> Iterator[tuple[int, Any]]:
    """Decode a topic with mcap-ros2-support: log times, and messages."""
    with path.open("rb") as stream:
        reader = make_reader(stream, validate_crcs=True, decoder_factories=[DecoderFactory()])
        for _, _, message, decoded in reader.iter_decoded_messages(topics=[topic]):
            yield message.log_time, decoded
