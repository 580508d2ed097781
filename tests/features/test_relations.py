"""Nearest neighbours with deterministic ties, and edge features that depend on relative poses alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trajpred.data.geometry import Pose, rotate
from trajpred.features.config import DISTANCES, edge_channels
from trajpred.features.relations import edge_features, nearest

KINDS = 3
HEADINGS = torch.linspace(-3.1, 3.1, 25, dtype=torch.float64)
# Integers make ties frequent and keep every distance away from the radii.
lengths = st.lists(st.one_of(st.integers(0, 4), st.just(float("inf"))), max_size=8)


@given(
    st.lists(lengths, min_size=1, max_size=4),
    st.integers(0, 10),
    st.sampled_from([0.5, 2.5, torch.inf]),
)
def test_nearest_are_the_first_k_of_a_stable_sort(rows: list[list[float]], k: int, radius: float) -> None:
    columns = max(len(row) for row in rows)
    distance = torch.full((len(rows), columns), torch.inf)
    for i, row in enumerate(rows):
        distance[i, : len(row)] = torch.tensor(row)
    rank = distance.argsort(stable=True).argsort()
    expected = (rank < k) & (distance <= radius) & distance.isfinite()
    assert torch.equal(nearest(distance, k, radius), expected)


def test_edge_features_are_the_closed_form() -> None:
    random = np.random.default_rng(0)
    sender = random.normal(0, 40, (20, 2))
    receiver = random.normal(0, 40, (20, 2))
    sender_heading, receiver_heading = random.uniform(-4, 4, (2, 20))
    kind = random.integers(0, KINDS, 20)
    cos = np.cos(receiver_heading)
    sin = np.sin(receiver_heading)
    dx, dy = (sender - receiver).T
    ahead = cos * dx + sin * dy
    left = cos * dy - sin * dx
    distance = np.hypot(dx, dy)
    channels = []
    for centre, width in zip(DISTANCES, (2, 3, 5, 8, 12, 20, 30, 40), strict=True):
        channels.append(np.exp(-((distance - centre) ** 2) / (2 * width**2)))
    channels += [ahead / 30, left / 30]
    channels += [ahead / distance, left / distance]
    turned = sender_heading - receiver_heading
    channels += [np.cos(turned), np.sin(turned)]
    one_hot = np.eye(KINDS)[kind]
    expected = np.concatenate((np.stack(channels, -1), one_hot), -1)

    sender_pose = Pose(torch.from_numpy(sender), torch.from_numpy(sender_heading))
    receiver_pose = Pose(torch.from_numpy(receiver), torch.from_numpy(receiver_heading))
    features = edge_features(sender_pose.rows, receiver_pose.rows, torch.from_numpy(kind), KINDS)
    assert features.T.shape == (20, len(edge_channels("abc")))
    np.testing.assert_allclose(features.T, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("apart", [0.0, 1e-3, 5.0])
def test_rotating_both_ends_changes_nothing(apart: float) -> None:
    """Including coinciding ends, where atan2 would depend on the sign of zero."""
    ahead = torch.tensor([apart, 0.0], dtype=torch.float64).expand(len(HEADINGS), 2)
    place = torch.tensor([3.0, -4.0], dtype=torch.float64).expand(len(HEADINGS), 2)
    receiver = Pose(place, HEADINGS)
    sender = Pose(place + rotate(ahead, HEADINGS), HEADINGS + 0.5)
    features = edge_features(sender.rows, receiver.rows, torch.zeros(len(HEADINGS), dtype=torch.int64), KINDS)
    torch.testing.assert_close(features, features[:, :1].expand_as(features), rtol=0, atol=1e-9)
