"""Bags that a killed recorder left, and topics with several writers."""

from __future__ import annotations

import shutil
import sqlite3
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


def test_a_folder_without_metadata_is_read_file_by_file(
    recording: Path, stamps: list[int], tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    folder.mkdir()
    with pytest.raises(DataError, match=r"killed: not a readable ROS 2 bag"):
        RecordedDrive(folder)
    parts = {10: range(16, STEPS), 2: range(8, 16), 1: range(8)}
    for number, rows in parts.items():
        database = sqlite_bag(recording, tmp_path / f"part_{number}", rows)
        shutil.move(database, folder / f"drive_{number}.db3")
    drive = RecordedDrive(folder)
    assert times(drive) == stamps
    assert drive.num_messages == STEPS
    assert not drive.problems
    (folder / "drive_11.mcap").write_bytes(b"")
    drive = RecordedDrive(folder)
    assert times(drive) == stamps
    [problem] = drive.problems
    assert "a file was skipped" in problem
    assert "drive_11.mcap" in problem


@pytest.mark.parametrize("whole_bag", [False, True])
def test_a_truncated_database_is_read_up_to_the_damage(
    recording: Path, stamps: list[int], tmp_path: Path, whole_bag: bool
) -> None:
    database = sqlite_bag(recording, tmp_path / "bag")
    content = database.read_bytes()
    database.write_bytes(content[: len(content) * 2 // 3])
    drive = RecordedDrive(database.parent if whole_bag else database)
    read_times = times(drive)
    assert STEPS // 3 < len(read_times) < STEPS
    assert read_times == stamps[: len(read_times)]
    [problem] = drive.problems
    assert "bag.db3 is damaged and ends early" in problem
    assert ".recover" in problem
    database.write_bytes(content[:5000])
    with pytest.raises(DataError, match=r"sqlite3 .*\.recover") as refusal:
        RecordedDrive(database)
    assert "mcap recover" not in str(refusal.value)


def test_messages_in_a_write_ahead_log_are_read(recording: Path, stamps: list[int], tmp_path: Path) -> None:
    database = sqlite_bag(recording, tmp_path / "bag")
    live = tmp_path / "live.db3"
    with sqlite3.connect(database) as source:
        script = "\n".join(source.iterdump())
    source.close()
    writing = sqlite3.connect(live)
    writing.execute("PRAGMA journal_mode = WAL")
    writing.executescript(script)
    copied = tmp_path / "copied.db3"
    for ending in ("", "-wal"):  # the recorder was killed before it merged the log
        shutil.copy(f"{live}{ending}", f"{copied}{ending}")
    writing.close()
    assert times(RecordedDrive(copied)) == stamps


def test_an_mcap_file_without_an_index_is_read_up_to_the_damage(
    recording: Path, stamps: list[int], tmp_path: Path
) -> None:
    content = recording.read_bytes()
    path = tmp_path / "killed.mcap"
    path.write_bytes(content[: len(content) // 2])
    drive = RecordedDrive(path)
    read_times = times(drive)
    assert 0 < len(read_times) < STEPS
    assert read_times == stamps[: len(read_times)]
    assert drive.problems.total() == 1
    assert drive.num_messages is None
    path.write_bytes(content[:60])
    with pytest.raises(DataError, match="mcap recover"):
        RecordedDrive(path)


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
