"""The base class of decoders: what a forecaster, its training and its export ask of one."""

from __future__ import annotations

from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.model.prediction import Prediction
from trajpred.model.token_encoder import SceneTokens


class SceneDecoder(nn.Module):
    """Decode scene tokens into K futures per agent. Subclass it to use a decoder of your own.

    The constructor of a subclass takes ``horizon``, which training sets from the data.

    Args:
        horizon: future steps F.
        dim: channels of a token, equal to the encoder's.
        modes: futures per agent K.
        joint: whether the decoder also learns joint futures (``forward(..., joint=True)``).
    """

    def __init__(self, horizon: int = 60, dim: int = 128, modes: int = 6, joint: bool = False) -> None:
        super().__init__()
        self.horizon, self.dim, self.modes, self.joint = horizon, dim, modes, joint

    def forward(
        self, tokens: SceneTokens, batch: HeteroData, joint: bool = False, agents: Tensor | None = None
    ) -> Prediction:
        """Predict the futures of the agents of ``batch``, each in the frame of its agent.

        Args:
            tokens: the encoder's output for ``batch``.
            joint: predict joint futures: mode k of all agents of a scene is one possible world, and their
                ``logits`` are equal.
            agents: ``[B]`` rows of the agents to predict, ascending; all of them by default.
        """
        raise NotImplementedError
