"""Every reader of files, with small valid inputs and the strategy that damages them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from hypothesis import strategies as st
from torch import nn

from tests.conftest import ROOT
from tests.fuzz.strategies import Damage, arrow_of, bytes_of, gzip_of, json_of, parquet_of, text_of, zip_of
from tests.integrations import map_files
from tests.integrations.drives import write_drive
from tests.predictors.random_forecasts import random_forecast
from tests.sources.argoverse1_files import made_map, made_rows, write
from tests.sources.argoverse2_files import short_scene, short_store, write_scenario
from trajpred import read_map
from trajpred.errors import DataError
from trajpred.evaluation.recipes import by_recipe, format_table
from trajpred.evaluation.results import read_results
from trajpred.integrations import commonroad
from trajpred.integrations.maps.segments import faults
from trajpred.integrations.recorded_drive import RecordedDrive
from trajpred.metrics.calibration import ConformalRegions
from trajpred.model.checkpoint import CALIBRATION, CONFIG, TRAINING, load_weights, read_checkpoint
from trajpred.onboard.bundle import EXAMPLE, FORMAT, MANIFEST, VERSION, Bundle
from trajpred.predictors.predict import write_predictions
from trajpred.predictors.predictions_file import FilePredictor, problems_of
from trajpred.sources import argoverse1, argoverse2
from trajpred.store import ScenarioStore, prepare

SCENARIO = short_scene()


@dataclass(frozen=True)
class Reader:
    """A reader under test: ``read`` accepts ``seed``, and raises DataError or nothing on other inputs."""

    seed: bytes
    damage: Damage
    read: Callable[[bytes], object]

    def damaged(self) -> st.SearchStrategy[bytes]:
        """Return inputs with damaged values, or with damaged bytes."""
        return st.one_of(self.damage(self.seed), self.damage(self.seed), bytes_of(self.seed))


def of_file(path: Path, read: Callable[[], object]) -> Callable[[bytes], object]:
    """Return a function that writes a new file, since the old one may be mapped to memory, and reads it."""

    def write_and_read(content: bytes) -> object:
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        return read()

    return write_and_read


def use_store(store: Path) -> None:
    rows = ScenarioStore(store, "val")
    _ = rows.lengths, rows.sizes, rows.scenario_ids, "b" in rows
    for row in range(min(len(rows), 3)):
        rows[row].validate()
    rows.batch(range(min(len(rows), 3)))


def tracks(folder: Path) -> Reader:
    write_scenario(SCENARIO, folder)
    path = next(folder.glob("*.parquet"))
    return Reader(path.read_bytes(), parquet_of, of_file(path, lambda: argoverse2.read_scenario(folder)))


def lane_map(folder: Path) -> Reader:
    archive = argoverse2.archive_of(SCENARIO.map)
    archive = {group: dict(list(records.items())[:2]) for group, records in archive.items()}
    read = of_file(path := folder / "log_map_archive_0.json", lambda: argoverse2.read_archive(path))
    return Reader(json.dumps(archive).encode(), json_of, read)


def csv(folder: Path) -> Reader:
    path = write(folder, made_rows())
    return Reader(path.read_bytes(), text_of, of_file(path, lambda: argoverse1.read_scenario(path)))


def xml(folder: Path) -> Reader:
    path = folder / "map.xml.gz"

    def read() -> object:
        return argoverse1.read_city_map(path).near(np.zeros(2), np.full(2, 100.0), 50.0)

    return Reader(gzip.compress(made_map().encode()), gzip_of, of_file(path, read))


def map_file(seed: bytes) -> Callable[[Path], Reader]:
    """Return the reader of a map, which validates and is described."""

    def reader(folder: Path) -> Reader:
        path = folder / "map.xml"
        return Reader(seed, text_of, of_file(path, lambda: faults(read_map(path))))

    return reader


def recording(folder: Path) -> Reader:
    path = folder / "recording.xml"

    def read() -> None:
        for window in commonroad.discover(folder)["val"][:3]:
            commonroad.read(window)

    return Reader(map_files.commonroad(), text_of, of_file(path, read))


def drive(folder: Path) -> Reader:
    path = write_drive(SCENARIO, folder / "drive.mcap", steps=4)

    def read() -> None:
        recorded = RecordedDrive(path)
        for objects in recorded:
            count = len(objects.track_id)
            assert len(objects.position) == len(objects.heading) == len(objects.size) == count
        assert not any("\n" in problem for problem in recorded.problems)

    return Reader(path.read_bytes(), bytes_of, of_file(path, read))


def sequences() -> pa.Table:
    """Return two packed sequences of the focal track and the recording vehicle."""
    rows = pq.ParquetFile(ROOT / "datasets" / "argoverse1" / "val.parquet").read_row_group(0)
    rows = rows.filter(pc.equal(pc.cast(rows["CITY_NAME"], pa.string()), "MIA"))
    rows = rows.filter(pc.equal(rows["seq_id"], rows["seq_id"][0]))
    rows = rows.filter(pc.not_equal(pc.cast(rows["OBJECT_TYPE"], pa.string()), "OTHERS"))
    next_id = pc.add(rows["seq_id"], pa.scalar(1, pa.int32()))
    return pa.concat_tables([rows, rows.set_column(0, rows.schema.field(0), next_id)])


def packed(folder: Path) -> Reader:
    write(folder, made_rows()).unlink()
    path, sink = folder / "val.parquet", io.BytesIO()
    pq.write_table(sequences(), sink, row_group_size=len(sequences()) // 2)

    def read() -> None:
        for found in argoverse1.discover(folder).values():
            for one in found[:3]:
                argoverse1.read(one)

    return Reader(sink.getvalue(), parquet_of, of_file(path, read))


def of_store(folder: Path, name: str, damage: Damage) -> Reader:
    store = short_store(folder, "val", 2)
    [path] = store.glob(name)
    return Reader(path.read_bytes(), damage, of_file(path, lambda: use_store(store)))


def record(folder: Path) -> Reader:
    """Return the reader of a shard's record, which preparing again relies on: it must leave a valid store."""
    whole = short_store(folder, "val", 2).rename(folder / "whole")

    def read(content: bytes) -> None:
        store = Path(shutil.copytree(whole, folder / "store", dirs_exist_ok=True))
        (store / "val" / "shard-00000.json").write_bytes(content)
        prepare("argoverse2", folder / "raw", store, workers=1, progress=False)
        try:
            use_store(store)
        except DataError as error:
            raise AssertionError("prepare left a damaged store") from error

    return Reader((whole / "val" / "shard-00000.json").read_bytes(), json_of, read)


def predictions(folder: Path) -> Reader:
    path = folder / "predictions.parquet"
    forecast = random_forecast(SCENARIO.scenario_id, 2, modes=2, steps=5)
    write_predictions(path, [replace(forecast, track_id=SCENARIO.tracks.track_id[:2])])

    def read() -> object:
        predictor = FilePredictor(path)
        return predictor([SCENARIO])[0].validate(), problems_of(predictor, [])

    return Reader(path.read_bytes(), parquet_of, of_file(path, read))


def submission(folder: Path) -> Reader:
    rows = np.column_stack((np.repeat([7, 8], 60), np.random.default_rng(0).normal(size=(120, 2))))
    with h5py.File(path := folder / "submission.h5", "w") as file:
        file.create_dataset("argoverse_forecasting", data=rows, compression="gzip")
    return Reader(path.read_bytes(), bytes_of, of_file(path, lambda: FilePredictor(path)))


def results(folder: Path) -> Reader:
    """Return the reader of evaluation results, as ``compare`` uses it."""
    results = ROOT / "datasets" / "argoverse1" / "results" / "reporting"
    seed = json.loads((results / "constant_velocity.json").read_text())
    for rows in seed["per_scenario"].values():
        rows |= {name: values[:2] for name, values in rows.items()}
    read = of_file(path := folder / "results.json", lambda: format_table(by_recipe(read_results(path))))
    return Reader(json.dumps(seed).encode(), json_of, read)


def bundle_files() -> dict[str, bytes]:
    """Return the files of a bundle with an empty graph, which is onnxruntime's to read."""
    arrays = {"encoder/history": np.zeros((2, 5, 3), np.float32), "decoder/target": np.arange(2)}
    example = io.BytesIO()
    np.savez_compressed(example, **arrays)  # type: ignore[arg-type]
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        **{"name": "model", "precision": "fp32"},
        "model": {"history": 50, "horizon": 60, "modes": 6, "dim": 128, "step_s": 0.1, "training": {}},
        "graphs": {"lane_encoder": {}, "encoder": {}, "decoder": {}},
        "scene": {"features": {"max_agents": 8, "max_lanes": 9}, "graph": {}},
        "sizes": {"A": 8, "L": 9},
        "licence": "",
        "files": {"encoder.onnx": {}, EXAMPLE: {}},
    }
    files = {"encoder.onnx": b"graph", EXAMPLE: example.getvalue(), MANIFEST: json.dumps(manifest).encode()}
    rehash(files)
    return files


def rehash(files: dict[str, bytes]) -> None:
    """Write the hashes of a bundle's files to its manifest, unless that is damaged."""
    try:
        manifest = json.loads(files[MANIFEST])
        for name in manifest["files"]:
            manifest["files"][name]["sha256"] = hashlib.sha256(files[name]).hexdigest()
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    files[MANIFEST] = json.dumps(manifest).encode()


def bundle(folder: Path) -> Reader:
    path, sink = folder / "bundle.zip", io.BytesIO()
    with ZipFile(sink, "w") as archive:
        for name, content in bundle_files().items():
            archive.writestr(name, content)

    def read() -> None:
        found = Bundle(path)
        found.read("encoder.onnx")
        found.example()

    return Reader(sink.getvalue(), lambda content: zip_of(content, rehash), of_file(path, read))


def checkpoint(folder: Path) -> Reader:
    path = folder / "best.ckpt"
    rng = np.random.default_rng(0)
    fitted = ConformalRegions.fit(rng.random((300, 2)), rng.integers(10, size=300), [1.0, 2.0], min_count=10)
    parts = {
        TRAINING: {"seed": 1},
        CALIBRATION: {"temperature": 1.5, "regions": fitted.to_json(), "store": {"source": "x"}},
    }
    weights = {CONFIG: {"dim": 3}, "state_dict": nn.Linear(2, 3).state_dict(), "epoch": 3, "global_step": 9}
    torch.save(parts | weights, path)

    def read() -> None:
        load_weights(nn.Linear(2, 3), read_checkpoint(path)["state_dict"], path)

    return Reader(path.read_bytes(), zip_of, of_file(path, read))


READERS: dict[str, Callable[[Path], Reader]] = {
    "argoverse2 tracks (parquet)": tracks,
    "argoverse2 map (JSON)": lane_map,
    "argoverse1 sequence (CSV)": csv,
    "argoverse1 map (XML, gzip)": xml,
    "argoverse1 pack (parquet)": packed,
    "Lanelet2 map (XML)": map_file(map_files.lanelet2()),
    "Autoware map (XML)": map_file(map_files.lanelet2(local=True)),
    "OpenDRIVE map (XML)": map_file(map_files.town()),
    "CommonRoad map (XML)": map_file(map_files.commonroad(2)),
    "CommonRoad recording (XML)": recording,
    "recorded drive (MCAP)": drive,
    "store manifest (JSON)": lambda folder: of_store(folder, "manifest.json", json_of),
    "store index (Arrow)": lambda folder: of_store(folder, "val/index-*.arrow", arrow_of),
    "store shard (Arrow)": lambda folder: of_store(folder, "val/shard-00000-*.arrow", arrow_of),
    "store record (JSON)": record,
    "predictions (parquet)": predictions,
    "predictions (HDF5)": submission,
    "results (JSON)": results,
    "bundle (zip)": bundle,
    "checkpoint (zip)": checkpoint,
}
