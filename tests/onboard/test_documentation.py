"""The onboard examples of the documentation run as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from trajpred.data.scenario import Scenario


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/onboard.md"])
def test_onboard_example_runs(
    page: str, bundle: Path, scenes: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    forecast = run_example(page, "OnboardForecaster", bundle, scenes[0])["forecast"]
    assert len(forecast.track_id) == 2
    assert not forecast.not_predicted


def test_encoder_example_runs(
    encoder_bundle: Path, scenes: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tokens = run_example("docs/how-to/onboard.md", "OnboardEncoder", encoder_bundle, scenes[0])["tokens"]
    assert tokens.track_id.tolist() == ["AV"]
    assert not tokens.not_encoded


def run_example(page: str, word: str, bundle: Path, scenario: Scenario) -> dict[str, Any]:
    """Run the block of ``page`` that contains ``word``, in the current folder; return its variables."""
    Path("bundle").symlink_to(bundle)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    example = next(block for block in blocks if word in block)
    names: dict[str, Any] = {"lane_map": scenario.map, "scenario": scenario}
    exec(example, names)
    return names
