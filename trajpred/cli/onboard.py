"""From a checkpoint to a vehicle: export, replay. torch waits until a checkpoint is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trajpred.cli.arguments import as_list
from trajpred.errors import DataError, require
from trajpred.onboard import open_bundle
from trajpred.store.sample import SAMPLE_STORE, ensure_store

if TYPE_CHECKING:
    from trajpred.store import ScenarioStore


def export(
    checkpoint: str = "argoverse2-demo",
    out: Path = Path("bundle"),
    store: Path = SAMPLE_STORE,
    split: str = "val",
    limit: int = 20,
    max_agents: int | None = None,
    max_lanes: int | None = None,
    precision: Literal["fp32", "fp16", "int8"] = "fp32",
    fused: bool = False,
    format: Literal["onnx", "torch"] = "onnx",
    opset: int = 20,
    tolerance_m: float | None = None,
) -> int:
    """Make the bundle that runs onboard, without torch: ONNX graphs, their description, an example; checked.

    Example: python tools/export.py --checkpoint argoverse2-demo --out bundle

    Args:
        checkpoint: path of a trained model, or the name of weights that ship.
        out: folder, or a file that ends in .zip.
        store: scenarios to check it on (their windows are cut to the model's), written by tools/prepare.py.
        split: of the store.
        limit: check on so many of them: the first, those with most tracks and most lanes, then others.
        max_agents: fixed number of agents; with --max-lanes. By default any number.
        max_lanes: fixed number of lane segments and crossings; with --max-agents.
        precision: fp32; fp16: trained matrices and products with them in half precision; int8: in 8 bits.
        fused: also all graphs as one, forecaster.onnx.
        format: torch also compiles them as one for PyTorch alone, forecaster.pt2, in fp32 only; takes a C++
            compiler and minutes.
        opset: of ONNX, 20 to 23.
        tolerance_m: how far 99 % of the agents' futures may lie from PyTorch's; by default 0.001 m, with fp16
            0.1 m, with int8 2 m. With fp32 none may lie more than ten times as far (0.01 m at least), and no
            probability may differ by more than 0.001.
    """
    both = (max_agents is None) == (max_lanes is None)
    require(both, "max_agents", "goes with --max-lanes: give both or neither")
    require(limit > 0, "limit", "must be positive")
    try:
        from trajpred.export.export_bundle import export_bundle as write
    except ImportError as error:
        raise DataError(f'exporting needs more packages ({error}): pip install "trajpred[export]"') from None
    from trajpred.store import ScenarioStore

    rows = ScenarioStore(ensure_store(store), split)
    scenarios = [rows[row] for row in checked_rows(rows, limit)]
    sizes = None if max_agents is None or max_lanes is None else (max_agents, max_lanes)
    found = write(
        checkpoint, out, scenarios, sizes=sizes, precision=precision, fused=fused, compiled=format == "torch",
        opset=opset, tolerance_m=tolerance_m,
    )  # fmt: skip
    print(f"{out}: {found.summary()}")
    for case in found.cases:
        print(f"  {case.agents:4d} agents {case.lanes:4d} lanes  {case.largest_m:.2g} m  {case.name}")
    print(f"Run it:  python tools/replay.py --bundle {out}")
    print(f"Score it: python tools/evaluate.py --checkpoint {out}")
    return 0


def checked_rows(rows: ScenarioStore, limit: int) -> list[int]:
    """Which scenarios to check a bundle on, at most ``limit``; the first is also the example."""
    largest = [int(sizes.argmax()) for sizes in rows.sizes if len(sizes)]
    first = range(min(limit, len(rows)))
    return list(dict.fromkeys((*first[:1], *largest, *first)))[:limit]


def replay(
    bundle: Path = Path("bundle"),
    scenario: str | None = None,
    store: Path = SAMPLE_STORE,
    split: str = "val",
    out: Path | None = None,
    realtime: bool = False,
    threads: int = 0,
    repeat: int = 1,
) -> int:
    """Stream a scenario through a bundle, step by step as onboard; tells how long each answer takes, and why.

    Example: python tools/replay.py --bundle bundle --out replay.gif

    Args:
        bundle: folder or zip file made by tools/export.py.
        scenario: its id; by default the first of the split.
        store: folder written by tools/prepare.py.
        split: where to take the scenario from if none is named.
        out: also a film of it, a file that ends in .gif or .mp4.
        realtime: at true speed; by default as fast as it goes.
        threads: that onnxruntime computes with; 0 takes one for each core.
        repeat: replay it so many times; the film shows the first.
    """
    require(repeat > 0, "repeat", "must be positive")
    forecaster = open_bundle(bundle, threads)
    if out is not None:
        from trajpred.viz.film_files import film_writer

        film_writer(out)
    from trajpred.cli.choose import from_store
    from trajpred.cli.replay_report import ReplayReport, summary
    from trajpred.onboard.replay import Replay, resident_mb
    from trajpred.onboard.replay import replay as stream

    [chosen] = from_store(ensure_store(store), split, as_list(scenario), 1)
    scene, result, shown = chosen.read(), Replay(), []
    with ReplayReport(scene.step_s) as report:
        report.console.print(f"{bundle}: {chosen.name}")
        for turn in range(repeat):
            for update in stream(forecaster, scene, realtime=realtime):
                result.add(update)
                report.tell(update)
                if out is not None and not turn:
                    from trajpred.viz.replay_film import Shown

                    shown.append(Shown.of(update, scene))
    report.console.print(summary(result, resident_mb()))
    if out is not None:
        from trajpred.viz.replay_film import save_replay

        save_replay(scene, shown, out)
        print(out)
    return 0
