"""Encoders and decoders of users that lack a method, or return something else: one sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.model.small import batch_of
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.model import Forecaster, Prediction, SceneDecoder, SceneEncoder, TokenEncoder


class StraightOn(SceneDecoder):
    def forward(
        self, tokens: Any, batch: Any, joint: bool = False, agents: Tensor | None = None
    ) -> Prediction:
        path = torch.zeros(len(tokens.agent), self.modes, self.horizon, 2)
        return Prediction(path, torch.ones_like(path), path[:, :, 0, 0])


class Unfinished(TokenEncoder):
    pass


class NothingReturned(TokenEncoder):
    def interact(self, x: Tensor, graph: Any) -> Any:
        x + x.mean(0)


class AnotherShape(TokenEncoder):
    def interact(self, x: Tensor, graph: Any) -> Tensor:
        return x[:-1]


class UnfinishedDecoder(SceneDecoder):
    pass


class TupleDecoder(SceneDecoder):
    def forward(self, tokens: Any, batch: Any, joint: bool = False, agents: Tensor | None = None) -> Any:
        path = torch.zeros(len(tokens.agent), self.modes, self.horizon, 2)
        return path, path[:, :, 0, 0]


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (Unfinished, "field 'encoder': Unfinished must have an interact, see docs/how-to/own-model.md"),
        (NothingReturned, "NothingReturned.interact must return a tensor of the shape of its input"),
        (AnotherShape, "AnotherShape.interact must return a tensor of the shape of its input"),
        (UnfinishedDecoder, "field 'decoder': UnfinishedDecoder must have a forward"),
        (TupleDecoder, "TupleDecoder must return a Prediction, returned a tuple"),
    ],
)
def test_a_part_that_cannot_be_used_is_named(
    part: type[nn.Module], sentence: str, real: list[Scenario]
) -> None:
    encoder: Any = part(dim=16) if issubclass(part, TokenEncoder) else SceneEncoder(16, 2, 1)
    decoder: Any = part(dim=16) if issubclass(part, SceneDecoder) else StraightOn(dim=16)
    with pytest.raises(DataError) as caught:
        Forecaster(encoder, decoder).forecast(batch_of(real[:1]))
    assert sentence in str(caught.value)
