"""Maps as vehicles and simulators have them: Lanelet2, OpenDRIVE, CommonRoad; and Argoverse 2's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from trajpred.errors import quoted, require
from trajpred.files import atomic_file
from trajpred.lane_map import LaneMap
from trajpred.sources.argoverse2_map import archive_of, map_from
from trajpred.sources.maps import commonroad, lanelet2, opendrive
from trajpred.sources.maps.lanes import lane_map_of
from trajpred.sources.reading import parse, read_bytes, readable

#: The root element of each XML format: its name, and the function that returns lanes and crossings.
_XML: dict[str, tuple[str, Any]] = {
    "osm": ("Lanelet2", lanelet2.read),
    "OpenDRIVE": ("OpenDRIVE", opendrive.read),
    "commonRoad": ("CommonRoad", commonroad.read),
}


def read_map(
    path: str | Path, *, origin: tuple[float, float] | None = None, crs: str | None = None
) -> tuple[str, LaneMap]:
    """Return the format of a map file, which its content tells, and the map in metres.

    Args:
        origin, crs: where latitudes and longitudes are, see
            :func:`~trajpred.sources.maps.lanelet2.project`; other formats are in metres already.

    Raises: DataError naming the file and the field at fault.
    """
    # Damaged numbers may overflow; the result is checked.
    with readable(Path(path), "map"), np.errstate(all="ignore"):
        content = read_bytes(Path(path))
        if content.lstrip()[:1] == b"{":
            return "Argoverse 2", map_from(json.loads(content))
        root = parse(content)
        known = f"{', '.join(_XML)}, or JSON of Argoverse 2"
        require(root.tag in _XML, "root", f"is {quoted(root.tag)}, not that of a known map: {known}")
        name, read = _XML[root.tag]
        projection = {"origin": origin, "crs": crs} if name == "Lanelet2" else {}
        lane_map = lane_map_of(*read(root, **projection))
        require(len(lane_map) > 0, "lanes", "the map has no lane that road users drive on")
        return name, lane_map


def write_map(lane_map: LaneMap, path: str | Path) -> None:
    """Write a map as Argoverse 2's JSON, positions to a millimetre; :func:`read_map` and C++ read it.

    Attributes that Argoverse 2 lacks are further keys. Raises: DataError if the map is invalid.
    """
    content = json.dumps(archive_of(lane_map), allow_nan=False)
    with atomic_file(path) as unfinished:
        unfinished.write_text(content, encoding="utf-8")
