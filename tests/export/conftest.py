"""A small model with random weights, exported once per test session."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest
from filelock import FileLock

from tests.model.small import TINY, checkpoint_of, small_model
from tests.onboard.cpp import build
from trajpred.data.scenario import Scenario
from trajpred.export import export_bundle as module
from trajpred.export.export_bundle import export_bundle
from trajpred.onboard import OnboardForecaster
from trajpred.onboard.bundle import GRAPHS
from trajpred.predictors.checkpoint import CheckpointPredictor


@pytest.fixture(scope="session")
def scenes(sample_scenarios: list[Scenario]) -> list[Scenario]:
    """Four of the sample, the one with the fewest tracks first, that with the most last."""
    labelled = [scenario for scenario in sample_scenarios if scenario.has_future]
    ordered = sorted(labelled, key=lambda scenario: len(scenario.tracks))
    return [ordered[0], ordered[3], ordered[len(ordered) // 2], ordered[-1]]


@pytest.fixture(scope="session")
def exported(scenes: list[Scenario], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``small.ckpt`` and ``bundle``, shared by the processes of pytest-xdist; read-only."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "exported"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "lock"):
        if not (folder / "bundle").exists():
            checkpoint_of(small_model(**TINY), folder / "small.ckpt")
            export_bundle(folder / "small.ckpt", folder / "bundle", scenes, fused=True)
            with traced_before(folder / "bundle"):
                export_bundle(folder / "small.ckpt", folder / "encoder", scenes, part="encoder")
    return folder


@contextmanager
def traced_before(bundle: Path, names: Sequence[str] = GRAPHS) -> Iterator[None]:
    """Replace the tracing of the graphs ``names`` by those of ``bundle``, which has the same weights."""
    graphs = {name: onnx.load(bundle / f"{name}.onnx") for name in names}
    trace = module.to_onnx

    def traced(owner: object, name: str, *rest: object) -> onnx.ModelProto:
        return graphs.get(name) or trace(owner, name, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "to_onnx", traced)
        yield


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a build of the C++ library with everything."""
    root = os.environ.get("ONNXRUNTIME_ROOT", "")
    folder = tmp_path_factory.mktemp("build")
    return build(folder, "-DCMAKE_BUILD_TYPE=Release", f"-DONNXRUNTIME_ROOT={root}")


@pytest.fixture(scope="session")
def checkpoint(exported: Path) -> Path:
    return exported / "small.ckpt"


@pytest.fixture(scope="session")
def bundle(exported: Path) -> Path:
    """The exported model, with ``forecaster.onnx``."""
    return exported / "bundle"


@pytest.fixture(scope="session")
def encoder_bundle(exported: Path) -> Path:
    """The encoder of the model, exported alone."""
    return exported / "encoder"


@pytest.fixture(scope="session")
def predictor(checkpoint: Path) -> CheckpointPredictor:
    """The model in PyTorch."""
    return CheckpointPredictor(checkpoint)


@pytest.fixture
def forecaster(bundle: Path) -> OnboardForecaster:
    """The bundle, opened, with an empty lane cache."""
    return OnboardForecaster(bundle, threads=1)


@pytest.fixture(scope="session")
def shared_forecaster(bundle: Path) -> OnboardForecaster:
    """One for many tests; only its lane cache changes."""
    return OnboardForecaster(bundle, threads=1)
