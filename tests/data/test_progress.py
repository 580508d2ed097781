"""Stages and bars in a file: lines that can be read, before and after the work."""

from __future__ import annotations

import pytest

from trajpred.data import files as progress


def test_a_loop_prints_whole_lines_where_no_one_watches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in progress.progress_bar(range(1000), desc="scoring", unit=" scenarios"):
        pass
    first, last = capsys.readouterr().err.splitlines()
    assert "0/1000" in first
    assert "1000/1000" in last
    assert "\r" not in first + last
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    for _ in progress.progress_bar(range(3), miniters=1):
        pass
    assert [f"{count}/3 " in line for count, line in enumerate(capsys.readouterr().err.splitlines()[:4])]
    list(progress.progress_bar(range(3), shown=False))
    assert capsys.readouterr().err == ""


def test_a_stage_is_announced_before_it_begins_and_ends_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.stage("tracing"):
        assert capsys.readouterr().err == "tracing … "
    assert capsys.readouterr().err.endswith(" s\n")
    with pytest.raises(ValueError), progress.stage("checking"):
        raise ValueError
    assert capsys.readouterr().err == "checking … \n"
