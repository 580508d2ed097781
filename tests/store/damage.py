"""What every kind of damage leads to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trajpred.errors import DataError


def refused(read: Callable[[], Any], file: Path) -> DataError:
    """``read()`` fails with one error that names ``file``."""
    with pytest.raises(DataError) as caught:
        read()
    assert caught.value.file == file
    assert str(caught.value).count("prepare it") <= 1
    return caught.value
