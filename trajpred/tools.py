"""The tools as functions: arguments and their meaning, then one call into the package.

``cli.py`` makes command lines of them. torch is imported only by those that need it.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Literal

from trajpred.download import BUCKET, ENDPOINT, PREFIX, SPLITS
from trajpred.download import download as fetch
from trajpred.errors import DataError, require
from trajpred.sample import SAMPLE_RAW, SAMPLE_STORE, ensure_store

Split = Literal["train", "val", "test"]


def download(
    out: Path,
    split: list[Split] | Split | None = None,
    limit: int | None = None,
    workers: int = 16,
    endpoint: str = ENDPOINT,
    bucket: str = BUCKET,
    prefix: str = PREFIX,
) -> int:
    """Fetch Argoverse 2 (58 GB), verified, resumable; a taste: --out /data/av2 --split train val --limit 100.

    Args:
        out: target folder; gets {train,val,test}/ID/.
        split: one or more of train, val, test; by default all.
        limit: the first so many scenarios of each split; by default all.
        workers: files fetched at once.
        endpoint: URL of the S3 service, for a mirror.
        bucket: its name there.
        prefix: the folder that holds the splits.
    """
    splits = [split] if isinstance(split, str) else split or SPLITS
    again = "the same command continues where this one stopped"
    try:
        done = fetch(
            out, splits=splits, limit=limit, workers=workers, endpoint=endpoint, bucket=bucket, prefix=prefix
        )
    except KeyboardInterrupt:
        print(f"\nstopped; {again}", file=sys.stderr)
        return 130
    print(f"{done.fetched} files fetched ({done.fetched_bytes / 1e9:.2f} GB), {done.kept} kept")
    if done.failed:
        listed = "\n".join(f"  {path}: {problem}" for path, problem in done.failed.items())
        print(f"{len(done.failed)} files failed; {again}:\n{listed}", file=sys.stderr)
    else:
        print(f"Prepare it: python tools/prepare.py --raw {shlex.quote(str(out))} --store STORE")
    return int(bool(done.failed))


def prepare(
    source: str = "argoverse2",
    raw: Path = SAMPLE_RAW,
    store: Path = SAMPLE_STORE,
    workers: int = -1,
    scheduler: str | None = None,
    shard_size: int = 256,
    compression: Literal["zstd"] | None = None,
    heights: bool = False,
    strict: bool = False,
    overwrite: bool = False,
) -> int:
    """Turn raw scenarios into a store: in parallel, resumable, reporting and skipping what cannot be read.

    Example: python tools/prepare.py --source argoverse2 --raw /data/av2 --store /data/av2-store

    Args:
        source: data set, by name, or package.module:OBJECT (trajpred/sources/README.md).
        raw: its folder in the official layout; for Argoverse 2 {train,val,test}/ID/.
        store: target folder.
        workers: processes; -1 for all cores.
        scheduler: a Dask scheduler, tcp://host:8786, whose workers do it instead; they see the same folders.
        shard_size: scenarios per file.
        compression: zstd for a smaller store that is slower to read.
        heights: keep the heights of the map's points.
        strict: exit with an error if any scenario had to be skipped.
        overwrite: let the store lose scenarios that this run does not make.
    """
    from trajpred.store import prepare as prepare_store

    foreign = raw != SAMPLE_RAW and store == SAMPLE_STORE
    require(not foreign, "store", "give --store too: the default one is the sample's")
    try:
        summary = prepare_store(
            source,
            raw,
            store,
            workers=workers,
            scheduler=scheduler,
            shard_size=shard_size,
            compression=compression,
            heights=heights,
            overwrite=overwrite,
        )
    except KeyboardInterrupt:
        print("\nstopped; the same command continues", file=sys.stderr)
        return 130
    for split, count in summary.scenarios.items():
        skipped = summary.skipped[split]
        print(f"{split}: {count} scenarios" + (f", {len(skipped)} skipped:" if skipped else ""))
        for name, problem in skipped.items():
            print(f"  {name}: {problem}", file=sys.stderr)
    if not any(summary.scenarios.values()):
        raise DataError("no scenario could be read", file=raw)
    absent = [split for split in ("train", "val") if not summary.scenarios.get(split)]
    if absent:
        print(f"Training also needs: {', '.join(absent)}")
    else:
        print(f"Train on it: python tools/train.py --data.store {shlex.quote(str(store))}")
    return int(strict and any(summary.skipped.values()))


def synthesize(
    out: Path,
    scenarios: int = 1000,
    seed: int = 0,
    val: float = 0.1,
    test: float = 0.1,
    steps: int = 110,
    observed: int = 50,
    workers: int = -1,
) -> int:
    """Write synthetic scenarios in Argoverse 2's format: --out /data/synthetic --scenarios 1000.

    Args:
        out: target folder, new or empty.
        scenarios: how many in all splits together.
        seed: the same seed gives the same bytes.
        val: share of the validation split.
        test: share of the test split, which has no futures.
        steps: of 0.1 s in each scenario.
        observed: how many of them are input.
        workers: processes; -1 for all cores.
    """
    from trajpred.sources.synthetic import synthesize as write

    for split, count in write(out, scenarios, seed, val, test, steps, observed, workers).items():
        print(f"{split}: {count} synthetic scenarios")
    raw = str(out)
    print(f"Prepare: python tools/prepare.py --raw {shlex.quote(raw)} --store {shlex.quote(raw + '-store')}")
    return 0


def evaluate(
    checkpoint: str = "constant_velocity",
    store: Path = SAMPLE_STORE,
    split: str = "val",
    json: Path | None = None,
    batch_size: int = 16,
) -> int:
    """Score a checkpoint or a baseline on the labelled scenarios of a split.

    Example: python tools/evaluate.py --checkpoint runs/forecaster/version_0/checkpoints/best.ckpt --split val

    Args:
        checkpoint: path of a checkpoint, name of weights that ship (argoverse1-small), or constant_velocity,
            constant_turn_rate or lane_following.
        store: folder written by tools/prepare.py.
        split: train, val or test.
        json: write the results here too.
        batch_size: scenarios at once.
    """
    from trajpred.evaluation import evaluate as score
    from trajpred.evaluation import format_table, load_predictor, write_results
    from trajpred.store import ScenarioStore

    if json is not None:
        json.parent.mkdir(parents=True, exist_ok=True)
    predictor = load_predictor(checkpoint)
    result = score(predictor, ScenarioStore(ensure_store(store), split), batch_size=batch_size)
    for group, title in (("focal", "Focal agents"), ("scored", "Scored agents"), ("all", "All agents")):
        print(f"\n{title} ({result.scenarios} scenarios):\n{format_table([result], group)}")
    if result.missing:
        print(f"\n{result.missing} tracks were not predicted and count in no metric.")
    if json is not None:
        write_results(json, result)
    return 0


def visualize(
    store: Path = SAMPLE_STORE,
    scenario: list[str] | str | None = None,
    checkpoint: str | None = None,
    split: str = "val",
    out: Path = Path("pictures"),
    limit: int = 10,
    format: Literal["png", "pdf", "svg"] = "png",
    radius_m: float | None = None,
) -> int:
    """Draw scenarios from above, with the futures that a checkpoint or a baseline predicts.

    Example: python tools/visualize.py --scenario 0a1e6f0a-1817-4a98-b02e-db8c9327d151 --out pictures

    Args:
        store: folder written by tools/prepare.py.
        scenario: id, or "[id, id]"; from the split, or else any other. By default the first of the split.
        checkpoint: path of a checkpoint, or the name of a baseline or of weights that ship; none draws the
            scenario alone.
        split: where to take scenarios from if none is named.
        out: folder for the pictures, one per scenario.
        limit: at most so many if no scenario is named.
        format: png, pdf or svg.
        radius_m: half the side of the picture in metres; by default what holds the focal agent's futures.
    """
    from trajpred.store import ScenarioStore, find_scenarios
    from trajpred.viz import draw_scene, save_scene

    require(limit > 0, "limit", "must be positive")
    ensure_store(store)
    out.mkdir(parents=True, exist_ok=True)
    if scenario:
        chosen = find_scenarios(store, [scenario] if isinstance(scenario, str) else scenario, first=split)
    else:
        rows = ScenarioStore(store, split)
        chosen = [rows[i] for i in range(min(limit, len(rows)))]
    predictor = None
    if checkpoint is not None:
        from trajpred.evaluation import load_predictor

        predictor = load_predictor(checkpoint)
    for one in chosen:
        forecast = predictor([one])[0] if predictor is not None else None
        path = out / f"{one.scenario_id}.{format}"
        save_scene(draw_scene(one, forecast, radius_m=radius_m), path)
        print(path)
    return 0


def compare(results: list[Path] | Path, group: Literal["focal", "scored", "all"] = "focal") -> int:
    """Make the Markdown tables of results: mean and range over seeds, intervals over scenarios, their origin.

    Example: python tools/compare.py --results baseline.json runs/forecaster/version_*/evaluation.json

    Args:
        results: files that tools/evaluate.py --json and training wrote; differences are from the first.
        group: focal, scored or all agents; intervals are always the focal agents'.
    """
    from trajpred.evaluation.results import read_results
    from trajpred.evaluation.table import by_recipe, format_intervals, format_origin, format_recipes

    paths = results if isinstance(results, list) else [results]
    recipes = by_recipe([one for path in paths for one in read_results(path)])
    print(f"{format_recipes(recipes, group)}\n")
    print("Focal agents, means and differences with 95 % bootstrap intervals over scenarios (paired):\n")
    print(f"{format_intervals(recipes)}\n")
    for name, seeds in recipes.items():
        print(f"- {name}: {format_origin(seeds)}")
    return 0


def ship(
    checkpoint: Path,
    name: str,
    store: Path,
    split: str = "val",
    note: str = "",
    half: bool = True,
    tolerance_m: float = 0.02,
) -> int:
    """Turn a checkpoint into weights that ship with the package (trajpred/weights), with their model card.

    Example: python tools/ship.py --checkpoint best.ckpt --name argoverse1-small --store runs/argoverse1-store

    Args:
        checkpoint: path of a trained model.
        name: what users will call it.
        store: scenarios that the card's table is made from, and on which half precision is tried.
        split: of the store.
        note: a sentence that opens the card.
        half: keep half precision.
        tolerance_m: by how many metres that may move any point of 99 % of the predictions.
    """
    from trajpred.store import ScenarioStore
    from trajpred.weights.ship import ship as make

    rows = ScenarioStore(ensure_store(store), split)
    print(make(checkpoint, name, rows, note=note, half=half, tolerance_m=tolerance_m))
    return 0
