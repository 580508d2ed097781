"""The onboard examples of the documentation run as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from trajpred.data.scenario import Scenario


@pytest.mark.parametrize(
    ("page", "word", "part"),
    [
        ("README.md", "OnboardForecaster", "bundle"),
        ("docs/how-to/onboard.md", "OnboardForecaster", "bundle"),
        ("docs/how-to/onboard.md", "OnboardEncoder", "encoder"),
    ],
)
def test_onboard_example_runs(
    page: str, word: str, part: str, exported: Path, scenes: list[Scenario], tmp_path: Path, monkeypatch: Any
) -> None:
    """Of the first block of ``page`` that contains ``word``."""
    monkeypatch.chdir(tmp_path)
    Path("bundle").symlink_to(exported / part)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"lane_map": scenes[0].map, "scenario": scenes[0]}
    exec(next(block for block in blocks if word in block), names)
    if part == "encoder":
        assert names["tokens"].track_id.tolist() == ["AV"]
        assert not names["tokens"].not_encoded
    else:
        assert len(names["forecast"].track_id) == 2
        assert not names["forecast"].not_predicted
