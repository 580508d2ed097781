"""The command that describes a file: store, checkpoint, bundle, map, predictions, scenario."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from trajpred.cli.scenarios import Rows, SourceOptions, describe_raw, scenario_rows
from trajpred.errors import DataError, require
from trajpred.model import pretrained

if TYPE_CHECKING:
    from trajpred.data.lane_map import LaneMap
    from trajpred.integrations.maps import MapFile

#: Suffixes of map files.
MAPS = (".osm", ".xodr", ".xml")
#: A key that identifies Argoverse 2's map files.
MAP_KEY = b'"lane_segments"'


def load_map(path: Path, origin: tuple[float, float] | None = None, crs: str | None = None) -> MapFile:
    """Read a map file, and print what was left out."""
    from trajpred.integrations.maps import read_map_file

    file = read_map_file(path, origin=origin, crs=crs)
    for summary in file.problems.summaries():
        print(f"warning: {path}: {summary}", file=sys.stderr)
    return file


def is_map(path: Path) -> bool:
    if not path.is_file():
        return False
    suffix = path.suffix.lower()
    return suffix in MAPS or (suffix == ".json" and MAP_KEY in path.read_bytes())


def save_map(
    what: str, store: Path | None, out: Path, origin: tuple[float, float] | None, crs: str | None
) -> None:
    """Write the map ``what``, or the map of the scenario ``what``. Raises: DataError if there is none."""
    from trajpred.data.files import require_writable
    from trajpred.integrations.maps import write_map

    require(out.suffix == ".json", "save", f"must end in .json, is {out}")
    lane_map = _lane_map(what, store, origin, crs)
    require_writable(out)
    write_map(lane_map, out)
    print(out)


def _lane_map(what: str, store: Path | None, origin: tuple[float, float] | None, crs: str | None) -> LaneMap:
    """Return the map of a file, a raw scenario or a stored scenario. Raises: DataError if there is none."""
    from trajpred.integrations.maps import read_map_file
    from trajpred.sources import SOURCES
    from trajpred.sources.reading import RawScenario
    from trajpred.store import ensure_store, find_scenarios

    path = Path(what)
    if path.exists():
        if is_map(path):
            return read_map_file(path, origin=origin, crs=crs).lanes
        for source in SOURCES.values():
            with suppress(Exception):  # sources of other packages raise anything
                return source.scenario(RawScenario.of(path)).map
        raise DataError("is neither a map nor a scenario", file=path, field="save")
    [(name, rows)] = find_scenarios(ensure_store(store), [what])
    return rows[rows.index(name)].map


#: Number of raw scenarios whose road users are compared with the map.
COUNTED = 20
#: Verdict on a predictions file without a store.
NO_FAULTS = "none in the file itself; evaluate compares its tracks and steps with a store's"


def info(
    what: str,
    *,
    store: Path | None = None,
    save: Path | None = None,
    origin: tuple[float, float] | None = None,
    crs: str | None = None,
    source: str | None = None,
    options: SourceOptions = None,
) -> int:
    """Show what is in a store, scenario, map, run, checkpoint, bundle, predictions, results or raw data.

    Example: trajpred info argoverse-nano

    Args:
        what: A path, the name of shipped weights, or a scenario's id or an unambiguous prefix of it.
        store: Folder written by prepare that contains the scenario; by default the sample's.
        save: Also write the map, or the scenario's map, to this .json file in Argoverse 2's format, for C++.
        origin: For a Lanelet2 map, latitude and longitude of the frame's origin, such as 49.0 8.4; by default
            the middle of the map. For a table with such a map, that of its positions.
        crs: Projection of a Lanelet2 map, such as EPSG:32632; by default UTM in the origin's zone.
        source: Source of raw data, as for prepare, with its options: for tables, show their content and the
            first window before anything is prepared. By default raw data are recognised.
    """
    if source is not None:
        for name, setting in (("crs", crs), ("save", save), ("store", store)):
            require(setting is None, name, "is not for raw data")
        if origin is not None:
            require(hasattr(options, "origin"), "origin", f"is no option of {source}")
            options = replace(options, origin=origin)
        print(f"Raw data {what}")
        print_rows(_raw_of(Path(what), source, options))
        return 0
    for name, value in (("origin", origin), ("crs", crs)):
        require(value is None or is_map(Path(what)), name, "is for map files")
    title, rows = describe(what, store, origin, crs)
    print(title)
    print_rows(rows)
    if save is not None:
        save_map(what, store, save, origin, crs)
    return 0


def _raw_of(path: Path, name: str, options: object) -> Rows:
    """Describe raw data of a source by the windows of each split, and the first one."""
    from trajpred.data.plausible import Plausibility
    from trajpred.sources import find_source

    source = find_source(name)
    rows: Rows = {"source": name, **source.facts_of(path, options)}
    splits = source.scenarios(path, options)
    for split, scenarios in splits.items():
        rows[split] = f"{len(scenarios):,} scenarios"
    discovered = list(chain.from_iterable(splits.values()))
    counts: list[Plausibility] = []
    for raw in discovered[:: math.ceil(len(discovered) / COUNTED)]:
        with suppress(Exception):  # sources of other packages raise anything
            counts.append(Plausibility.of(source.scenario(raw, options)))
    total = Plausibility.sum(counts)
    rows["on lanes"] = total.lanes
    rows["unplaced"] = total.gaps
    rows["mistakes"] = "; ".join(total.problems())
    scenario = source.scenario(discovered[0], options)
    rows["first"] = discovered[0].name
    for field, value in scenario_rows(scenario).items():
        rows[f"first: {field}"] = value
    return rows


def print_rows(rows: Rows) -> None:
    """Print a line for each row with a value."""
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        if value not in (None, ""):
            table.add_row(name, str(value))
    Console(highlight=False).print(table, markup=False)


def describe(
    what: str, store: Path | None = None, origin: tuple[float, float] | None = None, crs: str | None = None
) -> tuple[str, Rows]:
    """Return a title and facts about ``what``. Raises: DataError if it is of no known kind."""
    from trajpred.onboard.bundle import is_bundle
    from trajpred.predictors.predictions_file import SUFFIXES
    from trajpred.store.reader import MANIFEST

    path = Path(what)
    checkpoint = pretrained.locate(what)
    if (path / MANIFEST).is_file():
        return f"Store {path}", _store(path)
    if is_bundle(path):
        return f"Onboard bundle {path}", _bundle(path)
    if checkpoint.is_file() and checkpoint.suffix in (".ckpt", ".pt"):
        return f"Checkpoint {what}", _checkpoint(checkpoint)
    if is_map(path):
        return f"Map {path}", _map(path, origin, crs)
    if path.suffix == ".json" and path.is_file():
        return f"Results {path}", _results(path)
    if path.suffix in SUFFIXES and path.is_file():
        return f"Predictions {path}", _predictions(path)
    if path.exists():
        return describe_raw(path)
    return _stored(what, store)


def _store(path: Path) -> Rows:
    """Return the facts about a store: how it was made, and the scenarios of each split."""
    from trajpred.data.plausible import Plausibility
    from trajpred.store import ScenarioStore
    from trajpred.store.reader import read_manifest

    manifest = read_manifest(path)
    rows: Rows = {"source": manifest.get("source")}
    extended = manifest.get("extended")
    if extended and "train" in manifest["splits"]:
        rows["continued"] = "{seconds:g} s of training scenarios, by {teacher} ({sha256})".format(**extended)
    for name, value in manifest.get("options", {}).items():
        rows[name] = " ".join(value) if isinstance(value, list) else value
    for split, facts in manifest["splits"].items():
        scenarios = ScenarioStore(path, split)
        parts = [f"{len(scenarios):,} scenarios"]
        windows = [f"{seen} + {steps - seen} steps" for seen, steps in facts["lengths"]]
        if windows:
            parts.append(" or ".join(windows))
        if len(scenarios):
            tracks, lanes = scenarios.sizes
            parts.append(f"{tracks.min()} to {tracks.max()} tracks")
            parts.append(f"{lanes.min()} to {lanes.max()} lanes and crossings")
        counts = Plausibility(*facts.get("plausibility", ()))
        parts += filter(None, (counts.lanes, counts.gaps))
        parts += counts.problems()
        parts.append(_megabytes((path / split).iterdir()))
        if facts["skipped"]:
            parts.append(f"{len(facts['skipped'])} skipped")
        rows[split] = ", ".join(parts)
    return rows


def _checkpoint(path: Path) -> Rows:
    """Return the facts about a checkpoint: its model, its input and output, and its training."""
    from trajpred.evaluation.origin import format_training
    from trajpred.model.checkpoint import CALIBRATION, CONFIG, read_checkpoint, training_facts

    # Do not build the model: its classes may belong to another program.
    content = read_checkpoint(path)
    config = content[CONFIG]
    training = training_facts(content)
    parameters = sum(weight.numel() for weight in content["state_dict"].values())
    encoder_class = config["encoder"]["class_path"].rpartition(".")[2]
    decoder_class = config["decoder"]["class_path"].rpartition(".")[2]
    decoder = config["decoder"].get("init_args", {})
    history = config.get("history", 50)
    horizon = decoder.get("horizon", 60)
    return {
        "file": f"{path}, {_megabytes([path])}",
        "futures": decoder.get("modes"),
        "steps": f"{history} + {horizon} of {config.get('step_s', 0.1)} s",
        "model": f"{encoder_class} with {decoder_class}, {parameters / 1e6:.1f} M parameters",
        "joint futures": "yes" if decoder.get("joint") else "no",
        "calibrated": "yes" if CALIBRATION in content else "no",
        "recipe": training.get("recipe"),
        "epoch": training.get("epoch"),
        "training": format_training([training]),
        "licence": pretrained.licence_of(path, training) or None,
    }


def _bundle(path: Path) -> Rows:
    """Return the facts about an onboard bundle: its model, its input and output, and its training."""
    from trajpred.evaluation.origin import format_training
    from trajpred.onboard.bundle import Bundle

    bundle = Bundle(path)
    sizes = "any number"
    if bundle.sizes is not None:
        agents, lanes = bundle.sizes
        sizes = f"{agents} agents, {lanes} lanes"
    steps = str(bundle.history)
    if bundle.modes:
        steps += f" + {bundle.horizon}"
    files = path.iterdir() if path.is_dir() else [path]
    return {
        "model": bundle.name,
        "futures": bundle.modes or "none: the encoder alone",
        "steps": f"{steps} of {bundle.step_s} s",
        "precision": bundle.precision,
        "agents and lanes": sizes,
        "size": _megabytes(files),
        "recipe": bundle.training.get("recipe"),
        "training": format_training([bundle.training]),
        "licence": bundle.licence or None,
    }


def _results(path: Path) -> Rows:
    """Return the focal agents' means and the origin of each result in a file, by predictor."""
    from trajpred.evaluation import read_results
    from trajpred.evaluation.origin import format_origin
    from trajpred.metrics import headline

    rows: Rows = {}
    for result in read_results(path):
        focal = result.metrics["focal"]
        names = [column.title for column in headline()]
        means = [f"{name} {focal[name]:.2f}" for name in names if name in focal]
        description = f"{result.data}, focal agents: {', '.join(means)}"
        name = ", ".join(filter(None, (result.predictor, result.part)))
        rows[name] = f"{description}\n{format_origin([result])}"
    return rows


def _predictions(path: Path) -> Rows:
    """Return the numbers of scenarios, tracks, steps and faults of a predictions file."""
    from trajpred.predictors.predictions_file import read_predictions

    predictions = read_predictions(path)
    tracks: list[int] = []
    steps: set[int] = set()
    for name in predictions.scenario_ids:
        tracks.append(len(predictions.track_ids(name)))
        steps.add(predictions.steps(name))
    faults = NO_FAULTS
    if predictions.problems:
        faults = f"in {len(predictions.problems):,} scenarios"
    return {
        "scenarios": f"{len(tracks):,}, {sum(predictions.joint.values()):,} with joint futures",
        "tracks": f"{sum(tracks):,}, {min(tracks, default=0)} to {max(tracks, default=0)} of a scenario",
        "steps": " or ".join(str(count) for count in sorted(steps)),
        "faults": faults,
        "note": predictions.note,
        "size": _megabytes([path]),
    }


def _map(path: Path, origin: tuple[float, float] | None, crs: str | None) -> Rows:
    """Return the facts about a map file: lanes, crossings, extent, and what is wrong with them."""
    import numpy as np

    from trajpred.data.geometry import arc_length
    from trajpred.data.lane_map import LANE_TYPES
    from trajpred.integrations.maps.segments import faults

    file = load_map(path, origin, crs)
    lanes = file.lanes
    counts = np.bincount(lanes.lane_type, minlength=len(LANE_TYPES)).tolist()
    kinds = [f"{count:,} {name}" for name, count in zip(LANE_TYPES, counts, strict=True) if count]
    metres = 0.0
    for line in lanes.centerline:
        metres += float(arc_length(line[:, :2])[-1])
    low, high = lanes.extent()
    problems = faults(lanes) + file.problems.summaries()
    return {
        "format": file.format,
        "frame": file.frame,
        "lanes": f"{len(lanes):,} segments ({', '.join(kinds)}), {metres / 1000:.2f} km",
        "in intersections": int(lanes.is_intersection.sum()),
        "crossings": len(lanes.crossing_id),
        "extent": f"x {low[0]:.1f} to {high[0]:.1f}, y {low[1]:.1f} to {high[1]:.1f} m",
        "faults": "; ".join(problems) or "none",
        "size": _megabytes([path]),
    }


def _stored(name: str, store: Path | None) -> tuple[str, Rows]:
    """Return a title and the facts about a scenario of a store, found by the start of its id."""
    from trajpred.store import ensure_store, find_scenarios

    folder = ensure_store(store)
    try:
        [(scenario_id, scenarios)] = find_scenarios(folder, [name])
    except DataError as error:
        names = f"nor a file, nor shipped weights: {pretrained.names()}"
        raise DataError(f"{error.message}, {names}", file=error.file) from None
    rows: Rows = {"split": scenarios.split, "store": folder}
    rows.update(scenario_rows(scenarios[scenarios.index(scenario_id)]))
    return f"Scenario {scenario_id}", rows


def _megabytes(files: Iterable[Path]) -> str:
    """Return the total size of the files that exist."""
    size = sum(file.stat().st_size for file in files if file.is_file())
    return f"{size / 1e6:.1f} MB"
