"""The article's decoder: from an agent's token directly to its futures."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.model.heads import AttentionHead, CurveHead, LSTMHead
from trajpred.model.scene_decoder import Prediction, SceneDecoder, constant_velocity_of
from trajpred.model.token_encoder import SceneTokens
from trajpred.nn import at_least_float32, mlp

HEADS = {"mlp": CurveHead, "lstm": LSTMHead, "attention": AttentionHead}


class HeadDecoder(SceneDecoder):
    """Add K mode embeddings to an agent's token and decode each with one head, once; no joint futures.

    Args:
        head: ``mlp`` (a Bézier curve), ``lstm`` or ``attention`` (temporal self-attention).
    """

    def __init__(
        self,
        horizon: int = 60,
        dim: int = 128,
        modes: int = 6,
        head: Literal["mlp", "lstm", "attention"] = "mlp",
    ) -> None:
        super().__init__(horizon, dim, modes)
        self.mode = nn.Embedding(modes, dim)
        self.mix = mlp(dim, dim, dim)
        self.head = HEADS[head](dim, horizon)
        self.logit_head = mlp(dim, dim, 1)

    def forward(
        self, tokens: SceneTokens, batch: HeteroData, joint: bool = False, agents: Tensor | None = None
    ) -> Prediction:
        if joint:
            raise ValueError("this decoder does not support joint futures")
        rows = slice(None) if agents is None else agents
        x = self.mix((tokens.agent[rows, None] + self.mode.weight).flatten(0, 1))
        offset, scale = (y.unflatten(0, (-1, self.modes)) for y in self.head(x))
        trajectory = constant_velocity_of(batch, self.horizon)[rows, None] + offset
        logits = at_least_float32(self.logit_head(x)).reshape(-1, self.modes)
        return Prediction(trajectory, scale, logits)
