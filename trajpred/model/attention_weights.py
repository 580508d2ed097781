"""What the scene encoder's attention listens to, read while it runs: no second forward, no second copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.attention import Attention
from trajpred.errors import DataError
from trajpred.model.scene_encoder import SceneEncoder
from trajpred.model.token_encoder import TokenEncoder
from trajpred.nn import GraphAttention


@torch.inference_mode()
def attention_weights(encoder: TokenEncoder, batch: HeteroData) -> list[Attention]:
    """Encode ``batch`` and tell of every scene what its agents listened to in every layer.

    Raises: DataError if the encoder is not the default one.
    """
    if not isinstance(encoder, SceneEncoder):
        raise DataError(f"{type(encoder).__name__} has no graph attention to show: SceneEncoder has")
    heard: list[Tensor] = []

    def listen(attention: nn.Module, given: tuple[Any, ...]) -> None:
        assert isinstance(attention, GraphAttention)
        heard.append(attention.weights(*given))

    layers = [module for module in encoder.layers.modules() if isinstance(module, GraphAttention)]
    hooks = [layer.register_forward_pre_hook(listen) for layer in layers]
    try:
        graph = encoder.encode(batch).graph
    finally:
        for hook in hooks:
            hook.remove()
    return _by_scene(torch.stack(heard, 1), graph.index, batch)


def _by_scene(weight: Tensor, index: Tensor, batch: HeteroData) -> list[Attention]:
    """Edges ``index`` ``[2, E]`` among agents, then lanes, with ``weight`` ``[E, layers, H]``, by scene."""
    agent, lane = batch["agent"], batch["lane"]
    (sender, receiver), agents = index.cpu().numpy(), agent.num_nodes
    scene, first, first_lane = (x.cpu().numpy() for x in (agent.batch, agent.ptr, lane.ptr))
    into = np.flatnonzero(receiver < agents)
    sender, receiver, alpha = sender[into], receiver[into], weight.float().cpu().numpy()[into]
    of, count, lanes = scene[receiver], np.diff(first), np.diff(first_lane)
    # Within its scene an agent keeps its place, and a lane comes after that scene's agents.
    from_lane = sender - agents - first_lane[of] + count[of]
    column = np.where(sender < agents, sender - first[of], from_lane)
    parts = []
    for s, name in enumerate(batch.scenario_id):
        mine = of == s
        dense = np.zeros((count[s], count[s] + lanes[s], *alpha.shape[1:]), np.float32)
        dense[receiver[mine] - first[s], column[mine]] = alpha[mine]
        rows, nodes = slice(first_lane[s], first_lane[s + 1]), slice(first[s], first[s + 1])
        row = lane.row[rows].cpu().numpy()
        parts.append(Attention(name, agent.track_id[nodes], row, np.moveaxis(dense, (2, 3), (0, 1))))
    return parts
