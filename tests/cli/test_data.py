"""Preparing and drawing what is read from raw data."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import SAMPLE, run


def test_unreadable_scenarios_are_reported_and_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "raw"
    for name in ("0000b0f9-99f9-4a1f-a231-5be9e4c523f7", "0a0a2bb7-c4f4-44cd-958a-9ee15cb34aca"):
        shutil.copytree(SAMPLE / "train" / name, raw / "train" / name)
    next((raw / "train").glob("0000*/*.json")).unlink()
    args = ["--raw", raw, "--store", tmp_path / "store", "--workers", 1]
    assert run("prepare", *args) == 3
    printed = capsys.readouterr()
    assert "1 scenarios, 1 skipped" in printed.out
    assert re.search(r"0000b0f9.*log_map_archive_\*\.json is missing", printed.err)
    assert "1 scenarios were skipped" in printed.err
    assert run("prepare", *args, "--allow-skipped") == 0
    assert "were skipped" not in capsys.readouterr().err
