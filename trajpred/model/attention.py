"""The attention of an encoder, read while it runs, as one dense record for each scene."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.forecast import Attention
from trajpred.nn import EdgeAttention, GraphAttention, Padding


class Pairs(NamedTuple):
    """Attention of one layer: senders and receivers ``edge_index`` ``[2, E]``, and ``weight`` ``[E, H]``.

    Its entries are tokens, all agents of the batch first. No pair occurs twice.
    """

    edge_index: Tensor
    weight: Tensor

    @classmethod
    def of_scenes(cls, weight: Tensor, padding: Padding, receivers: int) -> Pairs:
        """Take the weights ``[B, H, n, n]`` of padded scenes, of the first ``receivers`` tokens only."""
        token = torch.arange(len(padding.scene), device=weight.device)
        place, known = padding.pad(token), padding.pad(torch.ones_like(token)) > 0
        scene, i, j = ((known & (place < receivers))[:, :, None] & known[:, None]).nonzero().T
        return cls(torch.stack((place[scene, j], place[scene, i])), weight[scene, :, i, j])


@contextmanager
def recorded(encoder: nn.Module, kinds: tuple[type[nn.Module], ...]) -> Iterator[list[tuple[str, Any]]]:
    """Collect the name and the attention of every module of ``kinds``, in the order in which they run.

    A module is evaluated once more, with ``return_attention=True``, before it runs, so that the encoder
    itself computes what it always does.
    """
    found: list[tuple[str, Any]] = []
    names = {module: name for name, module in encoder.named_modules() if isinstance(module, kinds)}

    def record(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if isinstance(module, (GraphAttention, EdgeAttention)):
            weight = module.weights(*args)
        else:
            weight = module.forward(*args, **options, return_attention=True)[-1]
        found.append((names[module], weight))

    hooks = [module.register_forward_pre_hook(record, with_kwargs=True) for module in names]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def records(layers: Sequence[Pairs], batch: HeteroData) -> list[Attention]:
    """Turn the attention of every layer into one dense record per scene; only agents are receivers."""
    agent, lane = batch["agent"], batch["lane"]
    scene, first, first_lane = (x.cpu().numpy() for x in (agent.batch, agent.ptr, lane.ptr))
    count, lanes, agents = np.diff(first), np.diff(first_lane), agent.num_nodes
    heads = layers[0].weight.shape[1]
    dense = [np.zeros((len(layers), a, a + b, heads), np.float32) for a, b in zip(count, lanes, strict=True)]
    for layer, (edge_index, weight) in enumerate(layers):
        (sender, receiver), alpha = edge_index.cpu().numpy(), weight.float().cpu().numpy()
        to_agent = np.flatnonzero(receiver < agents)
        sender, receiver, alpha = sender[to_agent], receiver[to_agent], alpha[to_agent]
        of = scene[receiver]
        # Columns of a scene: its agents, then its lanes.
        lane_column = sender - agents - first_lane[of] + count[of]
        column = np.where(sender < agents, sender - first[of], lane_column)
        for s in range(len(dense)):
            own = of == s
            dense[s][layer, receiver[own] - first[s], column[own]] = alpha[own]
    found, track_id = [], np.hstack(agent.track_id)
    for s, name in enumerate(batch.names):
        nodes, rows = slice(first[s], first[s + 1]), slice(first_lane[s], first_lane[s + 1])
        lane_row = lane.row[rows].cpu().numpy()
        found.append(Attention(name, track_id[nodes], lane_row, np.moveaxis(dense[s], -1, 1)))
    return found
