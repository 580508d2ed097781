"""Compiled graphs give what the modules give, for any number of agents, lanes and targets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.model.small import small_model
from trajpred.errors import DataError
from trajpred.export.graphs import Decoder, Encoder, WholeForecaster
from trajpred.export.trace import to_torch, traced_inputs
from trajpred.onboard.bundle import FUSED, SIGNATURES

LETTERS = {"T": 50, "P": 10, "D": 32, "K": 6, "F": 60}


@pytest.fixture(scope="module")
def whole() -> WholeForecaster:
    model = small_model()
    encoder = Encoder(model.forecaster.encoder, model.scene.graph)
    return WholeForecaster(model.forecaster.encoder.lane, encoder, Decoder(model.forecaster.decoder)).eval()


@pytest.mark.slow
def test_gives_what_the_module_gives_for_any_sizes(whole: WholeForecaster, tmp_path: Path) -> None:
    path = tmp_path / "forecaster.pt2"
    to_torch(whole, FUSED, LETTERS, path)
    compiled = torch._inductor.aoti_load_package(str(path))
    for A, L, B in ((1, 1, 1), (1, 5, 1), (26, 77, 3), (3, 40, 9), (60, 200, 60)):
        torch.manual_seed(A)
        scene = traced_inputs(SIGNATURES[FUSED].inputs, {**LETTERS, "A": A, "L": L, "B": B})
        for found, expected in zip(compiled(*scene), whole(*scene), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


def test_says_that_it_needs_a_compiler(
    whole: WholeForecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("no-compiler",))
    with pytest.raises(DataError, match=r"lanes\.pt2: needs a C\+\+ compiler"):
        to_torch(whole.lane_encoder, "lane_encoder", LETTERS, tmp_path / "lanes.pt2")
    assert not any(tmp_path.iterdir())
