"""Reading bundles: folders, zip files, and one DataError that names the file for anything else."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch

from tests.conftest import rejects
from tests.onboard.conftest import WRONG_SIZES, edit, replace_file
from trajpred.onboard import Bundle, OnboardForecaster
from trajpred.onboard.bundle import GRAPHS, MANIFEST, SIGNATURES, Port, Signature, is_bundle
from trajpred.predictors import load_predictor
from trajpred.predictors.checkpoint import BundlePredictor

ANCHORS = "'anchor_steps': is 0, but decoder"
HISTORY = r"encoder\.onnx, field 'history': has .*, must have history as float32 \[A, T, 7\]"


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_bundle_among_predictors_has_the_threads_of_torch(
    threads: int, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    predictor = load_predictor(bundle)
    assert isinstance(predictor, BundlePredictor)
    sessions = predictor.forecaster._sessions.values()
    assert {session.get_session_options().intra_op_num_threads for session in sessions} == {threads}


def test_zip_file_equals_folder(bundle: Path, tmp_path: Path) -> None:
    file = Path(shutil.make_archive(str(tmp_path / "bundle"), "zip", bundle))
    assert is_bundle(file)
    assert is_bundle(bundle)
    assert Bundle(file).info == Bundle(bundle).info
    assert Bundle(file).read("encoder.onnx") == Bundle(bundle).read("encoder.onnx")
    assert isinstance(load_predictor(file), BundlePredictor)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    rejects(r"bundle\.zip", Bundle, file)


@pytest.mark.parametrize("name", ["encoder.onnx", MANIFEST])
def test_missing_file(copy: Path, name: str) -> None:
    (copy / name).unlink()
    rejects(name, OnboardForecaster, copy)


@pytest.mark.parametrize("name", ["lane_encoder.onnx", "example.npz"])
def test_file_with_another_hash_is_rejected(copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    rejects(f"{name}.*damaged", lambda: Bundle(copy).read(name))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda info: info.pop("model"), "not a manifest"),
        (lambda info: info.update(version=99), "99"),
        (lambda info: info["model"].update(history="many"), "history"),
        (lambda info: info["model"].update(step_s=0), "step_s"),
        (lambda info: info["model"].update(step_s=True), "step_s"),
        (lambda info: info["model"].update(history=10**4_000), "history"),
        (lambda info: info.pop("name"), "not a manifest.*name"),
        (lambda info: info.pop("precision"), "not a manifest.*precision"),
        (lambda info: info["model"].pop("training"), "not a manifest.*training"),
        (lambda info: info["model"].update(training=[]), "training"),
        (lambda info: info.update(name="x" * 2**23), "more than 4,194,304"),
        (lambda info: info["scene"]["features"].update(lane_points=-2), "lane_points"),
        (lambda info: info["scene"]["features"].update(unknown=1), "not a manifest"),
        (lambda info: info.update(files=[]), "not a manifest"),
        *((lambda info, size=size: info.update(sizes={"A": size, "L": 9}), "A") for size in (0, 2**40, True)),
    ],
)
def test_invalid_manifest(copy: Path, change: Callable[[dict], object], message: str) -> None:
    edit(copy, change)
    error = rejects(message, Bundle, copy)
    assert str(error.file).endswith(MANIFEST)


@pytest.mark.skipif(sys.platform == "win32", reason="no such files")
@pytest.mark.parametrize("name", [MANIFEST, "encoder.onnx"])
def test_only_files_are_read(copy: Path, name: str) -> None:
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir):
        file = copy / name
        file.rmdir() if file.is_dir() else file.unlink()
        make(file)
        rejects(f"{name}.* is not a regular file", load_predictor, copy)
    os.mkfifo(copy / "fifo.zip")
    for load in (Bundle, load_predictor):
        rejects(r"fifo\.zip", load, copy / "fifo.zip")


def test_file_that_is_not_a_graph(copy: Path) -> None:
    replace_file(copy / "encoder.onnx", b"text")
    rejects("cannot load graph encoder", OnboardForecaster, copy)


@pytest.mark.parametrize(("field", "change"), WRONG_SIZES)
def test_sizes_that_the_graphs_do_not_have(copy: Path, field: str, change: Callable[[dict], object]) -> None:
    """A horizon of 30 would cut every mode of 60 steps in two."""
    edit(copy, change)
    rejects(rf"bundle\.json, field '{field}': is .* but \w+\.onnx has", OnboardForecaster, copy)


@pytest.mark.parametrize(("graph", "other"), permutations(GRAPHS, 2))
def test_graphs_that_changed_places(copy: Path, graph: str, other: str) -> None:
    replace_file(copy / f"{graph}.onnx", (copy / f"{other}.onnx").read_bytes())
    rejects(rf"{graph}\.onnx, field '(inputs|outputs)': ", OnboardForecaster, copy)


@pytest.mark.parametrize(
    ("graph", "port", "message"),
    [
        ("encoder", Port("history", "float32", ("A", 50, 5), ""), HISTORY),
        ("encoder", Port("history", "float64", ("A", 50, 7), ""), HISTORY),
        # The model of this bundle starts without anchors, so that the runtime computes none.
        ("decoder", Port("agent_anchors", "float32", ("A", 6, 60, 2), ""), ANCHORS),
    ],
)
def test_ports_of_another_kind(bundle: Path, graph: str, port: Port, message: str) -> None:
    signature = Signature((port,), SIGNATURES[graph].outputs)
    rejects(message, Bundle(bundle).require_signature, graph, signature)


def test_paths_that_are_not_bundles(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("text")
    with ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("a", "b")
    for name in ("missing", "empty", "text.zip", "other.zip"):
        assert not is_bundle(tmp_path / name)
        rejects(name, Bundle, tmp_path / name)


def test_missing_onnxruntime_is_reported(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    rejects("pip install onnxruntime", OnboardForecaster, bundle)
