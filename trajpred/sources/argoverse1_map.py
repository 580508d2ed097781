"""Read the vector map of an Argoverse 1 city (``pruned_argoverse_<city>_<n>_vector_map.xml``).

A ``<way>`` is a lane: tags, and references to ``<node>`` points of its centreline. The maps contain neither
lane boundaries nor crossings; the drivable area is a raster, which is not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from trajpred.arrays import as_array, row_of
from trajpred.errors import DataError, require, require_finite
from trajpred.lane_map import NO_LANE, LaneMap
from trajpred.names import encode
from trajpred.ragged import Ragged
from trajpred.sources.reading import parse, read_bytes, readable

#: The number in each city's file name.
CITIES = {"MIA": 10316, "PIT": 10314}
#: The values of each key of a lane's tags; a key may occur several times.
Tags = dict[str | None, list[str | None]]


@dataclass(frozen=True)
class CityMap:
    """All ``L`` lanes of a city, and their bounding boxes.

    Attributes:
        lanes: the map, city frame; all lanes are ``VEHICLE`` lanes, boundaries are empty.
        low: ``[L, 2]`` metres, lower corner of the box around each centreline.
        high: ``[L, 2]`` metres, upper corner.
    """

    lanes: LaneMap
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def near(self, low: NDArray[np.float64], high: NDArray[np.float64], radius_m: float) -> LaneMap:
        """Select the lanes within ``radius_m`` of the box from ``low`` to ``high`` ``[2]``, by their boxes.

        Links to lanes that are not selected are kept.
        """
        gap = np.maximum(np.maximum(self.low - high, low - self.high), 0.0)
        near = np.flatnonzero(np.square(gap).sum(-1) <= radius_m**2)
        return self.lanes.take(near, crossings=np.zeros(0, np.int64))


def city_map(folder: Path, city: str) -> CityMap:
    """Return the map of ``city`` in ``folder``, XML or gzip-compressed XML; parsed once per process.

    Raises: DataError naming the missing file, or the file and the field at fault.
    """
    if city not in CITIES:
        raise DataError(f"unknown value {city!r}; known: {', '.join(CITIES)}", field="CITY_NAME")
    plain = folder / f"pruned_argoverse_{city}_{CITIES[city]}_vector_map.xml"
    path = plain
    if not plain.is_file():
        path = plain.with_name(f"{plain.name}.gz")
    if not path.is_file():
        raise DataError("the map is missing, also as .gz", file=plain)
    return _read_once(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read_once(path: Path, modified_ns: int) -> CityMap:
    """Read a map; ``modified_ns`` is part of the cache's key, so that a changed file is read again."""
    return read_city_map(path)


def read_city_map(path: Path) -> CityMap:
    """Read a vector map, ``.xml`` or ``.xml.gz``. Raises: DataError naming file and field."""
    with readable(path, "map"):
        return _city_map(parse(read_bytes(path)))


def _city_map(root: ElementTree.Element) -> CityMap:
    ways = root.findall("way")
    require(len(ways) > 0, "way", "the map has no lanes")
    tags = [_tags(way) for way in ways]
    is_intersection = encode(_single(tags, "is_intersection"), ("False", "True"), "way.is_intersection")
    centerline = _centerlines(root, ways)
    lanes = LaneMap(
        lane_id=_lane_ids([way.get("lane_id") for way in ways], "way.lane_id"),
        is_intersection=is_intersection.astype(np.bool_),
        centerline=centerline,
        left_neighbor=_neighbors(tags, "l_neighbor_id"),
        right_neighbor=_neighbors(tags, "r_neighbor_id"),
        predecessors=_links(tags, "predecessor"),
        successors=_links(tags, "successor"),
    )
    lanes.validate()
    points = centerline.values
    starts = centerline.offsets[:-1]
    low = np.minimum.reduceat(points, starts)
    high = np.maximum.reduceat(points, starts)
    return CityMap(lanes, low, high)


def _centerlines(root: ElementTree.Element, ways: list[ElementTree.Element]) -> Ragged:
    """Return the centreline of each way, ``[points, 2]`` metres in the city frame."""
    nodes = root.findall("node")
    row = row_of(node.get("id") for node in nodes)
    require(len(row) == len(nodes), "node.id", "contains a duplicate")
    x = _coordinates(nodes, "x")
    y = _coordinates(nodes, "y")
    require_finite(x, "node.x")
    require_finite(y, "node.y")
    refs: list[str | None] = []
    lengths: list[int] = []
    for way in ways:
        points = way.findall(".//nd")
        refs += [point.get("ref") for point in points]
        lengths.append(len(points))
    require(min(lengths) >= 2, "way.nd", "a lane has fewer than 2 points")
    try:
        index = [row[ref] for ref in refs]
    except KeyError as error:
        raise DataError(f"refers to the missing node {error}", field="way.nd") from None
    xy = np.stack((x, y), -1)
    return Ragged.from_lengths(xy[index], lengths)


def _coordinates(nodes: list[ElementTree.Element], axis: str) -> NDArray[np.float64]:
    values = [node.get(axis, "nan") for node in nodes]
    return as_array(values, np.float64, f"node.{axis}")


def _tags(way: ElementTree.Element) -> Tags:
    tags: Tags = {}
    for tag in way.iter("tag"):
        tags.setdefault(tag.get("k"), []).append(tag.get("v"))
    return tags


def _single(tags: list[Tags], key: str) -> list[str | None]:
    """Return the value ``[L]`` of a tag that every lane must have once."""
    single: list[str | None] = []
    for lane_tags in tags:
        values = lane_tags.get(key, [])
        require(len(values) == 1, f"way.{key}", "must occur once in every lane")
        single += values
    return single


def _lane_ids(values: list[str | None], name: str) -> NDArray[np.int64]:
    ids: NDArray[np.int64] = as_array([value or "" for value in values], np.int64, name)
    require(bool((ids >= 0).all()), name, "must not be negative")
    return ids


def _neighbors(tags: list[Tags], key: str) -> NDArray[np.int64]:
    values = _single(tags, key)
    present = np.array([value != "None" for value in values])
    neighbors = np.full(len(values), NO_LANE, np.int64)
    neighbors[present] = _lane_ids([value for value in values if value != "None"], f"way.{key}")
    return neighbors


def _links(tags: list[Tags], key: str) -> Ragged:
    values: list[str | None] = []
    lengths: list[int] = []
    for lane_tags in tags:
        links = lane_tags.get(key, [])
        values += links
        lengths.append(len(links))
    ids = _lane_ids(values, f"way.{key}")
    return Ragged.from_lengths(ids, lengths)
