"""The C++ library: built once per test session, and its arrays of a drive beside Python's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from filelock import FileLock
from numpy.typing import NDArray

from tests.conftest import ROOT
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.integrations.replay import drive_line
from trajpred.onboard import Detections, OnboardForecast, OnboardForecaster, StreamingForecaster
from trajpred.onboard.forecaster import Rule
from trajpred.sources.argoverse2 import archive_of

SOURCE = ROOT / "tools" / "onboard_cpp"
#: CMake's messages about what a machine may lack; any other failure is one of the library.
MISSING = ("nlohmann_json was not found", "No CMAKE_CXX_COMPILER could be", "ONNX Runtime was not found")
DTYPES: dict[str, Any] = {"float32": np.float32, "int64": np.int64, "bool": np.bool_}
#: What is the same for an update, besides the arrays.
FACTS = ("track_id", "not_predicted", "fallback", "warnings", "encoded")
#: How far numbers may differ: absolutely, and as a share.
ATOL, RTOL = 1e-5, 1e-6


class Update(NamedTuple):
    """An update of a drive; a ``map`` replaces the current one."""

    timestamp_s: float
    detections: Detections
    targets: Sequence[str] | None = None
    map: LaneMap | None = None


@dataclass
class Found:
    """What an update gave: the inputs of the graphs by name, and ``facts`` such as reasons."""

    arrays: Mapping[str, NDArray[Any]]
    facts: dict[str, Any]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=3600)


def json_headers() -> str:
    """Return the folder of nlohmann/json's headers that pip installed; empty for those of the system."""
    found = find_spec("nlohmann_json")
    if found is None or found.origin is None:
        return ""
    return str(Path(found.origin).parent / "include")


def build(folder: Path, *options: str) -> Path:
    """Build the library in ``folder``; skip the test if the machine lacks what that needs."""
    if shutil.which("cmake") is None:
        pytest.skip("the C++ library needs cmake")
    strict = "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON"
    headers = f"-DNLOHMANN_JSON_INCLUDE={json_headers()}"
    done = run("cmake", "-S", SOURCE, "-B", folder, strict, headers, *options)
    for reason in MISSING:
        if reason in done.stderr and "ONNXRUNTIME_ROOT" not in os.environ:
            pytest.skip(f"the C++ library cannot be built: {reason}")
    assert done.returncode == 0, done.stderr
    built = run("cmake", "--build", folder, "--parallel", "2")
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def install(programs: Path, prefix: Path) -> Path:
    """Install a build."""
    done = run("cmake", "--install", programs, "--prefix", prefix)
    assert done.returncode == 0, done.stderr
    return prefix


def built_once(folder: Path) -> Path:
    """Build what makes the arrays, in a ``folder`` that several processes may share; return the program."""
    folder.mkdir(exist_ok=True)
    program = folder / "trajpred_arrays"
    with FileLock(folder / "lock"):
        if not program.exists():
            build(folder, "-DTRAJPRED_ONNX=OFF", "-DCMAKE_CXX_FLAGS=-O1")
    return program


class RecordingForecaster(OnboardForecaster):
    """Keeps the inputs of the encoder instead of running it, as ``programs/arrays.cpp`` does."""

    recorded: dict[str, NDArray[Any]]

    def run(self, graph: str, values: Mapping[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
        bundle = self.bundle
        if graph == "lane_encoder":
            points = values["points"].reshape(len(values["points"]), -1)
            codes = (values["kind"], values["is_intersection"], values["marks"], points)
            token = np.column_stack(codes).astype(np.float32)
            channel = np.arange(bundle.dim) % token.shape[1]
            return [token[:, channel]]
        if graph == "encoder":
            self.recorded = dict(values)
            sizes = (len(values[name]) for name in ("agent_valid", "lane_valid"))
            return [np.zeros((size, bundle.dim), np.float32) for size in sizes]
        self.recorded["target"] = values["target"]
        path = np.zeros((len(values["target"]), bundle.modes, bundle.horizon, 2), np.float32)
        return [path, path, np.ones(path.shape[:2], np.float32)]


def python_results(bundle: Path, updates: Sequence[Update], fallback: Rule | None = None) -> Iterator[Found]:
    """Yield what Python makes of a drive."""
    runtime = RecordingForecaster(bundle, threads=1)
    stream = StreamingForecaster(runtime, fallback=fallback)
    for update in updates:
        runtime.recorded = {}
        if update.map is not None:
            stream.set_map(update.map)
        forecast = stream.update(update.timestamp_s, update.detections, update.targets)
        yield Found(runtime.recorded, facts_of(forecast) | {"encoded": runtime.lanes.encoded})


def facts_of(forecast: OnboardForecast) -> dict[str, Any]:
    return {
        "track_id": forecast.track_id.tolist(),
        "trajectory": forecast.trajectory,
        "probability": forecast.probability,
        "not_predicted": forecast.not_predicted,
        "fallback": forecast.fallback,
        "warnings": list(forecast.warnings),
    }


def cpp_results(
    program: Path, bundle: Path, lines: Sequence[str], out: Path, *options: str
) -> Iterator[Found]:
    """Yield what C++ makes of the lines of a drive."""
    drive = out.with_suffix(".jsonl")
    drive.write_text("\n".join(lines) + "\n", "utf-8")
    done = run(program, bundle, drive, out, *options)
    assert done.returncode == 0, done.stderr
    with out.open("rb") as file:
        while text := file.readline():
            facts = json.loads(text)
            arrays = {}
            for array in facts.pop("arrays"):
                dtype = np.dtype(DTYPES[array["dtype"]])
                content = file.read(int(np.prod(array["shape"])) * dtype.itemsize)
                arrays[array["name"]] = np.frombuffer(content, dtype).reshape(array["shape"])
            yield Found(arrays, facts)


def lines_of(updates: Sequence[Update]) -> list[str]:
    """Return a drive as the text that C++ reads."""
    lines = []
    for update in updates:
        archive = None if update.map is None else archive_of(update.map)
        lines.append(drive_line(update.timestamp_s, update.detections, targets=update.targets, map=archive))
    return lines


def scene_line(scenario: Scenario) -> str:
    """Return the observed steps of a scenario as the text that C++ reads."""
    tracks = []
    columns = (scenario.tracks.position, scenario.tracks.heading[..., None], scenario.tracks.velocity)
    states = np.concatenate(columns, -1)
    for row, name in enumerate(scenario.tracks.track_id.tolist()):
        observed = []
        for step in range(scenario.num_observed):
            valid = scenario.tracks.valid[row, step]
            observed.append(states[row, step].tolist() if valid else None)
        kind = int(scenario.tracks.object_type[row])
        category = int(scenario.tracks.category[row])
        tracks.append({"track_id": name, "object_type": kind, "category": category, "states": observed})
    scene = {"step_s": scenario.step_s, "focal": scenario.focal, "tracks": tracks}
    return json.dumps({"scene": scene, "map": archive_of(scenario.map)}).replace(": ", ":", 1)


def assert_equal_arrays(found: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> None:
    """All inputs have the same names, types and shapes, and equal values."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype, name
        assert found[name].shape == values.shape, name
        if values.dtype == np.float32:
            np.testing.assert_allclose(found[name], values, rtol=RTOL, atol=ATOL, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], values, err_msg=name)


def assert_equal_drives(program: Path, bundle: Path, updates: Sequence[Update], out: Path) -> list[Found]:
    """Return what C++ makes of a drive, after comparing it with Python's."""
    found = list(cpp_results(program, bundle, lines_of(updates), out))
    for step, (a, b) in enumerate(zip(found, python_results(bundle, updates), strict=True)):
        for name in FACTS:
            assert a.facts[name] == b.facts[name], f"update {step}: {name} {a.facts[name]} {b.facts[name]}"
        assert_equal_arrays(a.arrays, b.arrays)
    return found
