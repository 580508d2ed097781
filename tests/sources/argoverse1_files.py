"""A small sequence and map in Argoverse 1's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.conftest import ROOT

SHIPPED = ROOT / "datasets" / "argoverse1"
NUMBERS = {"MIA": 10316, "PIT": 10314}
MAPS = {city: f"pruned_argoverse_{city}_{number}_vector_map.xml" for city, number in NUMBERS.items()}
HEADER = ["TIMESTAMP", "TRACK_ID", "OBJECT_TYPE", "X", "Y", "CITY_NAME"]
Row = list[Any]


def made_rows(steps: int = 50) -> list[Row]:
    """Return rows of a focal car along x, the ego along y, a late and a parked track, and a future one."""
    random = np.random.default_rng(0)
    rows: list[Row] = []
    for k in range(steps):
        stamp = 3.15e8 + 0.1 * k + random.uniform(-0.02, 0.02)
        places = {
            ("focal", "AGENT"): (100 + k, 50),
            ("000", "AV"): (90, 40 + 0.5 * k),
            ("parked", "OTHERS"): (110 + random.normal(0, 0.01), 60 + random.normal(0, 0.01)),
        }
        if k >= 30:
            places["unseen", "OTHERS"] = (100, 60)
        if k >= 15:
            places["late", "OTHERS"] = (100, 55 - k)
        for (name, kind), (x, y) in places.items():
            rows.append([repr(stamp), name, kind, x, y, "MIA"])
    return rows


def made_map() -> str:
    """Return a map of three lanes along x: 12 succeeds 11; 13 is 500 m away."""
    lanes = {11: ((80, 50), (120, 50)), 12: ((120, 50), (150, 51), (180, 52)), 13: ((700, 50), (740, 50))}
    tags = {
        11: {"turn_direction": "LEFT", "successor": "12", "l_neighbor_id": "13", "is_intersection": "True"},
        12: {"predecessor": "11", "has_traffic_control": "True", "r_neighbor_id": "99"},
        13: {"turn_direction": "RIGHT"},
    }
    default = dict.fromkeys(("has_traffic_control", "is_intersection"), "False")
    default |= {"turn_direction": "NONE", "l_neighbor_id": "None", "r_neighbor_id": "None"}
    nodes = []
    ways = []
    for lane_id, points in lanes.items():
        ways.append(f'<way lane_id="{lane_id}">')
        for key, value in (default | tags[lane_id]).items():
            ways.append(f'<tag k="{key}" v="{value}" />')
        for x, y in points:
            ways.append(f'<nd ref="{7 * len(nodes)}" />')
            nodes.append(f'<node id="{7 * len(nodes)}" x="{x}" y="{y}" />')
        ways.append("</way>")
    return "\n".join(["<ArgoverseVectorMap>", *nodes, *ways, "</ArgoverseVectorMap>"])


def write_csv(path: Path, rows: list[Row] | str | bytes) -> None:
    """Write rows below a header, or text and bytes unchanged."""
    if isinstance(rows, list):
        rows = text_of([HEADER, *rows])
    if isinstance(rows, str):
        rows = rows.encode()
    path.write_bytes(rows)


def text_of(lines: list[Row]) -> str:
    """Return lines of comma-separated values."""
    return "".join(",".join(map(str, line)) + "\n" for line in lines)


def write(raw: Path, rows: list[Row] | str | bytes, map_xml: str = made_map(), split: str = "val") -> Path:
    """Write a sequence, whose path is returned, and Miami's map to a raw folder."""
    path = raw / split / "data" / "7.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, rows)
    map_of(raw).parent.mkdir(exist_ok=True)
    map_of(raw).write_text(map_xml)
    return path


def map_of(raw: Path) -> Path:
    """Return the path of the small map of Miami in a raw folder."""
    return raw / "map_files" / MAPS["MIA"]


def with_pack(raw: Path) -> Path:
    """Return a raw folder with the shipped pack and a small map for both cities."""
    (raw / "map_files").mkdir(parents=True)
    for name in MAPS.values():
        (raw / "map_files" / name).write_text(made_map())
    (raw / "val.parquet").write_bytes((SHIPPED / "val.parquet").read_bytes())
    return raw
