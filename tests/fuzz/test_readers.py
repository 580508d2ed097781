"""Spoilt files are read, or refused with a DataError; thousands of them in ``campaign.py``."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.campaign import failure
from tests.fuzz.reader import Reader
from tests.fuzz.readers import READERS

_MADE: dict[str, Reader] = {}


@pytest.fixture
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    name: str = request.param
    if name not in _MADE:
        _MADE[name] = READERS[name](tmp_path_factory.mktemp("reader"))
    return _MADE[name]


every = pytest.mark.parametrize("reader", READERS, indirect=True)


@every
def test_what_is_not_spoilt_is_read(reader: Reader) -> None:
    for content in reader.seeds:
        reader.read(content)


@every
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_what_is_spoilt_is_read_or_refused(reader: Reader, random: Random) -> None:
    content = reader.spoilt(random)
    assert failure(reader, content)[0] is None


@every
@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9])
def test_what_is_cut_short_is_read_or_refused(reader: Reader, share: float) -> None:
    content = reader.seeds[0]
    assert failure(reader, content[: int(share * len(content))])[0] is None
