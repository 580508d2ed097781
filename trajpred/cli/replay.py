"""The command that streams a scenario or a recorded drive through a bundle, and its output."""

from __future__ import annotations

import math
import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajpred.cli.info import load_map, print_rows
from trajpred.cli.scenarios import choose
from trajpred.cli.visualize import FILMS
from trajpred.data.files import require_writable
from trajpred.errors import DataError, require

if TYPE_CHECKING:
    from trajpred.data.lane_map import LaneMap
    from trajpred.integrations.maps import MapFile
    from trajpred.integrations.replay import Replay

#: Suffix of drives as text.
DRIVE = ".jsonl"
#: Number of kinds of problems printed after a replay.
MOST_COMMON = 5
#: Seconds between the updates of a recorded drive that are compared with the map.
COUNTED_EVERY_S = 1.0
#: The problem of a map whose lanes were never near an object.
FAR_MAP = (
    "no lane of the map was near an object: give one in the objects' frame (a Lanelet2 map needs --origin)"
)


def replay(
    *,
    bundle: Path = Path("bundle"),
    scenario: str | None = None,
    store: Path | None = None,
    split: str = "val",
    out: Path | None = None,
    realtime: bool = False,
    threads: int = 0,
    tracks: Path | None = None,
    map: Path | None = None,
    origin: tuple[float, float] | None = None,
    crs: str | None = None,
    topic: str | None = None,
    frame: str = "map",
    min_probability: float = 0.1,
) -> int:
    """Stream a scenario or a recorded drive through a bundle, as onboard, and report the latency.

    Example: trajpred replay --bundle bundle --out replay.gif

    Args:
        bundle: Folder or zip file written by export.
        scenario: Id of a scenario, or an unambiguous prefix of it; by default the first of the split.
        store: Folder written by prepare; by default the sample's.
        split: Split to take the scenario from if none is named.
        out: Also write a film (.gif, .mp4), or with --tracks the predicted objects and the scene for Foxglove
            (.mcap). A .jsonl file, with or without --tracks, has the map, the detections and the forecasts as
            text, for the runtime in C++.
        realtime: Replay in real time; by default as fast as possible.
        threads: Threads of onnxruntime; 0 for one per core.
        tracks: Stream the tracked objects of this ROS 2 bag (folder) or MCAP file instead of a scenario.
        map: With --tracks, the map: Lanelet2, OpenDRIVE, CommonRoad or Argoverse 2.
        origin: For a Lanelet2 map, latitude and longitude of the origin of the objects' frame, such as 49.0
            8.4; needed if the map has no local_x and local_y.
        crs: Projection of a Lanelet2 map, such as EPSG:32632; by default UTM in the origin's zone.
        topic: With --tracks, topic of the tracked objects; needed if there are several.
        frame: With --tracks, id of the map's frame.
        min_probability: With --tracks, omit less probable modes, except an object's most probable one.
    """
    if tracks is not None:
        require(scenario is None, "scenario", "cannot be combined with --tracks")
        require(store is None, "store", "cannot be combined with --tracks")
        require(not realtime, "realtime", "cannot be combined with --tracks")
        if map is None:
            raise DataError("must be given with --tracks", field="map")
        from trajpred.integrations.maps import require_origin

        file = load_map(map, origin, crs)
        require_origin(file, map, origin)
        return replay_drive(tracks, file, bundle, out, topic, frame, min_probability, threads)
    for name, value in (("map", map), ("origin", origin), ("crs", crs)):
        require(value is None, name, "needs --tracks: scenarios have their own map")
    is_known = out is None or out.suffix == DRIVE or out.suffix[1:].lower() in FILMS
    require(is_known, "out", f"must end in .{', .'.join(FILMS)} or {DRIVE}, is {out}")
    return replay_scenario(bundle, scenario, store, split, out, realtime, threads)


def replay_scenario(
    bundle: Path,
    scenario: str | None,
    store: Path | None,
    split: str,
    out: Path | None,
    realtime: bool,
    threads: int,
) -> int:
    """Stream a scenario of a store through a bundle, as :func:`replay` describes."""
    from trajpred.data.files import progress_bar
    from trajpred.integrations.replay import DriveLines, Replay, ReplayFrame, detections, save_replay
    from trajpred.integrations.replay import replay as stream
    from trajpred.onboard import OnboardForecaster
    from trajpred.viz.film import film_writer

    forecaster = OnboardForecaster(bundle, threads=threads)
    is_text = out is not None and out.suffix == DRIVE
    if out is not None:
        require_writable(out)
    if out is not None and not is_text:
        film_writer(out)  # reports a missing encoder at once
    [choice] = choose(store, None, split, [scenario] if scenario else [], 1)
    scene = choice.read()
    writing: AbstractContextManager[DriveLines | None] = nullcontext()
    if out is not None and is_text:
        archive, lane_map = _as_text(scene.map)
        scene = replace(scene, map=lane_map)
        writing = DriveLines(out, archive)
    result = Replay()
    frames: list[ReplayFrame] = []
    streamed = stream(forecaster, scene, realtime=realtime)
    with writing as file:
        for update in progress_bar(streamed, total=scene.num_steps, desc=choice.name, unit=" updates"):
            result.add(update)
            if file is not None:
                forecast = update.forecast
                file.add(forecast.timestamp_s, detections(scene, update.step), forecast)
            elif out is not None:
                frames.append(ReplayFrame.of(update, scene))
    print_problems(choice.name, result.warnings)
    print_rows(summary(result))
    if out is not None:
        if frames:
            save_replay(scene, frames, out, forecaster.bundle.step_s)
        print(out)
    return int(result.only_failed)


def replay_drive(
    tracks: Path,
    map: MapFile,
    bundle: Path,
    out: Path | None,
    topic: str | None,
    frame: str,
    min_probability: float,
    threads: int,
) -> int:
    """Stream a recording through a bundle, as :func:`replay` describes."""
    is_known = out is None or out.suffix == DRIVE or out.suffix.lower() == ".mcap"
    require(is_known, "out", f"must end in .mcap or {DRIVE} with --tracks, is {out}")
    require(0 <= min_probability <= 1, "min_probability", f"must be 0 to 1, is {min_probability}")
    from trajpred.data.files import progress_bar
    from trajpred.data.plausible import Plausibility
    from trajpred.integrations.mcap import DriveFile
    from trajpred.integrations.recorded_drive import RecordedDrive
    from trajpred.integrations.replay import DriveLines, Replay, timed_update
    from trajpred.onboard import Detections, OnboardForecaster, StreamingForecaster
    from trajpred.predictors.baselines import lane_following

    drive = RecordedDrive(tracks, topic, frame)
    lane_map = map.lanes
    result = Replay()
    counts: list[Plausibility] = []
    counted_s = math.nan
    stream = StreamingForecaster(OnboardForecaster(bundle, threads=threads), fallback=lane_following)
    step_s = stream.runtime.bundle.step_s
    writing: AbstractContextManager[DriveFile | DriveLines | None] = nullcontext()
    if out is not None:
        _require_another_file(out, tracks)
    if out is not None and out.suffix == DRIVE:
        archive, lane_map = _as_text(lane_map)
        writing = DriveLines(out, archive)
    elif out is not None:
        writing = DriveFile(out, lane_map, step_s=step_s, min_probability=min_probability, frame=frame)
    with writing as file:
        for tracked in progress_bar(drive, total=drive.num_messages, desc=drive.topic, unit=" messages"):
            new_map = None if result.latency_ms else lane_map
            timestamp_s = tracked.time_ns / 1e9
            detected = Detections(*tracked[1:6])
            update = timed_update(stream, timestamp_s, detected, new_map)
            result.add(update)
            if not 0 <= timestamp_s - counted_s < COUNTED_EVERY_S:
                counted_s = timestamp_s
                steps = stream.tracks.valid.shape[1]
                counts.append(Plausibility.of_tracks(stream.tracks, steps - 1, step_s, stream.map))
            if isinstance(file, DriveLines):
                file.add(timestamp_s, detected, update.forecast)
            elif file is not None and update.forecast.timestamp_s == timestamp_s:
                file.add(tracked, stream.tracks, update.forecast)
        if not result.latency_ms:  # within the block, to keep an earlier file
            print_problems(tracks, drive.problems)
            raise DataError(f"has no readable message in {drive.topic}", file=tracks)
    if len(lane_map) and not result.encoded:
        drive.problems[FAR_MAP] += 1
    print_problems(tracks, drive.problems + result.warnings)
    total = Plausibility.sum(counts)
    if stream.history.velocity_problem:  # a warning of the stream
        total = total._replace(contradicting=0)
    for problem in total.problems():
        print(f"warning: {tracks}: {problem}", file=sys.stderr)
    print_rows({"map": f"{map.format}, {map.frame}", "on lanes": total.lanes} | summary(result))
    if out is not None:
        print(out)
    return int(bool(drive.problems) or result.only_failed)


def _require_another_file(out: Path, recording: Path) -> None:
    """Raise :class:`DataError` if ``out`` is a file of the recording, or cannot be written."""
    files = [recording, *recording.iterdir()] if recording.is_dir() else [recording]
    is_recorded = out.exists() and any(out.samefile(path) for path in files)
    require(not is_recorded, "out", "is the recording itself")
    require_writable(out)


def _as_text(lane_map: LaneMap) -> tuple[dict[str, Any], LaneMap]:
    """Return a map as the records of a text file, and as read from them: rounded to a millimetre."""
    from trajpred.sources.argoverse2 import archive_of, map_from
    from trajpred.sources.reading import MapProblems

    archive = archive_of(lane_map)
    return archive, map_from(archive, MapProblems())


def print_problems(name: str | Path, problems: Counter[str]) -> None:
    """Print the :data:`MOST_COMMON` problems of a replay."""
    for problem, count in problems.most_common(MOST_COMMON):
        print(f"{name}: {count} times: {problem}")


def summary(result: Replay) -> dict[str, str]:
    """Return the facts that are printed after a replay."""
    from trajpred.integrations.replay import resident_mb

    percentiles = [f"{value:.1f}" for value in result.percentiles_ms().values()]
    rows = {
        "updates": f"{len(result.latency_ms)}",
        "agents predicted per update": f"{min(result.agents)} to {max(result.agents)}",
        "latency p50, p95, p99": f"{', '.join(percentiles)} ms",
        "first update (map, surrounding lanes)": f"{result.latency_ms[0]:.1f} ms",
        "lanes encoded": f"{result.encoded}",
    }
    if result.fallback:
        rows["predicted by the fallback"] = f"{result.fallback} of {sum(result.agents)}"
    for part, share in result.shares().items():
        rows[f"share of {part}"] = f"{share:.0%}"
    memory = resident_mb()
    if memory is not None:
        rows["memory of this process"] = f"{memory:.0f} MB"
    return rows
