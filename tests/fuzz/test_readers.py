"""Damaged files are read or rejected with a DataError, in bounded time and memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.readers import READERS, Reader
from trajpred.errors import DataError

#: Processor seconds that one small input may take; resident memory and address space of a whole run.
SLOW_S, GROWTH_BYTES, SPACE_BYTES = 2.0, 512 * 2**20, 8 * 2**30
QUICK = settings(max_examples=40, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
THOROUGH = settings(QUICK, max_examples=2_000, derandomize=False)
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def limited_memory() -> Iterator[None]:
    """Fail allocations beyond :data:`SPACE_BYTES`, which then are errors other than DataError.

    Peak resident memory may grow by :data:`GROWTH_BYTES`.
    """
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + SPACE_BYTES, before[1]))
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb) < GROWTH_BYTES
    resource.setrlimit(resource.RLIMIT_AS, before)


def check(reader: Reader, content: bytes) -> None:
    start = time.process_time()
    try:
        reader.read(content)
    except DataError as error:
        assert "\n" not in str(error)
    assert time.process_time() - start < SLOW_S


def fuzz(name: str, folder: Path, profile: settings) -> None:
    reader = READERS[name](folder)
    reader.read(reader.seed)
    check(reader, reader.seed[: len(reader.seed) // 2])

    @profile
    @given(content=reader.damaged())
    def damaged_files_are_read_or_rejected(content: bytes) -> None:
        check(reader, content)

    damaged_files_are_read_or_rejected()


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_rejected(name: str, tmp_path: Path) -> None:
    fuzz(name, tmp_path, QUICK)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_read_or_rejected(name: str, tmp_path: Path, limited_memory: None) -> None:
    fuzz(name, tmp_path, THOROUGH)
