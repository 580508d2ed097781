"""Readers of what tools write: predictions, results, bundles, checkpoints and configs."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from random import Random
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np

from tests.fuzz.mutate import spoil_bytes, spoil_json, stacked
from tests.fuzz.reader import Reader, of_file
from tests.fuzz.store_readers import scenes
from tests.fuzz.tables import spoil_parquet
from trajpred.evaluation.intervals import changes
from trajpred.evaluation.results import Evaluation, read_results, write_results
from trajpred.evaluation.table import by_recipe, format_origin, format_recipes
from trajpred.forecast import Forecast
from trajpred.metrics.conformal import ConformalRegions
from trajpred.onboard.bundle import EXAMPLE, FORMAT, MANIFEST, VERSION, Bundle, is_bundle
from trajpred.predictors.predict import write_predictions
from trajpred.predictors.predictions_file import FilePredictor
from trajpred.sources.argoverse2 import read_scenario


def predictions(folder: Path) -> Reader:
    """Two tracks of two modes over the steps of a shrunk scene."""
    scenario = read_scenario(scenes(folder / "raw") / "val" / "a")
    path, ids = folder / "predictions.parquet", scenario.tracks.track_id[:2]
    trajectory = np.random.default_rng(0).normal(size=(2, 2, 5, 2)).cumsum(2)
    forecast = Forecast.from_trajectories(
        scenario.scenario_id,
        ids,
        trajectory,
        np.tile([0.25, 0.75], (2, 1)),
        origin=np.zeros((2, 2)),
        origin_heading=np.zeros(2),
        step_s=0.1,
    )
    write_predictions(path, [forecast])

    def read() -> object:
        predictor = FilePredictor(path)
        return predictor([scenario])[0].validate(), predictor.problems, predictor.foreign([])

    return Reader((path.read_bytes(),), stacked(spoil_parquet, spoil_bytes), of_file(path, read))


def results(folder: Path) -> Reader:
    """Two evaluations of two scenarios, read and compared as tools/compare.py does."""
    machine = {
        "trajpred": "0.1.0",
        "commit": 40 * "a",
        "dirty": False,
        "torch": "2.13",
        "cpu": "x",
        "threads": 2,
    }
    store = {"source": "argoverse2", "config": "0123", "scenarios": {"train": 10, "val": 2}}
    metrics = {
        group: {"count": 2, "minADE6": 1.0, "minFDE6": 2.0, "MR6": 0.5}
        for group in ("focal", "scored", "all")
    }
    each = {
        "scenario_id": ["x", "y"],
        **{n: [1.0, 2.0] for n in ("minADE6", "minFDE6", "MR6", "brier-minFDE6")},
    }
    trained = {
        "recipe": "small",
        "seed": 1,
        "epochs": 2,
        "wall_s": 3.0,
        "store": store,
        "environment": machine,
    }
    more = {"worlds": {"count": 1.0}, "horizons": {"3 s": metrics}, "breakdowns": {"class": {"bus": metrics}}}
    both = [
        Evaluation("constant", "val", 2, {"focal": 0}, metrics, each, {}, store, machine, **more),
        Evaluation("a", "val", 2, {"focal": 0}, metrics, each, trained, store, machine),
    ]
    path = folder / "results.json"
    write_results(path, both)

    def read() -> None:
        recipes = by_recipe(read_results(path))
        format_recipes(recipes)
        for seeds in recipes.values():
            format_origin(seeds)
        if len(recipes) == 2:
            # The bootstrap, which is slow, takes what this took.
            changes(*recipes.values(), 3)

    seed = path.read_bytes()
    return Reader((seed,), stacked(spoil_json, spoil_json, spoil_json, spoil_bytes), of_file(path, read))


def regions(_: Path) -> Reader:
    """Conformal regions, as a calibrated checkpoint keeps them."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(10, size=300)
    fitted = ConformalRegions.fit(rng.random((300, 2)), kinds, [1.0, 2.0], min_count=10)

    def read(content: bytes) -> object:
        found = ConformalRegions.from_json(content.decode("utf-8", "replace"))
        return found.covered(np.ones((3, len(found.horizons_s))), np.arange(3))

    return Reader((fitted.to_json().encode(),), stacked(spoil_json, spoil_json, spoil_bytes), read)


def bundle_files() -> dict[str, bytes]:
    """The files of a bundle, its graphs shrunk to nothing: they are onnxruntime's to read."""
    example = io.BytesIO()
    np.savez_compressed(
        example, **{"encoder/history": np.zeros((2, 5, 3), np.float32), "decoder/target": np.arange(2)}
    )
    files = {"encoder.onnx": b"graph", EXAMPLE: example.getvalue()}
    hashes = {name: {"bytes": len(x), "sha256": hashlib.sha256(x).hexdigest()} for name, x in files.items()}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "model": {"history": 50, "horizon": 60, "modes": 6, "dim": 128, "step_s": 0.1},
        "scene": {"features": {"max_agents": 8, "max_lanes": 9}, "graph": {}},
        "sizes": {"A": 8, "L": 9},
        "files": hashes,
    }
    return {MANIFEST: json.dumps(manifest).encode(), **files}


def _read_bundle(path: Path) -> None:
    bundle = Bundle(path)
    bundle.graph("encoder")
    bundle.example()
    if not is_bundle(path):
        raise AssertionError("a bundle that can be read is not known for one")


def bundle_manifest(folder: Path) -> Reader:
    place = folder / "bundle"
    place.mkdir()
    files = bundle_files()
    for name, content in files.items():
        (place / name).write_bytes(content)
    read = of_file(place / MANIFEST, lambda: _read_bundle(place))
    return Reader((files[MANIFEST],), stacked(spoil_json, spoil_json, spoil_bytes), read)


def bundle_zip(folder: Path) -> Reader:
    path = folder / "bundle.zip"

    def read() -> None:
        is_bundle(path)
        _read_bundle(path)

    return Reader(
        (zipped(bundle_files()),), stacked(_spoil_bundle, _spoil_bundle, spoil_bytes), of_file(path, read)
    )


def zipped(files: dict[str, bytes], method: int = ZIP_DEFLATED) -> bytes:
    sink = io.BytesIO()
    with ZipFile(sink, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return sink.getvalue()


def unzipped(data: bytes) -> dict[str, bytes]:
    """The files in a zip; none where it cannot be read."""
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # what a zip file that is spoilt may raise is not what is tested here
        return {}


def spoil_member(random: Random, files: dict[str, bytes], name: str) -> bytes:
    """Spoil one file and zip them all: its checksum is right."""
    mutate = spoil_json if name.endswith(".json") else spoil_zip if name.endswith(".npz") else spoil_bytes
    files = files | {name: mutate(random, files[name])}
    return zipped(files, random.choice((ZIP_STORED, ZIP_DEFLATED)))


def spoil_zip(random: Random, data: bytes) -> bytes:
    """Spoil one of the files in a zip, or the zip."""
    files = unzipped(data)
    if not files or random.random() < 0.2:
        return spoil_bytes(random, data)
    return spoil_member(random, files, random.choice(list(files)))


def _spoil_bundle(random: Random, data: bytes) -> bytes:
    """Spoil a file of a bundle; the manifest mostly knows the hash of what it has become."""
    spoilt = spoil_zip(random, data)
    files = unzipped(spoilt)
    try:
        manifest = json.loads(files[MANIFEST])
        for name in manifest["files"]:
            manifest["files"][name]["sha256"] = hashlib.sha256(files[name]).hexdigest()
    except (ValueError, KeyError, TypeError, RecursionError):
        return spoilt
    return zipped(files | {MANIFEST: json.dumps(manifest).encode()}) if random.random() < 0.8 else spoilt


READERS = {
    "predictions (parquet)": predictions,
    "results (JSON)": results,
    "conformal regions (JSON)": regions,
    "bundle manifest (JSON)": bundle_manifest,
    "bundle (zip, npz)": bundle_zip,
}
