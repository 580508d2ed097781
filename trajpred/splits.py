"""The splits of a data set, and the groups of agents that metrics are averaged over; nothing is imported."""

from __future__ import annotations

from typing import Literal, get_args

Split = Literal["train", "val", "test"]
SPLITS: tuple[str, ...] = get_args(Split)
#: Focal agents; scored ones, focal included; those that move; all. See ``agent_groups`` in ``evaluation``.
Group = Literal["focal", "scored", "moving", "all"]
GROUPS: tuple[str, ...] = get_args(Group)
#: Groups by which models are compared scenario by scenario.
PAIRED_GROUPS: tuple[str, ...] = ("focal", "moving")
