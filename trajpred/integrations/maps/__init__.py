"""Maps of vehicles and simulators: Lanelet2, OpenDRIVE, CommonRoad; and Argoverse 2's."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trajpred.data.files import atomic_file
from trajpred.data.lane_map import LaneMap
from trajpred.data.registry import REGISTRIES, Registry, register
from trajpred.errors import DataError, quoted, require
from trajpred.integrations.maps import commonroad, lanelet2, opendrive
from trajpred.integrations.maps.segments import MapParts, lane_map_of
from trajpred.sources.argoverse2 import archive_of, map_from
from trajpred.sources.reading import MapProblems, parse, read_bytes, readable, require_lanes


class MapFormat(NamedTuple):
    """An XML format of maps, registered under the root element of its files.

    Attributes:
        name: for human readers.
        code: function that returns the parts of a map from its root element.
    """

    name: str
    code: Callable[..., MapParts]


#: Map formats by root element.
FORMATS: Registry[MapFormat] = REGISTRIES["map format"]
register("map format", "osm")(MapFormat("Lanelet2", lanelet2.read))
register("map format", "OpenDRIVE")(MapFormat("OpenDRIVE", opendrive.read))
register("map format", "commonRoad")(MapFormat("CommonRoad", commonroad.read))


class MapFile(NamedTuple):
    """What a map file contains.

    Attributes:
        format: its name.
        lanes: the map in metres.
        frame: the file's coordinates, or their projection, that the map is in.
        problems: the parts of the file that were left out.
    """

    format: str
    lanes: LaneMap
    frame: str
    problems: MapProblems


def read_map(
    path: str | Path, *, origin: tuple[float, float] | None = None, crs: str | None = None
) -> LaneMap:
    """Read a map file of any known format, detected from the content, in metres.

    Broken parts of the file are left out with a warning that names them.

    Args:
        origin, crs: projection of Lanelet2's latitudes and longitudes, see
            :func:`~trajpred.integrations.maps.lanelet2.project`; other formats are in metres.

    Raises: DataError naming the file and the field at fault, also if no lane is left.
    """
    file = read_map_file(path, origin=origin, crs=crs)
    file.problems.warn(Path(path))
    return file.lanes


def read_map_file(
    path: str | Path, *, origin: tuple[float, float] | None = None, crs: str | None = None
) -> MapFile:
    """Read a map file like :func:`read_map`, but return what was left out instead of warning."""
    projection: dict[str, Any] = {"origin": origin, "crs": crs}
    # Damaged numbers may overflow; the result is checked.
    with readable(Path(path), "map"), np.errstate(all="ignore"):
        content = read_bytes(Path(path)).removeprefix(BOM_UTF8)
        if content.lstrip()[:1] == b"{":
            _require_none(projection, "Argoverse 2")
            problems = MapProblems()
            lane_map = map_from(json.loads(content), problems)
            require_lanes(len(lane_map), problems)
            return MapFile("Argoverse 2", lane_map, "the city's", problems)
        root = parse(content)
        known = f"{', '.join(FORMATS)}, or JSON of Argoverse 2"
        require(root.tag in FORMATS, "root", f"is {quoted(root.tag)}, not that of a known map: {known}")
        name, read = FORMATS[root.tag]
        if name != "Lanelet2":
            _require_none(projection, name)
            projection = {}
        parts = read(root, **projection)
        return MapFile(name, lane_map_of(parts), parts.frame, parts.problems)


def require_origin(file: MapFile, path: str | Path, origin: tuple[float, float] | None) -> None:
    """Raise DataError if a map is in degrees and the origin of positions in metres is unknown."""
    is_placed = file.format != "Lanelet2" or file.frame.startswith(lanelet2.LOCAL) or origin is not None
    if not is_placed:
        needed = "is in degrees: give the origin of x and y with --origin LATITUDE LONGITUDE"
        raise DataError(needed, file=path, field="origin")


def write_map(lane_map: LaneMap, path: str | Path) -> None:
    """Write a map as Argoverse 2's JSON, positions to a millimetre; :func:`read_map` and C++ read it.

    Raises: DataError if the map is invalid.
    """
    content = json.dumps(archive_of(lane_map), allow_nan=False)
    with atomic_file(path) as unfinished:
        unfinished.write_text(content, encoding="utf-8")


def _require_none(projection: dict[str, Any], name: str) -> None:
    """Raise DataError if a projection is given for a format in metres."""
    for option, value in projection.items():
        require(value is None, option, f"is for latitudes and longitudes of Lanelet2: {name} is in metres")
