"""The exported modules build the graph that training builds, and divide the logits."""

from __future__ import annotations

import torch

from trajpred.export.graphs import Decoder
from trajpred.export.trace import traced_inputs
from trajpred.onboard.bundle import SIGNATURES
from trajpred.predictors.checkpoint import CheckpointPredictor


@torch.no_grad()
def test_temperature_divides_the_logits(predictor: CheckpointPredictor) -> None:
    ports = SIGNATURES["decoder"].inputs
    torch.manual_seed(0)
    sizes = {"T": 50, "D": 16, "K": 6, "F": 60, "S": 60, "W": 1, "A": 3, "L": 5, "B": 2}
    inputs = traced_inputs(ports, sizes)
    usual = Decoder(predictor.model.decoder, 1.0)(*inputs)[-1]
    flatter = Decoder(predictor.model.decoder, 2.0)(*inputs)[-1]
    root = usual.sqrt()
    torch.testing.assert_close(flatter, root / root.sum(-1, keepdim=True))
