"""A submission.h5 of Argoverse 1 is scored as the same futures in parquet; what is wrong in one is named."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tests.conftest import rejected, run
from tests.sources.argoverse1_files import made_rows, write
from trajpred.cli.info import describe
from trajpred.evaluation import evaluate
from trajpred.predictors import FilePredictor
from trajpred.predictors.prediction_rows import read_submission
from trajpred.predictors.predictions_file import read_predictions
from trajpred.store import ScenarioStore, prepare

#: Modes of each sequence: distances in metres to the left of what the focal car does, and probabilities.
MODES = {"7": ([3.0, 0.5, 1.0], [0.5, 0.3, 0.2]), "12": ([1.5, 2.5], [0.25, 0.75]), "40": ([0.25], [1.0])}
DATASET = "argoverse_forecasting"
Table = NDArray[np.float64]


@pytest.fixture(scope="module")
def store_of_argoverse1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sequences, in which the focal car drives 10 m/s along x, at y = 50."""
    folder = tmp_path_factory.mktemp("argoverse1")
    seven = write(folder / "raw", made_rows())
    for name in MODES:
        seven.with_stem(name).write_bytes(seven.read_bytes())
    prepare("argoverse1", folder / "raw", folder / "store", workers=1, progress=False)
    return folder / "store"


def table(columns: int = 4) -> Table:
    """Return the rows of all :data:`MODES`, 30 steps of 1 m each."""
    rows = [
        (int(name), 120 + step, 50 + left, p)
        for name, modes in MODES.items()
        for left, p in zip(*modes, strict=True)
        for step in range(30)
    ]
    return np.array(rows)[:, :columns]


def save(path: Path, rows: NDArray, name: str = DATASET) -> Path:
    """Write rows as argoverse-api does."""
    with h5py.File(path, "w") as file:
        file.create_dataset(name, data=rows, compression="gzip", compression_opts=9)
    return path


@pytest.mark.parametrize("columns", [4, 3], ids=["probabilities", "uniform"])
def test_it_is_scored_as_parquet(store_of_argoverse1: Path, tmp_path: Path, columns: int) -> None:
    store = ScenarioStore(store_of_argoverse1, "val")
    rows = [
        {
            "scenario_id": name,
            "track_id": "focal",
            "probability": p if columns == 4 else 1 / len(modes[0]),
            "predicted_trajectory_x": np.arange(120.0, 150.0),
            "predicted_trajectory_y": np.full(30, 50 + left),
        }
        for name, modes in MODES.items()
        for left, p in zip(*modes, strict=True)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    predictor = FilePredictor(save(tmp_path / "submission.h5", table(columns)))
    found = evaluate(predictor, store, plausibility=True, progress=False).metrics
    same = FilePredictor(tmp_path / "p.parquet")
    expected = evaluate(same, store, plausibility=True, progress=False).metrics
    assert found == expected
    assert predictor.problems == {}
    assert found["focal"]["count"] == 3
    best = [min(left) for left, _ in MODES.values()]
    assert found["focal"]["minFDE6"] == pytest.approx(np.mean(best))
    first = [3.0, 2.5 if columns == 4 else 1.5, 0.25]
    assert found["focal"]["minFDE1"] == pytest.approx(np.mean(first)), "the most probable, else the first"


def test_commands_take_it(
    store_of_argoverse1: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = save(tmp_path / "submission.h5", table())
    title, facts = describe(str(path))
    assert title == f"Predictions {path}"
    assert facts["tracks"] == "3, 1 to 1 of a scenario"
    assert facts["steps"] == "30"
    command = ["evaluate", "--store", store_of_argoverse1, "--checkpoint", path]
    assert run(*command, "--check-with-av2") == 0
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert run(*command) == 2
    assert re.search(
        r"^error: \S+submission.h5: needs h5py: pip install .*h5.*$", capsys.readouterr().err, re.M
    )


def put(row: slice, column: int, value: float) -> Callable[[Table], Table]:
    def change(rows: Table) -> Table:
        rows[row, column] = value
        return rows

    return change


#: Faults, the field that is named and what the sentence must contain.
FAULTS: dict[str, tuple[Callable[[Table], NDArray], str, str]] = {
    "columns": (lambda rows: rows[:, :2], DATASET, r"3 or 4 columns .* has shape \(180, 2\)"),
    "text": (lambda rows: rows.astype("S9"), DATASET, "must contain numbers"),
    "fraction": (put(slice(5, 6), 0, 7.5), "sequence", "whole number: row 5"),
    "no number": (put(slice(5, 6), 0, np.nan), "sequence", "whole number: row 5"),
    "cut": (lambda rows: rows[:-1], "sequence", "30 rows for each of its modes: sequence 40"),
    "twice": (
        lambda rows: np.concatenate((rows, rows[:30])),
        "sequence",
        "two places of the file: sequence 7",
    ),
    "varies": (put(slice(95, 96), 3, 0.3), "probability", "same in the 30 rows of a mode: sequence 12"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_files_of_another_layout_are_rejected(tmp_path: Path, fault: str) -> None:
    change, field, message = FAULTS[fault]
    path = save(tmp_path / "submission.h5", change(table()))
    rejected(lambda: read_submission(path), "submission.h5", field, message)


def test_files_without_its_rows_are_rejected(tmp_path: Path) -> None:
    path = save(tmp_path / "submission.h5", table(), name="forecasts")
    rejected(lambda: read_submission(path), "submission.h5", DATASET, "is missing")
    with h5py.File(path, "w") as file:
        file.create_dataset(DATASET, (10**12, 3), "f8", compression="gzip")
    rejected(lambda: read_submission(path), "submission.h5", DATASET, "claims to unpack")
    path.write_text("sequence,x,y")
    rejected(lambda: read_submission(path), "submission.h5", None, "not a readable HDF5 file")
    path.unlink()
    rejected(lambda: read_submission(path), "submission.h5", None, "not a readable HDF5 file")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(slice(95, 96), 1, np.nan), "a coordinate that is not finite"),
        (put(slice(90, 120), 3, 0.5), "probabilities that sum to 1.25, not to 1"),
        (put(slice(90, 120), 3, np.nan), "a probability that is not finite"),
    ],
)
def test_a_sequence_with_wrong_values_is_left_out(
    tmp_path: Path, change: Callable[[Table], Table], message: str
) -> None:
    file = read_predictions(save(tmp_path / "submission.h5", change(table())))
    assert file.problems == {"12": [f"track focal: {message}"]}
    assert [file.track_ids(name) for name in MODES] == [["focal"], [], ["focal"]]
