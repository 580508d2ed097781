"""Map files on the command line: read with warnings, recognised, and written for C++."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trajpred.errors import DataError, require

if TYPE_CHECKING:
    from trajpred.lane_map import LaneMap
    from trajpred.sources.maps import MapFile

#: Suffixes of map files.
MAPS = (".osm", ".xodr", ".xml")
#: A key by which the content of Argoverse 2's map files is known.
MAP_KEY = b'"lane_segments"'


def load_map(path: Path, origin: tuple[float, float] | None = None, crs: str | None = None) -> MapFile:
    """Read a map file, and print what was left out of it."""
    from trajpred.sources.maps import read_map_file

    file = read_map_file(path, origin=origin, crs=crs)
    for summary in file.problems.summaries():
        print(f"warning: {path}: {summary}", file=sys.stderr)
    return file


def is_map(path: Path) -> bool:
    if not path.is_file():
        return False
    suffix = path.suffix.lower()
    return suffix in MAPS or (suffix == ".json" and MAP_KEY in path.read_bytes())


def save_map(
    what: str, store: Path | None, out: Path, origin: tuple[float, float] | None, crs: str | None
) -> None:
    """Write the map that ``what`` is, or the scenario's. Raises: DataError if it has none."""
    from trajpred.files import require_writable
    from trajpred.sources.maps import write_map

    require(out.suffix == ".json", "save", f"must end in .json, is {out}")
    lane_map = _lane_map(what, store, origin, crs)
    require_writable(out)
    write_map(lane_map, out)
    print(out)


def _lane_map(what: str, store: Path | None, origin: tuple[float, float] | None, crs: str | None) -> LaneMap:
    from trajpred.sources import SOURCES
    from trajpred.sources.maps import read_map_file
    from trajpred.sources.raw_scenario import RawScenario
    from trajpred.store import find_scenarios
    from trajpred.store.sample import ensure_store

    path = Path(what)
    if path.exists():
        if is_map(path):
            return read_map_file(path, origin=origin, crs=crs).lanes
        for source in SOURCES.values():
            with suppress(DataError, OSError):
                return source.read(RawScenario.of(path)).map
        raise DataError("is neither a map nor a scenario", file=path, field="save")
    [(name, rows)] = find_scenarios(ensure_store(store), [what])
    return rows[rows.index(name)].map
