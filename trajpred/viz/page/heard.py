"""Attention as whole numbers: who hears whom, as ``static/draw_attention.js`` reads it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.forecast import Attention
from trajpred.scenario import Scenario
from trajpred.viz.agent_layer import roles
from trajpred.viz.page.codec import to_int
from trajpred.viz.style import Role

#: What shares are multiples of; of a single head, where they are large, a coarser one serves.
SHARE, HEAD_SHARE = 0.001, 0.004


def attention_arrays(scenario: Scenario, attention: Attention, m: int) -> dict[str, NDArray[np.int32]]:
    """What :func:`trajpred.viz.page.codec.encode` takes, of model m.

    ``heard{m}`` ``[E, 3]``: row of the track that hears, whom it hears (row of the track, or after all tracks
    of the lane segment or crossing), and the share in multiples of :data:`SHARE`, averaged over layers and
    heads; shares that round to 0 are left out. ``heads{m}`` ``[D, layers · H]``: the first ``D`` of these
    edges, those into the focal and the scored tracks, by layer and head in multiples of :data:`HEAD_SHARE`.
    """
    tracks = scenario.tracks
    agent = np.array([tracks.index(name) for name in attention.track_id.tolist()], np.int64)
    detailed = np.isin(roles(scenario)[agent], (Role.FOCAL, Role.SCORED))
    mean = attention.weight.mean(axis=(0, 1))
    receiver, sender = np.nonzero(mean >= SHARE / 2)
    order = np.argsort(~detailed[receiver], kind="stable")
    receiver, sender = receiver[order], sender[order]
    whom = np.concatenate((agent, len(tracks) + attention.lane))
    D = int(detailed[receiver].sum())
    heads = attention.weight[:, :, receiver[:D], sender[:D]]
    columns = heads.shape[0] * heads.shape[1]  # by name: from no edges at all no size can be inferred
    edges = (agent[receiver], whom[sender], np.rint(mean[receiver, sender] / SHARE))
    return {
        f"heard{m}": np.stack(edges, axis=1).astype(np.int32),
        f"heads{m}": to_int(heads.reshape(columns, D).T, HEAD_SHARE, columns),
    }
