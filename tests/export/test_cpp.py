"""The C++ example builds, reproduces the bundle's example and detects differences.

CMake finds ONNX Runtime where it is installed, or in the folder ``ONNXRUNTIME_ROOT``; if that is set, a
missing compiler or library is a failure, otherwise the tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from tests.conftest import ROOT
from trajpred.export.export_bundle import export_bundle
from trajpred.onboard.bundle import EXAMPLE, GRAPHS, SIGNATURES
from trajpred.scenario import Scenario

pytestmark = pytest.mark.slow

SOURCE = ROOT / "tools" / "onboard_cpp"
#: CMake's messages about missing requirements; any other failure is one of the example.
MISSING = ("ONNX Runtime was not found", "No CMAKE_CXX_COMPILER could be found")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built from an empty folder."""
    root = os.environ.get("ONNXRUNTIME_ROOT", "")
    if shutil.which("cmake") is None and not root:
        pytest.skip("the C++ example needs cmake")
    folder = tmp_path_factory.mktemp("build")
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_COMPILE_WARNING_AS_ERROR": "ON",
        "ONNXRUNTIME_ROOT": root,
    }
    done = run(
        "cmake",
        "-S",
        SOURCE,
        "-B",
        folder,
        *(f"-D{name}={value}" for name, value in options.items()),
    )
    for reason in MISSING:
        if reason in done.stderr and not root:
            pytest.skip(f"the C++ example cannot be built: {reason} (ONNXRUNTIME_ROOT is not set)")
    assert done.returncode == 0, done.stderr
    built = run("cmake", "--build", folder, "--config", "Release")
    assert built.returncode == 0, built.stdout + built.stderr
    return next(path for name in ("onboard", "Release/onboard.exe") if (path := folder / name).is_file())


@pytest.fixture(scope="module")
def unpacked(
    program: Path, tmp_path_factory: pytest.TempPathFactory, sample_scenarios: list[Scenario]
) -> Path:
    """A bundle with its example unpacked. Depends on ``program`` to skip before exporting."""
    folder = tmp_path_factory.mktemp("exported") / "bundle"
    export_bundle("argoverse-nano", folder, sample_scenarios[:1])
    with ZipFile(folder / EXAMPLE) as archive:
        archive.extractall(folder / "example")
    return folder


def test_runs_the_encoder_alone(program: Path, encoder_bundle: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(encoder_bundle, tmp_path / "encoder"))
    with ZipFile(bundle / EXAMPLE) as archive:
        archive.extractall(bundle / "example")
    done = run(program, bundle, "--runs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "encoder/agent_token" in done.stdout and "decoder" not in done.stdout
    change(bundle / "example" / "encoder" / "lane_context.npy", 0.02)
    done = run(program, bundle, "--runs", "1")
    assert done.returncode == 1 and done.stdout.count("TOO FAR") == 1


@pytest.fixture
def bundle(unpacked: Path, tmp_path: Path) -> Path:
    """A copy to modify."""
    return Path(shutil.copytree(unpacked, tmp_path / "bundle"))


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


def change(file: Path, by: float, where: int = 0) -> None:
    """Add ``by`` to one number of a .npy file."""
    values = np.load(file)
    values.flat[where] += by
    np.save(file, values)


def test_reproduces_the_example_and_prints_times(program: Path, bundle: Path) -> None:
    done = run(program, bundle, "--runs", "3", "--threads", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    printed = dict(line.split()[:2] for line in done.stdout.splitlines() if line)
    for graph in GRAPHS:
        assert float(printed[graph]) > 0
        for port in SIGNATURES[graph].outputs:
            assert float(printed[f"{graph}/{port.name}"]) < 1e-3


@pytest.mark.parametrize("by", [0.02, -0.02, float("nan")])
def test_reports_outputs_beyond_the_tolerance(program: Path, bundle: Path, by: float) -> None:
    change(bundle / "example" / "decoder" / "trajectory.npy", by, where=-1)
    done = run(program, bundle, "--runs", "1")
    far = [line.split()[0] for line in done.stdout.splitlines() if "TOO FAR" in line]
    assert (done.returncode, far) == (1, ["decoder/trajectory"])
    assert run(program, bundle, "--runs", "1", "--tolerance", "0.1").returncode == (1 if np.isnan(by) else 0)


def test_outputs_of_a_graph_are_inputs_of_the_next(program: Path, bundle: Path) -> None:
    """Changed lanes reach encoder and decoder through the lane encoder, not through their own files."""
    points = np.load(bundle / "example" / "lane_encoder" / "points.npy")
    np.save(bundle / "example" / "lane_encoder" / "points.npy", points + np.float32(1))
    done = run(program, bundle, "--runs", "1", "--tolerance", "1e-4")
    assert done.returncode == 1
    assert done.stdout.count("TOO FAR") == sum(len(SIGNATURES[graph].outputs) for graph in GRAPHS)


def rewrite(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    return lambda file: np.save(file, change(np.load(file)))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.unlink, "example.npz unpacked"),
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "too short"),
        (rewrite(lambda values: values.astype(np.float64)), "not of type '<f4'"),
        (rewrite(np.asfortranarray), "not in C order"),
        (
            rewrite(lambda x: np.pad(x, ((0, 0), (0, 1), (0, 0)))),
            "Got invalid dimensions for input: history",
        ),
    ],
)
def test_invalid_input_is_named(
    program: Path, bundle: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(bundle / "example" / "encoder" / "history.npy")
    done = run(program, bundle, "--runs", "1")
    assert done.returncode == 2 and done.stderr.startswith("onboard: ")
    assert "history" in done.stderr and message in done.stderr
