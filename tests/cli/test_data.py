"""Preparing and drawing what is read from raw data."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import SAMPLE, run


def test_prepare_keeps_scenarios_that_the_raw_data_lack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, names = tmp_path / "store", sorted(path.name for path in (SAMPLE / "train").iterdir())[:2]
    for folder, split, name in (("a", "train", names[0]), ("b", "val", names[0]), ("c", "train", names[1])):
        shutil.copytree(SAMPLE / "train" / name, tmp_path / folder / split / name)

    def prepare(folder: str, *more: str) -> int:
        return run("prepare", "--raw", tmp_path / folder, "--store", store, "--workers", 1, *more)

    assert prepare("a") == 0 and "Training also needs: val" in capsys.readouterr().out
    assert run("train", "--data.store", store) == 2 and "no split 'val'" in capsys.readouterr().err
    assert prepare("b") == 0 and "trajpred train" in capsys.readouterr().out
    manifest = json.loads((store / "manifest.json").read_text())
    assert set(manifest["splits"]) == {"train", "val"}
    assert prepare("c") == 2 and "that the raw data lack" in capsys.readouterr().err
    assert json.loads((store / "manifest.json").read_text()) == manifest
    assert prepare("c", "--overwrite") == 0


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
