"""The examples of the READMEs run as they stand, with a bundle and a map at hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from trajpred.scenario import Scenario


@pytest.mark.parametrize("page", ["README.md", "trajpred/export/README.md"])
def test_the_onboard_example_runs(
    page: str, bundle: Path, scenes: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bundle").symlink_to(bundle)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    [example] = [block for block in blocks if "OnboardForecaster" in block]
    said: dict[str, Any] = {"lane_map": scenes[0].map}
    exec(example, said)
    found = said.get("forecast", said.get("found"))
    assert len(found.track_id) == 2 and not found.not_predicted
