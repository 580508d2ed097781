"""The campaign: that it notices what it is to notice, and a run of it."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import campaign
from tests.fuzz.reader import Reader
from tests.fuzz.readers import READERS
from trajpred.errors import DataError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="growth is told by Linux's /proc"),
]
#: Of the run: ``FUZZ_INPUTS=100000 pytest -m slow tests/fuzz`` for a long one.
INPUTS = int(os.environ.get("FUZZ_INPUTS", "2000"))


def digits(random: Random, _: bytes) -> bytes:
    return bytes([random.randrange(10)])


def faulty(_: Path) -> Reader:
    """Goes wrong in one way for each of some contents; 7 takes much, but no more than it may."""

    def read(content: bytes) -> None:
        match content[0]:
            case 1:
                raise DataError("is refused")
            case 2:
                raise KeyError("is not")
            case 3:
                os.kill(os.getpid(), signal.SIGSEGV)
            case 4:
                _ = b"x" * (campaign.GROWTH_MIB + 50) * 2**20
            case 5:
                end = time.process_time() + campaign.SLOW_S + 0.1
                while time.process_time() < end:
                    pass
            case 7:
                _ = b"x" * (campaign.GROWTH_MIB - 50) * 2**20

    return Reader((b"\0",), digits, read)


def test_every_kind_of_failure_is_found_and_its_input_kept(tmp_path: Path) -> None:
    tally = campaign.fuzz("faulty", faulty, 30, seed=0, out=tmp_path)
    contents = [campaign.spoilt_input(faulty(tmp_path), 0, i)[0] for i in range(30)]
    expected = {"KeyError elsewhere": 2, "dies (-11)": 3, "takes over 512 MiB": 4, "takes over 2 s": 5}
    assert {contents.count(digit) > 0 for digit in range(6)} == {True}
    assert contents.index(7) < contents.index(4) < contents.index(3), "much, then too much, in one process"
    assert tally.findings == {problem: contents.count(digit) for problem, digit in expected.items()}
    assert {path.read_bytes()[0] for path in tmp_path.iterdir() if path.is_file()} == set(expected.values())


def hanging(_: Path) -> Reader:
    return Reader((b"\0",), digits, lambda content: time.sleep(3600 * (content[0] == 7)))


def test_a_reader_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "SILENCE_S", 30.0)
    contents = [campaign.spoilt_input(hanging(Path()), 0, i)[0] for i in range(6)]
    assert contents.count(7) == 1
    assert campaign.fuzz("hanging", hanging, 6).findings == {"hangs": 1}


def test_a_campaign_over_all_readers_finds_nothing(tmp_path: Path) -> None:
    tallies = campaign.campaign(READERS, INPUTS, out=tmp_path)
    assert sum(one.inputs for one in tallies) >= INPUTS
    assert {one.name: dict(one.findings) for one in tallies if one.findings} == {}
