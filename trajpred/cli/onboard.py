"""Commands for the vehicle: export, replay."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trajpred.cli.replay_report import ReplayReport, print_summary
from trajpred.cli.scenarios import choose, open_split
from trajpred.cli.visualize import FILMS, require_picture
from trajpred.errors import DataError, require
from trajpred.files import require_writable
from trajpred.packages import install_command

if TYPE_CHECKING:
    from trajpred.scenario import Scenario
    from trajpred.store import ScenarioStore
    from trajpred.viz.film import ReplayFrame


def export(
    *,
    checkpoint: str = "argoverse-nano",
    out: Path = Path("bundle"),
    store: Path | None = None,
    split: str = "val",
    limit: int = 20,
    max_agents: int | None = None,
    max_lanes: int | None = None,
    precision: Literal["fp32", "fp16", "int8"] = "fp32",
    fused: bool = False,
    opset: int = 20,
    tolerance_m: float | None = None,
    part: Literal["all", "encoder"] = "all",
) -> int:
    """Write and check the bundle that runs onboard without torch: ONNX graphs, description, example.

    Example: trajpred export --checkpoint argoverse-nano --out bundle

    Args:
        checkpoint: Path of a checkpoint or run, or name of shipped weights.
        out: Folder, or a file that ends in .zip.
        store: Scenarios for the check: folder written by prepare; by default the sample's.
        split: Split of the store.
        limit: Number of scenarios to check: the first, those with most tracks and most lanes, then others.
        max_agents: Fixed number of agents; with --max-lanes. By default any number.
        max_lanes: Fixed number of lane segments and crossings; with --max-agents.
        precision: fp32; fp16: trained matrices and their products in half precision; int8: in 8 bits.
        fused: Also write all graphs as one, forecaster.onnx.
        opset: ONNX opset, 20 to 23.
        tolerance_m: Maximum distance of 99 % of the agents' futures from PyTorch's; by default 0.001 m, with
            fp16 0.1 m, with int8 2 m. With fp32 no future may differ by more than ten times that (0.01 m at
            least), and no probability by more than 0.001.
        part: encoder leaves out the decoder, for planners with a head of their own (OnboardEncoder).
    """
    both = (max_agents is None) == (max_lanes is None)
    require(both, "max_agents", "must be given together with --max-lanes")
    for name, size in (("limit", limit), ("max_agents", max_agents), ("max_lanes", max_lanes)):
        require(size is None or size > 0, name, "must be positive")
    require_writable(out.parent, folder=True)
    rows = open_split(store, split)
    try:
        from trajpred.export.export_bundle import export_bundle as write
    except ImportError as error:
        raise DataError(f"exporting needs more packages ({error}): {install_command('export')}") from None
    scenarios = [rows[row] for row in checked_rows(rows, limit)]
    sizes = None if max_agents is None or max_lanes is None else (max_agents, max_lanes)
    found = write(
        checkpoint, out, scenarios, sizes=sizes, precision=precision, fused=fused, opset=opset,
        tolerance_m=tolerance_m, part=part,
    )  # fmt: skip
    print(f"{out}: {found.summary()}")
    for case in found.cases:
        difference = f"{case.largest:.2g} {found.unit}"
        print(f"  {case.agents:4d} agents {case.lanes:4d} lanes  {difference}  {case.name}")
    if part == "encoder":
        print(f'Run it:  trajpred.onboard.OnboardEncoder("{out}").encode(scene)')
        return 0
    from trajpred.store.sample import store_words

    words = ["--checkpoint", str(out), *store_words(rows.path)]
    print(f"Run it:  trajpred replay --bundle {shlex.quote(str(out))}")
    print(f"Score it: trajpred evaluate {shlex.join(words)}")
    return 0


def checked_rows(rows: ScenarioStore, limit: int) -> list[int]:
    """Choose at most ``limit`` rows to check a bundle on; the first is also the example."""
    largest = [int(sizes.argmax()) for sizes in rows.sizes if len(sizes)]
    first = range(min(limit, len(rows)))
    return list(dict.fromkeys((*first[:1], *largest, *first)))[:limit]


def replay(
    *,
    bundle: Path = Path("bundle"),
    scenario: str | None = None,
    store: Path | None = None,
    split: str = "val",
    out: Path | None = None,
    curves: Path | None = None,
    realtime: bool = False,
    threads: int = 0,
    repeat: int = 1,
    tracks: Path | None = None,
    map: Path | None = None,
    topic: str | None = None,
    frame: str = "map",
    min_probability: float = 0.1,
) -> int:
    """Stream a scenario or a recorded drive through a bundle, as onboard, and report the latency.

    Example: trajpred replay --bundle bundle --out replay.gif

    Args:
        bundle: Folder or zip file written by export.
        scenario: Its id, or an unambiguous start of it; by default the first of the split.
        store: Folder written by prepare; by default the sample's.
        split: Split to take the scenario from if none is named.
        out: Also write a film, a file that ends in .gif or .mp4. With --tracks, write the predicted objects
            and the scene for Foxglove, a file that ends in .mcap.
        curves: Also draw error, displacement and switches from update to update (.png, .pdf, .svg).
        realtime: Replay in real time; by default as fast as possible.
        threads: Threads of onnxruntime; 0 for one per core.
        repeat: Number of replays; film and curves show the first.
        tracks: Stream the tracked objects of this ROS 2 bag (folder) or MCAP file instead of a scenario.
        map: With --tracks, the map: Lanelet2, OpenDRIVE, CommonRoad or Argoverse 2.
        topic: With --tracks, topic of the tracked objects, needed if there are several.
        frame: With --tracks, id of the map's frame.
        min_probability: With --tracks, modes below it are not written, except an object's most probable one.
    """
    if tracks is not None:
        from trajpred.cli.drive import replay_drive

        given = {"scenario": scenario, "store": store, "curves": curves, "realtime": realtime or None}
        for name, value in given.items():
            require(value is None, name, "cannot be combined with --tracks")
        return replay_drive(tracks, map, bundle, out, topic, frame, min_probability, threads)
    require(map is None, "map", "needs --tracks: scenarios have their own")
    require(repeat > 0, "repeat", "must be positive")
    film = out is None or out.suffix[1:] in FILMS
    require(film, "out", f"must end in .{' or .'.join(FILMS)}, is {out}")
    from trajpred.onboard import OnboardForecaster
    from trajpred.onboard.replay import Replay
    from trajpred.onboard.replay import replay as stream

    forecaster = OnboardForecaster(bundle, threads=threads)
    if curves is not None:
        require_picture(curves, "curves")
    if out is not None:
        require_writable(out)
        from trajpred.viz.film_file import film_writer

        film_writer(out)  # reports a missing encoder at once
    if out or curves:
        from trajpred.viz.film import ReplayFrame, save_replay
    [chosen] = choose(store, None, split, [scenario] if scenario else [], 1)
    scene, result, updates = chosen.read(), Replay(), []
    with ReplayReport(scene.step_s) as report:
        report.console.print(f"{bundle}: {chosen.name}")
        for turn in range(repeat):
            for update in stream(forecaster, scene, realtime=realtime):
                result.add(update)
                report.add(update)
                if (out or curves) and not turn:
                    updates.append(ReplayFrame.of(update, scene))
    print_summary(result)
    if out is not None:
        save_replay(scene, updates, out)
        print(out)
    if curves is not None:
        _write_curves(scene, updates, curves, f"{chosen.name}, {bundle.name}")
        print(curves)
    return 0


def _write_curves(scenario: Scenario, updates: Sequence[ReplayFrame], path: Path, title: str) -> None:
    from trajpred.evaluation.updates import update_series
    from trajpred.viz import save_scene
    from trajpred.viz.curves import draw_updates

    rows = update_series(scenario, ((one.step, one.forecast) for one in updates))
    save_scene(draw_updates(rows, title), path)
