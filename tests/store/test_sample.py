"""The store of the sample."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trajpred.store.sample import store_of


def test_the_store_is_in_the_users_cache_if_the_repository_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "sample"
    raw.mkdir()
    assert store_of(raw) == tmp_path / "store"
    monkeypatch.setattr(os, "access", lambda *_: False)  # permissions do not stop root
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert store_of(raw).is_relative_to(tmp_path / ".cache")
    (tmp_path / "store").mkdir()
    assert store_of(raw) == tmp_path / "store"
