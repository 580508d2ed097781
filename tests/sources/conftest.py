"""A small scenario in Argoverse 2's layout, to be damaged or varied by the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SCENARIO_ID = "00000000-made"


@pytest.fixture
def columns() -> dict[str, Any]:
    """Three tracks over 110 steps, 50 of them observed: the ego, a late bus, the focal car."""
    tracks = [("AV", "vehicle", 1, 0, 110), ("7", "bus", 0, 20, 80), ("9", "vehicle", 3, 0, 110)]
    step = np.concatenate([np.arange(start, stop) for *_, start, stop in tracks])
    rows = len(step)
    lengths = [stop - start for *_, start, stop in tracks]
    track_id, object_type, category = (
        [track[i] for track, length in zip(tracks, lengths, strict=True) for _ in range(length)]
        for i in range(3)
    )
    motion = np.random.default_rng(0).normal(np.array([[2000], [-1000], [0], [5], [0]]), size=(5, rows))
    names = ("position_x", "position_y", "heading", "velocity_x", "velocity_y")
    return {
        "observed": step < 50,
        "track_id": track_id,
        "object_type": object_type,
        "object_category": np.array(category),
        "timestep": step,
        **dict(zip(names, motion, strict=True)),
        "scenario_id": [SCENARIO_ID] * rows,
        "start_timestamp": np.full(rows, 3.15e17),
        "end_timestamp": np.full(rows, 3.15e17 + 10.9e9),
        "num_timestamps": np.full(rows, 110),
        "focal_track_id": ["9"] * rows,
        "city": ["austin"] * rows,
    }


def points(*xyz: tuple[float, float, float]) -> list[dict[str, float]]:
    return [dict(zip("xyz", point, strict=True)) for point in xyz]


@pytest.fixture
def archive() -> dict[str, Any]:
    """Two lanes, a crossing and a drivable area."""

    def lane(lane_id: int, y: float, **links: Any) -> dict[str, Any]:
        return {
            "id": lane_id,
            "is_intersection": False,
            "lane_type": "VEHICLE",
            "centerline": points((0, y, 0), (9.5, y, 0)),
            "left_lane_boundary": points((0, y + 2, 1), (5, y + 2, 1.5), (9.5, y + 2, 1)),
            "right_lane_boundary": points((0, y - 2, 1), (9.5, y - 2, 1)),
            "left_lane_mark_type": "DASHED_WHITE",
            "right_lane_mark_type": "NONE",
            "left_neighbor_id": None,
            "right_neighbor_id": None,
            "predecessors": [],
            "successors": [99],
            **links,
        }

    lanes = [lane(11, 0, left_neighbor_id=12), lane(12, 4, right_neighbor_id=11, successors=[])]
    crossing = {"id": 21, "edge1": points((3, 0, 0), (3, 4, 0)), "edge2": points((5, 0, 0), (5, 4, 0))}
    area = {"id": 31, "area_boundary": points((0, -2, 0), (9, -2, 0), (9, 6, 0))}
    return {
        "lane_segments": {str(lane["id"]): lane for lane in lanes},
        "pedestrian_crossings": {"21": crossing},
        "drivable_areas": {"31": area},
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """``write(tracks, archive)`` -> scenario folder; bytes are written as they are."""

    def folder(tracks: Any, archive: Any, **options: Any) -> Path:
        path = tmp_path / SCENARIO_ID
        path.mkdir()
        parquet, archive_file = (
            path / f"scenario_{SCENARIO_ID}.parquet",
            path / f"log_map_archive_{SCENARIO_ID}.json",
        )
        if isinstance(tracks, bytes):
            parquet.write_bytes(tracks)
        else:
            pq.write_table(tracks if isinstance(tracks, pa.Table) else pa.table(tracks), parquet, **options)
        archive_file.write_bytes(archive if isinstance(archive, bytes) else json.dumps(archive).encode())
        return path

    return folder
