"""Padding of ragged batches; DenseRelation itself is tested with the other relations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.nn.graphs import padding

SIZES = [3, 0, 5, 1]


def by_hand(x: Tensor, sizes: list[int], size: int) -> Tensor:
    return torch.stack([torch.cat((row, row.new_zeros(size - len(row), 2))) for row in x.split(sizes)])


def test_pad_and_unpad() -> None:
    x, place = torch.randn(9, 2), padding(SIZES)
    assert torch.equal(place.pad(x), by_hand(x, SIZES, 5))
    assert torch.equal(place.unpad(place.pad(x, fill=-1)), x) and (place.pad(x, fill=-1)[1] == -1).all()
    assert place.count.tolist() == SIZES and torch.equal(place.scene, torch.repeat_interleave(place.count))
    assert place.within.tolist() == [i for n in SIZES for i in range(n)]


@pytest.mark.parametrize("other", [[2, 1, 0, 4], [0, 0, 0, 0]])
def test_beside_puts_the_other_nodes_behind(other: list[int]) -> None:
    x = torch.randn(9 + sum(other), 2)
    joint = padding(SIZES).beside(padding(other))
    scenes = [torch.cat(nodes) for nodes in zip(x[:9].split(SIZES), x[9:].split(other), strict=True)]
    sizes = [len(nodes) for nodes in scenes]
    assert torch.equal(joint.pad(x), by_hand(torch.cat(scenes), sizes, max(sizes)))
    assert torch.equal(joint.unpad(joint.pad(x)), x)


def test_repeated_nodes_and_copied_scenes() -> None:
    place, x = padding(SIZES), torch.randn(9, 2)
    repeated = place.repeat(4).pad(x.repeat_interleave(4, dim=0))
    assert torch.equal(repeated, place.pad(x).repeat_interleave(4, dim=1))
    copied = place.copies(3).pad(torch.stack((x, 2 * x, 3 * x), 1).flatten(0, 1))
    padded = place.pad(x)
    assert torch.equal(copied, torch.stack((padded, 2 * padded, 3 * padded), 1).flatten(0, 1))
