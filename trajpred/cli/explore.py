"""The command that serves a page for editing scenarios and predicting them."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trajpred.cli.info import is_map, load_map
from trajpred.cli.scenarios import (
    Positive,
    SourceOptions,
    choose,
    read_all,
    report_skipped,
    store_or_raw,
)
from trajpred.data.splits import Half
from trajpred.errors import require

if TYPE_CHECKING:
    from trajpred.data.scenario import Scenario


def explore(
    *,
    store: Path | None = None,
    scenario: list[str] | None = None,
    checkpoint: str = "argoverse-nano",
    against: str | None = None,
    split: str = "val",
    half: Half | None = None,
    limit: Positive = 10,
    raw: Path | None = None,
    source: str | None = None,
    options: SourceOptions = None,
) -> int:
    """Edit scenarios in the browser: drag a road user, and see the new predictions at once.

    Prints a local address, opens it, and serves it until Ctrl-C. Nothing is written.

    Example: trajpred explore --against lane_following

    Args:
        store: Folder written by prepare; by default the sample's.
        scenario: Ids, or unambiguous starts of them, from any split; by default the first of --split.
        checkpoint: Path of a checkpoint, run or bundle, or name of shipped weights or a baseline.
        against: Another checkpoint or baseline, side by side with the first.
        split: Split to take scenarios from if none is named.
        half: Take them from this half of the split.
        limit: Maximum number of scenarios if none is named.
        raw: Take scenarios from raw data instead: a folder in the official layout, or one scenario; or a
            Lanelet2, OpenDRIVE, CommonRoad or Argoverse 2 map, explored with one car.
        source: Source of the raw data, as for prepare, with its options; by default argoverse2.
    """
    map = raw if raw is not None and source is None and is_map(raw) else None
    require(map is None or not scenario, "raw", "is a map: it is explored alone, without scenarios")
    require(map is None or half is None, "half", "chooses among scenarios of a store: a map has none")
    folder, source = store_or_raw(store, raw, source)
    from trajpred.predictors import load_predictor
    from trajpred.predictors.predictions_file import predictions_files
    from trajpred.viz.explore import scenario_on
    from trajpred.viz.explore.server import Explorer, Server

    predictors = {model: load_predictor(model) for model in (checkpoint, against) if model is not None}
    for model, predictor in predictors.items():
        fixed = f"must be a model or a baseline: the predictions file {model} cannot predict again"
        require(not predictions_files(predictor), "checkpoint", fixed)
    if map is not None:
        scenarios = [scenario_on(load_map(map).lanes, map.stem)]
        imports = "from trajpred import read_map\nfrom trajpred.viz.explore import scenario_on"
        code = {map.stem: (imports, f"scenario_on(read_map({str(map)!r}), {map.stem!r})")}
    else:
        choices = choose(folder, source, split, scenario or [], limit, options, half)
        scenarios = read_all(choices)
        code = {choice.name: choice.code for choice in choices}

    def skip(scenario: Scenario, error: Exception) -> None:
        report_skipped(scenario.scenario_id, error)

    with Server(Explorer(scenarios, predictors, code.__getitem__, skip)) as server:
        print(f"{server.url}\nPress Ctrl-C to stop.", flush=True)
        if sys.stdout.isatty():
            webbrowser.open(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0
