"""Attention: from whom the agents of one scene take their information, as a graph transformer tells it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require


@dataclass(frozen=True)
class Attention:
    """How much each of A agents of one scenario listens to the other agents and to L lanes.

    Attributes:
        scenario_id: the scenario.
        track_id: ``[A]`` strings, the agents: who listens, and the first A of those heard.
        lane: ``[L]`` int64, the other ones heard: rows of the scenario's lane segments and, counted on, of
            its crossings.
        weight: ``[layers, H, A, A + L]`` float32, share of receiver (third axis) taken from sender (last
            axis), by layer and head. Sums to 1 over the senders; 0 where nobody is heard.
    """

    scenario_id: str
    track_id: NDArray[np.str_]
    lane: NDArray[np.int64]
    weight: NDArray[np.float32]

    def shares(self, track_id: str) -> NDArray[np.float32]:
        """``[A + L]`` what the agent takes from whom, averaged over layers and heads.

        Raises: DataError if the model does not know the track as an agent.
        """
        known = self.track_id == track_id
        told = f"{track_id} is no agent of the model in scenario {self.scenario_id}"
        require(bool(known.any()), "track", told)
        mean: NDArray[np.float32] = self.weight[:, :, known.argmax()].mean(axis=(0, 1))
        return mean
