"""Fixtures of trainings; those of the features and model tests serve here too."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.features.conftest import scenario, scenes  # noqa: F401
from tests.model.conftest import model, real, seed  # noqa: F401
from trajpred.training.checkpoint_io import SIGNALS


@pytest.fixture
def ignored_signals() -> Iterator[None]:
    """Signals that training misses do not end the tests; afterwards the handlers are restored."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    yield
    after = {signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == {signal.SIG_IGN}
