"""The C++ library reproduces a bundle's example, and Python's futures of a drive.

CMake finds ONNX Runtime where it is installed, or in the folder ``ONNXRUNTIME_ROOT``; if that is set, a
missing compiler or library is a failure, otherwise the tests are skipped.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import onnx
import pytest

from tests.conftest import ROOT, rejects
from tests.conftest import run as trajpred
from tests.onboard.conftest import replace_file
from tests.onboard.cpp import install, run
from trajpred import read_map
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.export.export_bundle import export_bundle
from trajpred.integrations.replay import drive_line
from trajpred.onboard import Detections, OnboardForecaster
from trajpred.onboard.bundle import EXAMPLE, GRAPHS, SIGNATURES
from trajpred.sources.argoverse2 import archive_of

pytestmark = pytest.mark.slow

#: A program of a user: the block of a page that starts with these headers.
BLOCK = re.compile(r"```cpp\n(#include <trajpred_onboard.*?)```", re.DOTALL)
CONSUMER = """
cmake_minimum_required(VERSION 3.16)
project(consumer LANGUAGES CXX)
find_package(trajpred_onboard REQUIRED COMPONENTS onnx)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE trajpred_onboard::onnx)
"""


@pytest.fixture(scope="module")
def program(programs: Path) -> Path:
    """What compares a bundle with its example."""
    return programs / "trajpred_check"


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
    assert "encoder/agent_token" in done.stdout
    assert "decoder" not in done.stdout
    change(bundle / "example" / "encoder" / "lane_context.npy", 0.02)
    done = run(program, bundle, "--runs", "1")
    assert done.returncode == 1
    assert done.stdout.count("TOO FAR") == 1


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    """A drive of one update, in which nothing was detected."""
    path = tmp_path / "drive"
    path.write_text('{"time_s": 0, "track_id": [], "position": []}\n')
    return path


@pytest.fixture
def bundle(unpacked: Path, tmp_path: Path) -> Path:
    """A copy to modify."""
    return Path(shutil.copytree(unpacked, tmp_path / "bundle"))


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
        (rewrite(lambda x: np.pad(x, ((0, 0), (0, 1), (0, 0)))), "Got invalid dimensions for input: history"),
    ],
)
def test_invalid_input_is_named(
    program: Path, bundle: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(bundle / "example" / "encoder" / "history.npy")
    done = run(program, bundle, "--runs", "1")
    assert done.returncode == 2
    assert done.stderr.startswith("trajpred_check: ")
    assert "history" in done.stderr
    assert message in done.stderr


@pytest.mark.parametrize("part", [{}, {"sizes": (40, 200)}], ids=["any size", "fixed sizes"])
def test_futures_of_a_drive_are_those_of_python(
    programs: Path, sample_scenarios: list[Scenario], tmp_path: Path, part: dict[str, tuple[int, int]]
) -> None:
    """Also where the bundle leaves out agents, which the limits of its sizes decide."""
    export_bundle("argoverse-nano", tmp_path / "bundle", sample_scenarios[:1], progress=False, **part)
    drive = tmp_path / "drive.jsonl"
    options = ("--bundle", tmp_path / "bundle", "--scenario", "24974b9d", "--threads", 1)
    assert trajpred("replay", *options, "--out", drive) == 0
    done = run(programs / "trajpred_replay", tmp_path / "bundle", drive, "--out", tmp_path / "out.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"largest distance, m +\S+ in 110 updates$", done.stdout, re.MULTILINE)
    assert len((tmp_path / "out.jsonl").read_text("utf-8").splitlines()) == 110
    strict = run(programs / "trajpred_replay", tmp_path / "bundle", drive, "--tolerance", "1e-9")
    assert strict.returncode == 1
    assert "TOO FAR" in strict.stdout
    lines = drive.read_text("utf-8").splitlines()
    last = json.loads(lines[-1])
    last["forecast"]["probability"][0][0] += 0.01
    lines[-1] = json.dumps(last)
    drive.write_text("\n".join(lines), "utf-8")
    changed = run(programs / "trajpred_replay", tmp_path / "bundle", drive)
    assert changed.returncode == 1
    assert re.search(r"of probabilities +1.00e-02$", changed.stdout, re.MULTILINE)


def test_graphs_that_changed_places(programs: Path, bundle: Path, tmp_path: Path) -> None:
    replace_file(bundle / "decoder.onnx", (bundle / "encoder.onnx").read_bytes())
    error = rejects("", OnboardForecaster, bundle)
    (tmp_path / "drive").write_text("")
    for program, words in (("trajpred_replay", (bundle, tmp_path / "drive")), ("trajpred_check", (bundle,))):
        done = run(programs / program, *words)
        assert (done.returncode, done.stderr) == (2, f"{program}: {error}\n")


def test_a_replay_in_which_every_forecast_fails(programs: Path, bundle: Path, tmp_path: Path) -> None:
    """A decoder that reads agents beyond the last one."""
    model = onnx.load(bundle / "decoder.onnx")
    for node in model.graph.node:
        node.input[:] = ["beyond" if name == "target" else name for name in node.input]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(10**6), "many"))
    model.graph.node.insert(0, onnx.helper.make_node("Add", ["target", "many"], ["beyond"]))
    replace_file(bundle / "decoder.onnx", model.SerializeToString())
    lines = [drive_line(0.1 * step, Detections(["a"], [[step, 0.0]])) for step in range(3)]
    (tmp_path / "drive").write_text("\n".join(lines))
    done = run(programs / "trajpred_replay", bundle, tmp_path / "drive")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("forecast failed") == 1
    assert "every forecast of the bundle FAILED" in done.stdout
    with_fallback = run(programs / "trajpred_replay", bundle, tmp_path / "drive", "--fallback", "1")
    assert with_fallback.returncode == 1


def output_of(source: str, programs: Path, folder: Path) -> list[str]:
    """Install the library in ``folder``, build a user's program with it, and return what that prints."""
    prefix = install(programs, folder / "installed")
    (folder / "main.cpp").write_text(source)
    (folder / "CMakeLists.txt").write_text(CONSUMER)
    made = run("cmake", "-S", folder, "-B", folder / "out", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert made.returncode == 0, made.stderr
    built = run("cmake", "--build", folder / "out")
    assert built.returncode == 0, built.stdout + built.stderr
    done = run("cmake", "-E", "chdir", folder, folder / "out" / "consumer")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_installed_library_is_found(programs: Path, bundle: Path, tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "cpp.md"
    [block] = BLOCK.findall(page.read_text("utf-8"))
    head, _, body = block.partition("using namespace trajpred::onboard;\n")
    source = (
        f"{head}#include <cstdio>\nusing namespace trajpred::onboard;\nint main() {{\n{body}"
        'for (const auto& name : forecast.track_id) std::printf("%s\\n", name.c_str());\n}\n'
    )
    assert trajpred("info", "0a1e6f0a", "--save", tmp_path / "lanes.json") == 0
    assert len(output_of(source, programs, tmp_path)) == 2
    checked = run(tmp_path / "installed" / "bin" / "trajpred_check", bundle, "--runs", "1")
    assert checked.returncode == 0, checked.stderr


def test_the_arrays_are_found_without_onnx_runtime(programs: Path, tmp_path: Path) -> None:
    """On another machine than that of the build; empty results of a search count as not found."""
    prefix = install(programs, tmp_path / "installed")
    missing = ("-DONNXRUNTIME_INCLUDE=", "-DONNXRUNTIME_LIBRARY=", f"-DCMAKE_PREFIX_PATH={prefix}")
    (tmp_path / "main.cpp").write_text("int main() {}")
    alone = CONSUMER.replace("REQUIRED COMPONENTS onnx", "QUIET").replace("::onnx", "::trajpred_onboard")
    (tmp_path / "CMakeLists.txt").write_text(alone)
    made = run("cmake", "-S", tmp_path, "-B", tmp_path / "alone", *missing)
    assert made.returncode == 0, made.stderr
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER)
    made = run("cmake", "-S", tmp_path, "-B", tmp_path / "out", *missing)
    assert made.returncode != 0
    assert "no component onnx: ONNX Runtime was not found" in " ".join(made.stderr.split())


def test_misuse_is_reported(programs: Path, bundle: Path, tmp_path: Path) -> None:
    """``bundle`` lies in the folder of the program."""
    source = Path(__file__).with_name("misuse.cpp").read_text("utf-8")
    lines = output_of(source, programs, tmp_path)
    lacking = lines.pop(4)
    assert lacking.startswith("field 'providers': NoneExecutionProvider is not in this ONNX Runtime")
    assert "CPUExecutionProvider" in lacking
    assert lines == [
        "fallback failed: unknown exception",
        "one map",
        "field 'runtime': must not be null",
        "field 'threads': must be 0 to 1024",
        "field 'states': differ in their number between tracks",
        "forecast failed: field 'trajectory': has another shape than bundle.json says",
    ]


def sensor_map(lane_id: int, left: list[list[float]]) -> str:
    """Write a map as Argoverse 2 Sensor logs have it: a lane of two boundaries, without a centreline."""

    def points(line: list[list[float]]) -> list[dict[str, float]]:
        return [{"x": x, "y": y, "z": 0.0} for x, y in line]

    lane = {
        "id": lane_id,
        "lane_type": "VEHICLE",
        "is_intersection": False,
        "left_lane_boundary": points(left),
        "right_lane_boundary": points([[0.0, -3.0], [9.0, -3.0]]),
        "left_lane_mark_type": "NONE",
        "right_lane_mark_type": "NONE",
        "left_neighbor_id": None,
        "right_neighbor_id": None,
        "predecessors": [],
        "successors": [],
    }
    return json.dumps({"lane_segments": {"1": lane}, "pedestrian_crossings": {}})


@pytest.mark.parametrize(
    "damage",
    [
        {"1": {"lane_type": 3}},
        {"1": {"centerline": [{"x": 0, "y": math.nan, "z": 0}, {"x": 9, "y": 0, "z": 0}]}},
        {"1": {"id": 2}, "3": {"successors": None}, "9": {"edge1": 7}},
        {"1": {"id": None}, "2": {"id": -1}},
        {"1": {"id": None}, "2": {"id": -1}, "3": {"id": 1.5}},
    ],
)
def test_broken_records_are_left_out_as_in_python(
    programs: Path, bundle: Path, drive: Path, tmp_path: Path, damage: dict[str, dict[str, Any]]
) -> None:
    """With the same counts and names; a map without any lane is refused."""
    lines = [[[0, 0], [9, 0]], [[9, 0], [20, 0]], [[20, 0], [30, 0]]]
    archive = archive_of(LaneMap.from_centerlines(lines, lane_id=[1, 2, 3]))
    side = [{"x": 0, "y": 0, "z": 0}, {"x": 0, "y": 5, "z": 0}]
    archive["pedestrian_crossings"] = {"9": {"id": 9, "edge1": side, "edge2": side}}
    for key, change in damage.items():
        for group in archive.values():
            group.get(key, {}).update(change)
    (tmp_path / "map.json").write_text(json.dumps(archive))
    done = run(programs / "trajpred_replay", bundle, drive, "--map", tmp_path / "map.json")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            read_map(tmp_path / "map.json")
        except DataError as error:
            assert (done.returncode, done.stderr) == (2, f"trajpred_replay: {error}\n")
            return
    [warning] = caught
    named, _, _ = str(warning.message).partition(" (")  # the reason of a coordinate that is NaN differs
    assert done.returncode == 0
    assert done.stderr.startswith(f"{named} (")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "usage: "),
        (("nothing", "nothing"), "nothing: no such file, or not readable"),
        (("nothing", "drive"), "nothing: no such bundle"),
        (("BUNDLE", "wrong"), "line 2: is not an update"),
        (("BUNDLE", "drive", "--map", "wrong"), "is not a map in JSON"),
        (("BUNDLE", "drive", "--map", "list"), "'lane_segments': must be an object of id -> record"),
        (("BUNDLE", "drive", "--map", "number"), "no lane that road users drive on: 1 lane segment left out"),
        (("BUNDLE", "drive", "--map", "sensor"), ""),
        (("BUNDLE", "drive", "--map", "minus"), "'lane_id': contains -1, which stands for no neighbour"),
        (("BUNDLE", "drive", "--map", "long"), "'lane_segments': contain a lane longer than 100000 m"),
        (("BUNDLE", "drive", "--map", "point"), "have neither centrelines nor two points of both boundaries"),
        (("BUNDLE", "nested"), "line 1: is nested deeper than 100 levels"),
    ],
)
def test_errors_are_one_sentence(
    programs: Path, bundle: Path, drive: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    paths = {"BUNDLE": bundle, "drive": drive}
    for name, content in {
        "wrong": drive.read_text() + '{"time_s": []}\n',
        "list": '{"lane_segments": [{}], "pedestrian_crossings": {}}',
        "number": '{"lane_segments": {"1": 1}, "pedestrian_crossings": {}}',
        "nested": '{"time_s": ' + 99999 * "[" + 99999 * "]" + "}\n",
        "sensor": sensor_map(0, [[0.0, 0.0], [9.0, 0.0]]),
        "minus": sensor_map(-1, [[0.0, 0.0], [9.0, 0.0]]),
        "long": sensor_map(0, [[0.0, 0.0], [1e308, 0.0]]),
        "point": sensor_map(0, [[0.0, 0.0]]),
    }.items():
        paths[name] = tmp_path / name
        paths[name].write_text(content)
    done = run(programs / "trajpred_replay", *(paths.get(word, word) for word in words))
    assert done.returncode == (2 if message else 0), done.stderr
    assert message in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == bool(message)
