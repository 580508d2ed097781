"""Bags that a killed recorder left, and topics with several writers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mcap.reader import make_reader
from mcap.writer import Writer as McapWriter
from rosbags.rosbag2 import StoragePlugin, Writer

from tests.integrations.drives import TOPIC, write_drive
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.integrations.recorded_drive import TRACKED_OBJECTS, RecordedDrive, ros_types

STEPS = 24


@pytest.fixture(scope="module")
def recording(sample_scenarios: list[Scenario], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_drive(sample_scenarios[0], tmp_path_factory.mktemp("drive") / "drive.mcap", steps=STEPS)


@pytest.fixture(scope="module")
def stamps(sample_scenarios: list[Scenario]) -> list[int]:
    return sample_scenarios[0].timestamps_ns[:STEPS].tolist()


def sqlite_bag(recording: Path, folder: Path, rows: range = range(STEPS)) -> Path:
    """Copy messages to a bag of rosbags, and return its database."""
    with (
        recording.open("rb") as stream,
        Writer(folder, version=9, storage_plugin=StoragePlugin.SQLITE3) as bag,
    ):
        topic = bag.add_connection(TOPIC, TRACKED_OBJECTS, typestore=ros_types())
        for row, (_, _, message) in enumerate(make_reader(stream).iter_messages()):
            if row in rows:
                bag.write(topic, message.log_time, message.data)
    return folder / f"{folder.name}.db3"


def times(drive: RecordedDrive) -> list[int]:
    return [tracked.time_ns for tracked in drive]


def test_what_a_killed_recorder_leaves_names_the_tool_that_repairs_it(
    recording: Path, tmp_path: Path
) -> None:
    database = sqlite_bag(recording, tmp_path / "bag")
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
        (tmp_path / "absent.mcap", "no such recording"),
    ):
        with pytest.raises(DataError, match=tool):
            RecordedDrive(path)


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


def test_all_writers_of_a_topic_are_read(recording: Path, stamps: list[int], tmp_path: Path) -> None:
    path = tmp_path / "two.mcap"
    with recording.open("rb") as source, path.open("wb") as target:
        writer = McapWriter(target)
        writer.start("ros2")
        definition, _ = ros_types().generate_msgdef(TRACKED_OBJECTS, ros_version=2)
        schema = writer.register_schema(TRACKED_OBJECTS, "ros2msg", definition.encode())
        channels = [writer.register_channel(TOPIC, "cdr", schema, {"writer": str(i)}) for i in range(2)]
        for row, (_, _, message) in enumerate(make_reader(source).iter_messages()):
            channel = channels[row % 2]
            writer.add_message(channel, message.log_time, message.data, message.publish_time)
        writer.finish()
    drive = RecordedDrive(path)
    assert times(drive) == stamps
    assert drive.num_messages == STEPS
