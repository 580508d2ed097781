"""What is missing, damaged or something else is told as one DataError that names the file."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from trajpred.errors import DataError
from trajpred.onboard.bundle import MANIFEST, Bundle, is_bundle
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.predictors.checkpoint import BundlePredictor
from trajpred.predictors.predictor import load_predictor


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    info = json.loads((folder / MANIFEST).read_text())
    change(info)
    (folder / MANIFEST).write_text(json.dumps(info))


def test_the_manifest_knows_every_file(bundle: Path) -> None:
    info = json.loads((bundle / MANIFEST).read_text())
    assert set(info["files"]) | {MANIFEST} == {path.name for path in bundle.iterdir()}
    for name, one in info["files"].items():
        content = (bundle / name).read_bytes()
        assert one == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert info["check"]["usual_m"] <= info["check"]["tolerance_m"] == 1e-3
    assert info["made_with"].keys() >= {"trajpred", "torch", "onnx", "onnxruntime"}


def test_a_zip_of_it_is_a_bundle_too(bundle: Path, tmp_path: Path) -> None:
    file = Path(shutil.make_archive(str(tmp_path / "bundle"), "zip", bundle))
    assert is_bundle(file) and is_bundle(bundle)
    assert Bundle(file).info == Bundle(bundle).info
    assert Bundle(file).graph("encoder") == Bundle(bundle).graph("encoder")
    assert isinstance(load_predictor(file), BundlePredictor)


@pytest.mark.parametrize("name", ["encoder.onnx", "decoder.onnx", MANIFEST])
def test_a_missing_file(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(DataError, match=name):
        OnboardForecaster(copy)


@pytest.mark.parametrize("name", ["lane_encoder.onnx", "example.npz"])
def test_a_changed_file(copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}.*damaged"):
        Bundle(copy).read(name)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda info: info.pop("model"), "no manifest"),
        (lambda info: info.update(version=99), "99"),
        (lambda info: info.update(format="else"), "else"),
        (lambda info: info["model"].update(history="many"), "no manifest|history"),
        (lambda info: info["scene"]["features"].update(lane_points=-2), "lane_points"),
        (lambda info: info["scene"]["features"].update(unknown=1), "no manifest"),
        (lambda info: info.update(files=[]), "no manifest"),
    ],
)
def test_a_wrong_manifest(copy: Path, change: Callable[[dict], object], told: str) -> None:
    edit(copy, change)
    with pytest.raises(DataError, match=told) as error:
        Bundle(copy)
    assert str(error.value.file).endswith(MANIFEST)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff\xfe", b"{"])
def test_no_manifest(copy: Path, content: bytes) -> None:
    (copy / MANIFEST).write_bytes(content)
    with pytest.raises(DataError, match=MANIFEST):
        Bundle(copy)


def test_what_is_no_graph(copy: Path) -> None:
    (copy / "encoder.onnx").write_bytes(b"no graph")
    digest = hashlib.sha256(b"no graph").hexdigest()
    edit(copy, lambda info: info["files"]["encoder.onnx"].update(sha256=digest))
    with pytest.raises(DataError, match="no graph that onnxruntime runs"):
        OnboardForecaster(copy)


def test_what_is_no_bundle(tmp_path: Path) -> None:
    for name in ("nothing", "empty", "text.zip", "other.zip"):
        path = tmp_path / name
        if name == "empty":
            path.mkdir()
        if name == "text.zip":
            path.write_text("no zip")
        if name == "other.zip":
            with ZipFile(path, "w") as file:
                file.writestr("a", "b")
        assert not is_bundle(path)
        with pytest.raises(DataError, match=name):
            Bundle(path)


def test_a_zip_cut_short(bundle: Path, tmp_path: Path) -> None:
    file = Path(shutil.make_archive(str(tmp_path / "bundle"), "zip", bundle))
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"bundle\.zip"):
        Bundle(file)
