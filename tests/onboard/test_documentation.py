"""The onboard examples of the documentation run as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from trajpred.scenario import Scenario


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/onboard.md"])
def test_onboard_example_runs(
    page: str, bundle: Path, scenes: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bundle").symlink_to(bundle)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    [example] = [block for block in blocks if "OnboardForecaster" in block]
    names: dict[str, Any] = {"lane_map": scenes[0].map}
    exec(example, names)
    assert len(names["forecast"].track_id) == 2 and not names["forecast"].not_predicted
