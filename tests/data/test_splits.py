"""Choices by id: halves and parts are stable, of equal size, and independent of each other."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from tests.conftest import run
from trajpred.data.splits import CALIBRATION_PART, HALF, HOLD_OUT, draw, half_of
from trajpred.errors import DataError
from trajpred.store import ScenarioStore

#: Ids as those of Argoverse 1, which differ in few characters.
IDS = [str(number) for number in range(1, 20_001)]


def test_numbers_are_those_of_the_documented_hash() -> None:
    assert draw("17", HALF) == crc32(b"17 half") / 2**32
    assert half_of("17") == ("deciding" if crc32(b"17 half") < 2**31 else "reporting")


def test_purposes_divide_evenly_and_independently() -> None:
    """Binomial: three standard deviations of 20,000 draws are at most 0.011."""
    drawn = {}
    for purpose in (HOLD_OUT, HALF, CALIBRATION_PART):
        drawn[purpose] = np.array([draw(name, purpose) for name in IDS])
    for values in drawn.values():
        quarters = np.bincount((values * 4).astype(int), minlength=4) / len(IDS)
        assert quarters == pytest.approx([0.25] * 4, abs=0.011)
    for first, second in combinations(drawn, 2):
        chosen = drawn[first] < 0.05
        share = np.mean(drawn[second][chosen] < 0.5)
        assert share == pytest.approx(0.5, abs=3 * 0.5 / np.sqrt(chosen.sum())), (first, second)


def test_held_out_scenarios_do_not_change_and_halves_are_the_whole(store_path: Path) -> None:
    whole = ScenarioStore(store_path, "train")
    expected = [crc32(f"hold out {name}".encode()) < 0.4 * 2**32 for name in whole.scenario_ids]
    assert whole.held_out(0.4).tolist() == expected
    assert 0 < sum(expected) < len(expected)
    first, second = whole.halved("deciding"), whole.halved("reporting")
    assert sorted(first.scenario_ids + second.scenario_ids) == sorted(whole.scenario_ids)
    assert all(half_of(one.scenario_id) == "deciding" for one in first)
    assert (whole.half, first.half, second.half) == ("", "deciding", "reporting")


def test_no_recording_is_divided(tmp_path: Path) -> None:
    """Windows of twelve recordings, three of each."""
    (tmp_path / "raw" / "val").mkdir(parents=True)
    for number in range(12):
        rows = [f"1,{step / 10},{step},0" for step in range(150)]
        (tmp_path / "raw" / "val" / f"{number}.csv").write_text("\n".join(["id,t,x,y", *rows]))
    columns = ["--columns", "track=id", "time=t:s", "x=x", "y=y"]
    command = ["prepare", "--source", "table", "--raw", tmp_path / "raw", "--store", tmp_path / "store"]
    assert run(*command, *columns, "--workers", 1) == 0
    store = ScenarioStore(tmp_path / "store", "val")
    assert sorted(set(store.recordings)) == sorted(str(number) for number in range(12))
    assert store[4].scenario_id.startswith(f"{store.recordings[4]}_")
    deciding = set(store.halved("deciding").recordings)
    assert deciding == {name for name in store.recordings if half_of(name) == "deciding"}
    assert not deciding & set(store.halved("reporting").recordings)
    out = store.held_out(0.5)
    assert {*store.subset(out).recordings}.isdisjoint(store.subset(~out).recordings)


def test_an_empty_half_is_one_sentence(store_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [name] = ScenarioStore(store_path, "test").scenario_ids
    empty = "reporting" if half_of(name) == "deciding" else "deciding"
    with pytest.raises(DataError, match=f"no scenario of split 'test' is in the {empty} half"):
        ScenarioStore(store_path, "test").halved(empty)
    for command in ("evaluate", "predict"):
        options = ["--store", store_path, "--split", "test", "--half", empty]
        assert run(command, *options) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: --half: no scenario of split 'test'"), error
