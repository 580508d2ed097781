"""The C++ library under sanitizers: mutated updates, maps, drives and bundles do not crash it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.export.conftest import *  # noqa: F403
from tests.onboard.cpp import Update, build, cpp_results, lines_of, run
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.onboard import Detections

pytestmark = pytest.mark.slow

UPDATES = 10_000
FLAGS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
#: Numbers that are seldom expected.
ODD = (np.nan, 1e8, -1e8, 1e300, 5e-324, 0.0, -0.0, 100.0, 1e-9)
NAMES = ("AV", "a", "b", "c", "", "7\0", "x" * 300, "\u202e", "Zürich 東京", "😀")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = ("-DTRAJPRED_ONNX=OFF", f"-DCMAKE_CXX_FLAGS={FLAGS}")
    return build(tmp_path_factory.mktemp("sanitized"), *options) / "trajpred_arrays"


def odd_numbers(random: np.random.Generator, shape: tuple[int, ...], scale: float) -> np.ndarray:
    """Plain numbers, of which some are odd."""
    values = scale * random.standard_normal(shape)
    odd = random.random(shape) < 0.1
    return np.where(odd, random.choice(ODD, shape), values)


def odd_update(random: np.random.Generator, clock: float, centre: Sequence[float]) -> Update:
    """Any number of tracks, columns of any length, and a clock that goes back and forth."""
    count = int(random.choice([0, 1, 3, 8, 20]))
    if random.random() < 0.002:
        count = int(random.choice([300, 2000, 2500]))
    names = [f"n {i}" for i in range(count)] if count > 20 else random.choice(NAMES, count).tolist()
    position = odd_numbers(random, (count, 2), 20.0) + np.array(centre)
    heading = odd_numbers(random, (count + int(random.random() < 0.02),), 2.0)
    velocity = odd_numbers(random, (count, 2), 10.0)
    kinds = random.choice([*OBJECT_TYPES, "tram"], count).tolist()
    detected = Detections(names, position, heading, velocity, kinds)
    if random.random() < 0.3:
        detected = Detections(names, position)
    targets = ["a", "stranger"] if random.random() < 0.1 else None
    return Update(clock, detected, targets)


def test_mutated_updates(program: Path, bundle: Path, scenes: list[Scenario], tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    centre = scenes[0].tracks.position[scenes[0].focal, 0]
    clock, updates = 0.0, []
    for step in range(UPDATES):
        clock += float(random.choice([0.1, 0.1, 0.1, 0.03, 0.7, -0.2, -9.0, 99.0]))
        stamp = float(random.choice([np.nan, 1e300, -1e300])) if random.random() < 0.01 else clock
        update = odd_update(random, stamp, centre)
        lane_map = scenes[step // 500 % len(scenes)].map if step % 500 == 0 else None
        updates.append(update._replace(map=lane_map))
    lines = lines_of(updates)
    warnings: set[str] = set()
    predicted = 0
    for found in cpp_results(program, bundle, lines, tmp_path / "drive", "--facts"):
        warnings.update(found.facts["warnings"])
        predicted += len(found.facts["track_id"])
        shares = np.array(found.facts["probability"], np.float64)
        assert np.isfinite(shares).all()
        assert len(shares) == len(found.facts["track_id"])
    assert predicted > UPDATES
    assert not [warning for warning in warnings if "failed" in warning]


def mutated(random: np.random.Generator, content: bytes) -> bytes:
    """Replace, remove or repeat some bytes."""
    changed = bytearray(content)
    for _ in range(int(random.integers(1, 6))):
        place = int(random.integers(len(changed)))
        kind = int(random.integers(3))
        if kind == 0:
            changed[place] = int(random.choice(list(b'0-9e{}[]",:n\xff')))
        elif kind == 1:
            del changed[place : place + int(random.integers(1, 40))]
        else:
            changed[place:place] = changed[place : place + int(random.integers(1, 400))]
    return bytes(changed)


def test_mutated_files(program: Path, bundle: Path, scenes: list[Scenario], tmp_path: Path) -> None:
    """One sentence, or a result: never a signal, and nothing that a sanitizer reports."""
    random = np.random.default_rng(4)
    part = scenes[0].map.take(np.arange(12), np.zeros(0, np.int64))
    seen = Detections(["AV"], [tuple(scenes[0].tracks.position[0, 0])])
    drive = "\n".join(lines_of([Update(0.0, seen, map=part), Update(0.1, seen)])).encode()
    manifest = (bundle / "bundle.json").read_bytes()
    copy = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    codes = []
    for step in range(400):
        of_drive = step % 2 == 0
        (tmp_path / "drive.jsonl").write_bytes(mutated(random, drive) if of_drive else drive)
        (copy / "bundle.json").write_bytes(manifest if of_drive else mutated(random, manifest))
        done = run(program, copy, tmp_path / "drive.jsonl", tmp_path / "out")
        codes.append(done.returncode)
        assert done.returncode in (0, 2), done.stderr
        assert "runtime error" not in done.stderr, done.stderr
        errors = [line for line in done.stderr.splitlines() if " left out: " not in line]
        assert len(errors) <= 1, done.stderr
    assert codes.count(2) > 100
    assert json.loads(manifest)["format"] == "trajpred-bundle"
