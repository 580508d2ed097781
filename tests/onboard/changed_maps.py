"""Maps that a vehicle may be given: changed, invalid, or none at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged


def bent(lane_map: LaneMap, row: int) -> LaneMap:
    """Move one point of a lane's centerline."""
    line = lane_map.centerline
    values = line.values.copy()
    values[(line.offsets[row] + line.offsets[row + 1]) // 2] += 0.5
    return replace(lane_map, centerline=replace(line, values=values))


def invalid_maps(good: LaneMap) -> dict[str, Any]:
    """Return maps with one invalid field each, and values that are not maps."""
    line = good.centerline
    far = line.values.copy()
    far[1, 0] = 1e200
    nan = line.values.copy()
    nan[3] = np.nan
    no_links = Ragged(np.zeros((0, 2), np.int64), np.zeros(len(good) + 1, np.int64))
    return {
        "is_intersection": replace(good, is_intersection=np.arange(len(good)) * 7),
        "far": replace(good, centerline=Ragged(far, line.offsets)),
        "nan": replace(good, centerline=Ragged(nan, line.offsets)),
        "columns": replace(good, centerline=Ragged(line.values[:, :1], line.offsets)),
        "offsets": replace(good, centerline=Ragged(line.values, line.offsets[:-1])),
        "predecessors": replace(good, predecessors=no_links),
        "ids": replace(good, lane_id=good.lane_id[:-1]),
        "none": None,
        "text": "a map",
    }
