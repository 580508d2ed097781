"""Decoders: predictions, the base class, heads, and the article's decoder, which is only a head."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from math import comb
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.data.forecast import join_modes
from trajpred.errors import DataError, quoted, require
from trajpred.features.config import LENGTH_SCALE
from trajpred.model.scene_encoder import PAGE, SceneTokens
from trajpred.nn import at_least_float32, mlp
from trajpred.nn.published.padded_attention import PaddedAttention

#: Arguments of a decoder's forward.
ARGUMENTS = ("tokens", "batch", "joint", "agents")


@dataclass
class Prediction:
    """Futures of the agents of a batch, each in the frame of its agent (last observed pose).

    Attributes:
        trajectory: ``[A, K, F, 2]`` metres.
        scale: ``[A, K, F, 2]`` metres, Laplace scales of x and y.
        logits: ``[A, K]`` unnormalised log-probabilities of the modes.
        proposal: trajectory before refinement, if the decoder refines.
        proposal_scale: scale before refinement, if the decoder refines.
        groups: number of groups of modes, one after another. Each is trained as a separate forecast;
            :meth:`merged` merges them into one.
    """

    trajectory: Tensor
    # Required; the error for a decoder that omits them is a sentence.
    scale: Tensor = None  # type: ignore[assignment]
    logits: Tensor = None  # type: ignore[assignment]
    proposal: Tensor | None = None
    proposal_scale: Tensor | None = None
    groups: int = 1

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name, without those that the decoder omits."""
        return {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}

    def merged(self) -> Prediction:
        """Merge all groups into the modes of the last one; a single group stays as it is."""
        if self.groups == 1:
            return self
        logits = self.logits.unflatten(1, (self.groups, -1))
        probability = logits.softmax(2).flatten(1) / self.groups
        share, weight = join_modes(self.trajectory, probability, logits.shape[2])
        trajectory = _weighted_sum(share, self.trajectory)
        scale = _weighted_sum(share, self.scale)
        return Prediction(trajectory, scale, weight.log())

    def separate(self) -> Prediction:
        """Return each group as the modes of an agent of its own: ``[A · groups, K / groups, …]``."""
        parts = {}
        for name, x in self.tensors.items():
            parts[name] = x.unflatten(1, (self.groups, -1)).flatten(0, 1)
        return Prediction(**parts)


def _weighted_sum(share: Tensor, x: Tensor) -> Tensor:
    """Sum the modes ``[A, M, F, 2]`` with weights ``share`` ``[A, K, M]``: ``[A, K, F, 2]``."""
    return torch.bmm(share, x.flatten(2)).unflatten(2, x.shape[2:])


class SceneDecoder(nn.Module):
    """Decode scene tokens into K futures per agent. Subclass it for your own decoder.

    The constructor of a subclass takes ``horizon``, which training sets from the data.

    Args:
        horizon: future steps F.
        dim: channels of a token, equal to the encoder's.
        modes: futures per agent K.
        joint: whether the decoder also learns joint futures (``forward(..., joint=True)``).

    Example: docs/how-to/own-model.md trains a decoder of ten lines.
    """

    #: Future steps of the agents' anchors that it reads; 0 if it reads none.
    anchor_steps: int = 0

    def __init__(self, horizon: int = 60, dim: int = 128, modes: int = 6, joint: bool = False) -> None:
        super().__init__()
        require(modes > 0, "modes", f"must be positive, is {modes}")
        self.horizon = horizon
        self.dim = dim
        self.modes = modes
        self.joint = joint
        self._has_trained = False
        parameters = inspect.signature(self.forward).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        complete = takes_any or {"joint", "agents"} <= set(parameters)
        problem = f"{type(self).__name__}.forward must take {', '.join(ARGUMENTS)}, see {PAGE}"
        require(complete, "decoder", problem)
        self.register_forward_hook(_require_prediction, with_kwargs=True)

    def forward(
        self, tokens: SceneTokens, batch: HeteroData, joint: bool = False, agents: Tensor | None = None
    ) -> Prediction:
        """Predict the futures of the agents of ``batch``, each in the frame of its agent.

        Args:
            tokens: the encoder's output for ``batch``.
            batch: the batch with the agents to predict.
            joint: predict joint futures: mode k of all agents of a scene is one possible future, and their
                ``logits`` are equal.
            agents: ``[B]`` rows of the agents to predict, ascending; all of them by default.

        Raises:
            ValueError: if ``joint`` is not supported.
        """
        raise DataError(f"{type(self).__name__} must have a forward, see {PAGE}", field="decoder")

    def auxiliary_losses(
        self, prediction: Prediction, batch: HeteroData, agents: Tensor, weight: Tensor
    ) -> dict[str, Tensor]:
        """Return additional losses on a marginal prediction by name, weighted by ``model.loss.auxiliary``.

        Args:
            prediction: output of :meth:`forward` for ``agents``.
            agents: ``[B]`` rows of ``batch`` that it contains.
            weight: ``[B]`` of these agents in a mean, by category and for agents that were not drawn: with
                ``values`` ``[B]``, a loss is ``(values * weight).sum()``.
        """
        return {}


def _require_prediction(
    decoder: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], prediction: object
) -> None:
    """Raise :class:`DataError` unless a decoder returned a prediction for the requested agents.

    Values are checked in the first training step on a CPU. Later, and on a GPU, where checking would stall,
    the losses reveal non-finite values.
    """
    assert isinstance(decoder, SceneDecoder)
    if torch.compiler.is_compiling():
        return
    name = type(decoder).__name__
    if not isinstance(prediction, Prediction):
        problem = f"{name} must return a Prediction, returned {quoted(prediction)}, see {PAGE}"
        raise DataError(problem, field="decoder")
    arguments = dict(zip(ARGUMENTS, args, strict=False)) | dict(kwargs)
    agents = arguments.get("agents")
    count = arguments["tokens"].agent.shape[0] if agents is None else agents.shape[0]
    modes = prediction.groups * decoder.modes
    path = (count, modes, decoder.horizon, 2)
    shapes = {"trajectory": path, "scale": path, "logits": path[:2], "proposal": path, "proposal_scale": path}
    for field, shape in shapes.items():
        value = getattr(prediction, field)
        if value is None and field.startswith("proposal"):
            continue
        if value is None or tuple(value.shape) != shape:
            returned = "none" if value is None else list(value.shape)
            axes = ", ".join(("agents", "modes", "horizon", "2")[: len(shape)])
            problem = f"{name} must return {field} [{axes}] = {list(shape)}, returned {returned}, see {PAGE}"
            raise DataError(problem, field="decoder")
    if decoder.training and not decoder._has_trained and prediction.logits.device.type == "cpu":
        decoder._has_trained = True
        _require_values(name, prediction)


def _require_values(name: str, prediction: Prediction) -> None:
    """Raise :class:`DataError` unless a decoder's output is finite and its scales are positive."""
    for field, value in prediction.tensors.items():
        if not bool(value.isfinite().all()):
            raise DataError(f"{name} returned {field} that is not finite, see {PAGE}", field="decoder")
        if "scale" in field and not bool((value > 0).all()):
            raise DataError(f"{name} returned {field} that is not positive, see {PAGE}", field="decoder")


def constant_velocity_of(batch: HeteroData, horizon: int) -> Tensor:
    """Extrapolate all agents of ``batch`` at constant velocity: ``[A, horizon, 2]`` metres, own frames."""
    agent = batch["agent"]
    velocity = agent.velocity
    scene_step = torch.as_tensor(batch.step_s, dtype=velocity.dtype, device=velocity.device)
    step_s = scene_step.reshape(-1).index_select(0, agent.batch)
    steps = torch.arange(1, horizon + 1, device=velocity.device, dtype=velocity.dtype)
    after = steps * step_s[:, None] + agent.elapsed_s[:, None]
    return velocity[:, None] * after[..., None]


# Heads: tokens of modes ``[M, dim]`` -> offset and scale, ``[M, horizon, 2]`` metres each.


def bounded_scale(raw: Tensor) -> Tensor:
    """Map raw outputs to Laplace scales from e^-4 to e^4 metres; the bound prevents early divergence."""
    return torch.exp(8 * torch.sigmoid(raw / 2) - 4)  # exp(4 tanh(raw / 4)); tanh is slower


def bernstein(degree: int, steps: int) -> Tensor:
    """Return the Bernstein polynomials C(n, i) uⁱ (1 - u)ⁿ⁻ⁱ at u = 1/steps … 1: ``[steps, degree + 1]``.

    A curve stays in the convex hull of its control points and ends at the last one. Degree 8 fits recorded
    6 s futures to 6 mm on average (99th percentile: 6 cm).
    """
    u = torch.arange(1, steps + 1, dtype=torch.float64)[:, None] / steps
    i = torch.arange(degree + 1, dtype=torch.float64)
    coefficients = [comb(degree, k) for k in range(degree + 1)]
    binomial = torch.tensor(coefficients, dtype=torch.float64)
    return (binomial * u**i * (1 - u) ** (degree - i)).float()


class CurveHead(nn.Module):
    """Predict control points of Bézier curves for the offset (which starts at 0) and for the log-scale.

    Tokens may have any leading axes.

    Raises:
        DataError: if the degree is not between 1 and 64.
    """

    curves: Tensor

    def __init__(self, dim: int, horizon: int, degree: int = 8) -> None:
        super().__init__()
        require(1 <= degree <= 64, "degree", f"must be 1 to 64, is {degree}")
        self.degree = degree
        curve = bernstein(degree, horizon)
        # Offset and log-scale of x and y are one product with the control points. An offset starts at 0, so
        # its first control point is omitted.
        x_and_y = torch.eye(2)
        offset = torch.kron(curve[:, 1:], x_and_y)
        log_scale = torch.kron(curve, x_and_y)
        curves = torch.block_diag(LENGTH_SCALE * offset, log_scale)
        self.register_buffer("curves", curves.T.contiguous(), persistent=False)
        self.points = mlp(dim, 2 * dim, 2 * (2 * degree + 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        points = at_least_float32(self.points(x))
        # Autocast would round this product by up to 0.25 m at 60 m.
        with torch.autocast(points.device.type, enabled=False):
            values = (points @ self.curves).unflatten(-1, (2, -1, 2))
            offset, log_scale = values.unbind(-3)
        return offset, bounded_scale(log_scale)


class LSTMHead(nn.Module):
    """Unroll an LSTM that receives the token at every step; its outputs are displacements per step."""

    def __init__(self, dim: int, horizon: int) -> None:
        super().__init__()
        self.horizon = horizon
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        inputs = x[:, None].expand(-1, self.horizon, -1)
        hidden, _ = self.lstm(inputs)
        steps = at_least_float32(self.out(hidden))
        return steps[..., :2].cumsum(1), bounded_scale(steps[..., 2:])


class AttentionHead(nn.Module):
    """Decode with causal temporal self-attention: one query per future step."""

    causal: Tensor

    def __init__(self, dim: int, horizon: int, heads: int = 4) -> None:
        super().__init__()
        self.step = nn.Parameter(0.02 * torch.randn(horizon, dim))
        self.attention = PaddedAttention(dim, num_attention_heads=heads)
        self.norm = nn.LayerNorm(dim)
        self.out = mlp(dim, dim, 4)
        causal = torch.ones(horizon, horizon).tril().bool()
        self.register_buffer("causal", causal, persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps = x[:, None] + self.step
        causal = self.causal.expand(x.shape[0], -1, -1)
        attended = self.attention(steps, attention_mask=causal)
        raw = at_least_float32(self.out(self.norm(steps + attended)))
        return raw[..., :2].cumsum(1), bounded_scale(raw[..., 2:])


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
        """Predict as :class:`SceneDecoder`, without joint futures."""
        if joint:
            raise ValueError("this decoder does not support joint futures")
        rows = slice(None) if agents is None else agents
        mode_tokens = tokens.agent[rows, None] + self.mode.weight
        x = self.mix(mode_tokens.flatten(0, 1))
        offset, scale = self.head(x)
        offset = offset.unflatten(0, (-1, self.modes))
        scale = scale.unflatten(0, (-1, self.modes))
        steady = constant_velocity_of(batch, self.horizon)[rows, None]
        logits = at_least_float32(self.logit_head(x)).reshape(-1, self.modes)
        return Prediction(steady + offset, scale, logits)
