"""The vector map of one Argoverse 1 city (``pruned_argoverse_<city>_<n>_vector_map.xml``) and cut-outs of it.

A ``<way>`` is a lane: tags and references to ``<node>`` points. There are centrelines and no lane
boundaries; crossings do not exist and the drivable area is a raster, which is left alone.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, as_array, encode, require
from trajpred.lane_map import NO_LANE, TURN_DIRECTIONS, LaneMap, Ragged

#: The number in each city's file name.
CITIES = {"MIA": 10316, "PIT": 10314}
#: No map is larger, unpacked; the largest shipped one has 11 MB.
MAX_BYTES = 64 * 1024 * 1024
#: The values of each key of a lane's tags; a key may stand there several times.
Tags = dict[str | None, list[str | None]]


@dataclass(frozen=True)
class CityMap:
    """All ``L`` lanes of a city, and what a cut-out needs to find some of them.

    Attributes:
        lanes: the map, city frame; all lanes are ``VEHICLE`` lanes, boundaries are empty.
        low, high: ``[L, 2]`` metres, corners of the box around each centreline.
    """

    lanes: LaneMap
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def near(self, low: NDArray[np.float64], high: NDArray[np.float64], radius_m: float) -> LaneMap:
        """The lanes whose box lies within ``radius_m`` of the box from ``low`` ``[2]`` to ``high`` ``[2]``.

        Links may name lanes outside the cut-out.
        """
        gap = np.maximum(np.maximum(self.low - high, low - self.high), 0.0)
        return _take(self.lanes, np.flatnonzero(np.square(gap).sum(-1) <= radius_m**2))


def _take(lanes: LaneMap, index: NDArray[np.int64]) -> LaneMap:
    """The lanes at ``index``; crossings and areas, which Argoverse 1 lacks, stay empty."""
    own = [one.name for one in fields(LaneMap) if not one.name.startswith(("crossing", "drivable"))]
    taken: dict[str, Any] = {}
    for name in own:
        values = getattr(lanes, name)
        taken[name] = _take_rows(values, index) if isinstance(values, Ragged) else values[index]
    return LaneMap(**taken)


def _take_rows(rows: Ragged, index: NDArray[np.int64]) -> Ragged:
    lengths = rows.lengths[index]
    shift = rows.offsets[index] - (np.cumsum(lengths) - lengths)
    return Ragged.from_lengths(rows.values[np.repeat(shift, lengths) + np.arange(lengths.sum())], lengths)


def city_map(folder: Path, city: str) -> CityMap:
    """The map of ``city`` from ``folder``, as XML or packed with gzip; parsed once per process.

    Raises: DataError naming the expected path, or the file and the field at fault.
    """
    if city not in CITIES:
        raise DataError(f"unknown value {city!r}; known: {', '.join(CITIES)}", field="CITY_NAME")
    plain = folder / f"pruned_argoverse_{city}_{CITIES[city]}_vector_map.xml"
    path = plain if plain.is_file() else plain.with_name(f"{plain.name}.gz")
    if not path.is_file():
        raise DataError("the city's map is missing (also looked for with .gz)", file=plain)
    return _read_once(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read_once(path: Path, modified_ns: int) -> CityMap:
    """``modified_ns`` is there for the cache alone: a file that was mended is read again."""
    return read_city_map(path)


def read_city_map(path: Path) -> CityMap:
    """Read a vector map, ``.xml`` or ``.xml.gz``. Raises: DataError naming file and field at fault."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        require(len(content) <= MAX_BYTES, "file", "is larger than any map")
        return _city_map(ElementTree.fromstring(content))
    except DataError as error:
        raise error.located(path) from None
    except (ElementTree.ParseError, OSError, EOFError, zlib.error, ValueError, LookupError) as error:
        raise DataError(f"is no readable XML ({error})", file=path) from None


def _city_map(root: ElementTree.Element) -> CityMap:
    ways = root.findall("way")
    require(len(ways) > 0, "way", "the map holds no lanes")
    tags = [_tags(way) for way in ways]
    L = len(ways)

    def codes(key: str, known: tuple[str, ...]) -> NDArray[np.int8]:
        return encode(_single(tags, key), known, f"way.{key}")

    flags = ("False", "True")
    centerline = _centerlines(root, ways)
    bare, unmarked = Ragged.from_lengths(np.zeros((0, 2)), np.zeros(L)), np.zeros(L, np.int8)
    lanes = LaneMap(
        lane_id=_lane_ids([way.get("lane_id") for way in ways], "way.lane_id"),
        lane_type=np.zeros(L, np.int8),
        is_intersection=codes("is_intersection", flags).astype(np.bool_),
        centerline=centerline,
        left_boundary=bare,
        right_boundary=bare,
        left_mark=unmarked,
        right_mark=unmarked,
        left_neighbor=_neighbors(tags, "l_neighbor_id"),
        right_neighbor=_neighbors(tags, "r_neighbor_id"),
        predecessors=_links(tags, "predecessor"),
        successors=_links(tags, "successor"),
        turn_direction=codes("turn_direction", TURN_DIRECTIONS[1:]) + np.int8(1),  # the first is UNKNOWN
        has_traffic_control=codes("has_traffic_control", flags) + np.int8(1),
    )
    lanes.validate()
    return CityMap(
        lanes=lanes,
        low=np.minimum.reduceat(centerline.values, centerline.offsets[:-1]),
        high=np.maximum.reduceat(centerline.values, centerline.offsets[:-1]),
    )


def _centerlines(root: ElementTree.Element, ways: list[ElementTree.Element]) -> Ragged:
    nodes = root.findall("node")
    row = {node.get("id"): i for i, node in enumerate(nodes)}
    require(len(row) == len(nodes), "node.id", "holds the same node twice")
    xy = [as_array([node.get(axis, "nan") for node in nodes], np.float64, f"node.{axis}") for axis in "xy"]
    for axis, values in zip("xy", xy, strict=True):
        require(bool(np.isfinite(values).all()), f"node.{axis}", "is missing or not finite in one node")
    points = [[nd.get("ref") for nd in way.iter("nd")] for way in ways]
    require(min(map(len, points)) >= 2, "way.nd", "a lane has fewer than 2 points")
    try:
        index = [row[ref] for ref in chain.from_iterable(points)]
    except KeyError as error:
        raise DataError(f"refers to a node that is not there: {error}", field="way.nd") from None
    return Ragged.from_lengths(np.stack(xy, -1)[index], [len(row) for row in points])


def _tags(way: ElementTree.Element) -> Tags:
    tags: Tags = {}
    for tag in way.iter("tag"):
        tags.setdefault(tag.get("k"), []).append(tag.get("v"))
    return tags


def _single(tags: list[Tags], key: str) -> list[str | None]:
    """The value ``[L]`` of a tag that every lane has once."""
    values = [one.get(key, []) for one in tags]
    require(all(len(one) == 1 for one in values), f"way.{key}", "must stand once in every lane")
    return [one[0] for one in values]


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
    rows = [one.get(key, []) for one in tags]
    return Ragged.from_lengths(
        _lane_ids(list(chain.from_iterable(rows)), f"way.{key}"), [len(row) for row in rows]
    )
