"""The splits of a data set."""

from __future__ import annotations

from typing import Literal, get_args

Split = Literal["train", "val", "test"]
SPLITS: tuple[str, ...] = get_args(Split)
