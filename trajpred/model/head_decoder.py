"""The article's decoder: from an agent's token straight to its futures."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.model.heads import AttentionHead, CurveHead, LSTMHead, wide
from trajpred.model.prediction import Prediction, driving_on
from trajpred.model.scene_decoder import SceneDecoder
from trajpred.model.token_encoder import SceneTokens
from trajpred.nn import mlp

HEADS = {"mlp": CurveHead, "lstm": LSTMHead, "attention": AttentionHead}


class HeadDecoder(SceneDecoder):
    """K mode embeddings on an agent's token, each unrolled by one head; no refinement, no joint modes.

    Args:
        horizon: future steps F.
        dim: channels of a token, the encoder's.
        modes: futures per agent K.
        head: ``mlp`` (a curve), ``lstm`` or ``attention`` (temporal self-attention over the future steps).
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
        """Futures of all agents of ``batch``, or of the rows ``agents``. Raises: ValueError if ``joint``."""
        if joint:
            raise ValueError("this decoder has no joint modes")
        who = slice(None) if agents is None else agents
        x = self.mix((tokens.agent[who, None] + self.mode.weight).flatten(0, 1))
        offset, scale = (y.unflatten(0, (-1, self.modes)) for y in self.head(x))
        trajectory = driving_on(batch, self.horizon)[who, None] + offset
        return Prediction(trajectory, scale, wide(self.logit_head(x)).reshape(-1, self.modes))
