"""The part of ``replay`` that streams a recorded drive instead of a scenario."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from trajpred.cli.replay_report import print_summary
from trajpred.errors import DataError, require
from trajpred.files import require_writable

#: Warnings that are printed after a drive.
MOST_COMMON = 5


def replay_drive(
    tracks: Path, map: Path | None, bundle: Path, out: Path | None,
    topic: str | None, frame: str, min_probability: float, threads: int,
) -> int:  # fmt: skip
    """Stream a recording through a bundle, as :func:`trajpred.cli.onboard.replay` describes."""
    if map is None:
        raise DataError("must be given with --tracks", field="map")
    require(out is None or out.suffix == ".mcap", "out", f"must end in .mcap with --tracks, is {out}")
    require(0 <= min_probability <= 1, "min_probability", f"must be 0 to 1, is {min_probability}")
    from trajpred.lane_map import LaneMap
    from trajpred.onboard import Detections, OnboardForecaster, StreamingForecaster
    from trajpred.onboard.replay import Replay, timed_update
    from trajpred.predictors.baselines import lane_following
    from trajpred.progress import progress_bar
    from trajpred.sources.recorded_drive import RecordedDrive
    from trajpred.viz.viewer import DriveFile

    drive, lane_map, result = RecordedDrive(tracks, topic, frame), LaneMap.load(map), Replay()
    stream = StreamingForecaster(OnboardForecaster(bundle, threads=threads), fallback=lane_following)
    step_s = stream.runtime.bundle.step_s
    with ExitStack() as stack:
        file = None
        if out is not None:
            require(not (out.exists() and out.samefile(tracks)), "out", "is the recording itself")
            require_writable(out)
            file = DriveFile(out, lane_map, step_s=step_s, min_probability=min_probability, frame=frame)
            stack.enter_context(file)
        for tracked in progress_bar(drive, total=drive.num_messages, desc=drive.topic, unit=" messages"):
            new_map = None if result.latency_ms else lane_map
            update = timed_update(stream, tracked.time_ns / 1e9, Detections(*tracked[1:6]), new_map)
            result.add(update)
            if file is not None and update.forecast.timestamp_s == tracked.time_ns / 1e9:
                file.add(tracked, stream.history.tracks(), update.forecast)
    for problem, count in [*drive.problems.items(), *result.warnings.most_common(MOST_COMMON)]:
        print(f"{tracks}: {count} times: {problem}")
    require(bool(result.latency_ms), "tracks", f"{tracks} has no readable message in {drive.topic}")
    print_summary(result)
    if out is not None:
        print(out)
    return int(bool(drive.problems))
