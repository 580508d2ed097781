"""An encoder's attention, recorded while it runs, as one dense record per scene."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.data.forecast import Attention
from trajpred.nn import EdgeAttention, GraphAttention, Layout


class Pairs(NamedTuple):
    """Attention of one layer: senders and receivers ``edge_index`` ``[2, E]``, and ``weight`` ``[E, H]``.

    Its entries are tokens, all agents of the batch first. No pair occurs twice.
    """

    edge_index: Tensor
    weight: Tensor

    @classmethod
    def of_scenes(cls, weight: Tensor, layout: Layout, receivers: int) -> Pairs:
        """Build from weights ``[B, H, n, n]`` of padded scenes, for only the first ``receivers`` tokens."""
        num_tokens = len(layout.scene)
        token = layout.pad(torch.arange(num_tokens, device=weight.device))
        is_sender = layout.pad(torch.ones(num_tokens, device=weight.device)) > 0
        is_receiver = is_sender & (token < receivers)
        pairs = is_receiver[:, :, None] & is_sender[:, None]
        scene, i, j = pairs.nonzero().T
        edge_index = torch.stack((token[scene, j], token[scene, i]))
        return cls(edge_index, weight[scene, :, i, j])


@contextmanager
def recorded(encoder: nn.Module, kinds: tuple[type[nn.Module], ...]) -> Iterator[list[tuple[str, Any]]]:
    """Collect name and attention of every module of ``kinds``, in order of execution.

    Each module is evaluated an extra time with ``return_attention=True`` before it runs, so that the
    encoder's own computation is unchanged.
    """
    attention: list[tuple[str, Any]] = []
    names = {module: name for name, module in encoder.named_modules() if isinstance(module, kinds)}

    def record(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if isinstance(module, (GraphAttention, EdgeAttention)):
            weight = module.weights(*args)
        else:
            weight = module.forward(*args, **options, return_attention=True)[-1]
        attention.append((names[module], weight))

    hooks = [module.register_forward_pre_hook(record, with_kwargs=True) for module in names]
    try:
        yield attention
    finally:
        for hook in hooks:
            hook.remove()


def records(layers: Sequence[Pairs], batch: HeteroData) -> list[Attention]:
    """Turn the attention of every layer into one dense record per scene; only agents are receivers."""
    agent = batch["agent"]
    lane = batch["lane"]
    scene = agent.batch.cpu().numpy()
    first_agent = agent.ptr.cpu().numpy()
    first_lane = lane.ptr.cpu().numpy()
    num_agents = np.diff(first_agent)
    columns = num_agents + np.diff(first_lane)  # of each scene: its agents, then its lanes
    cells = num_agents * columns
    first_cell = np.cumsum(cells) - cells
    heads = layers[0].weight.shape[1]
    dense = np.zeros((len(layers), heads, cells.sum()), np.float32)  # all scenes end to end
    for layer, (edge_index, weight) in enumerate(layers):
        to_agent = edge_index[1] < agent.num_nodes
        sender, receiver = edge_index[:, to_agent].cpu().numpy()
        alpha = weight[to_agent].float().cpu().numpy()
        of = scene[receiver]
        row = receiver - first_agent[of]
        agent_column = sender - first_agent[of]
        lane_column = sender - agent.num_nodes - first_lane[of] + num_agents[of]
        column = np.where(sender < agent.num_nodes, agent_column, lane_column)
        cell = first_cell[of] + row * columns[of] + column
        dense[layer][:, cell] = alpha.T
    track_id = np.hstack(agent.track_id)
    attention = []
    for s, name in enumerate(batch.names):
        agent_rows = slice(first_agent[s], first_agent[s + 1])
        lane_rows = slice(first_lane[s], first_lane[s + 1])
        lane_row = lane.row[lane_rows].cpu().numpy()
        of_scene = dense[:, :, first_cell[s] : first_cell[s] + cells[s]]
        by_pair = of_scene.reshape(len(layers), heads, num_agents[s], columns[s])
        attention.append(Attention(name, track_id[agent_rows], lane_row, by_pair))
    return attention
