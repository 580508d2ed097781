"""Readers of raw data, and small files of theirs: shipped scenes shrunk to a few tracks, steps and lanes."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.conftest import ROOT, SAMPLE
from tests.fuzz.mutate import FLOATS, NUMBERS, TEXTS, hollow, spoil_bytes, spoil_json, stacked
from tests.fuzz.reader import Reader, of_file
from tests.fuzz.tables import spoil_parquet, to_parquet
from tests.sources.argoverse1_files import MAPS, made_map
from trajpred.errors import DataError
from trajpred.sources import argoverse1, argoverse1_map, argoverse2
from trajpred.sources.argoverse2 import read_map, read_scenario

PACK = ROOT / "datasets" / "argoverse1" / "val.parquet"
STEPS, OBSERVED = 10, 5


def small_scenario() -> tuple[pa.Table, dict[str, Any]]:
    """Tracks and map of a shipped Argoverse 2 scene: 10 steps, the focal track, the ego and one more."""
    folder = next(path for paths in argoverse2.discover(SAMPLE).values() for path in paths)
    table = pq.read_table(next(folder.glob("*.parquet")))
    archive = json.loads(next(folder.glob("*.json")).read_bytes())
    focal = table["focal_track_id"][0].as_py()
    first = 50 - OBSERVED
    table = table.filter(pc.is_in(table["timestep"], pa.array(range(first, first + STEPS), pa.int64())))
    names = {focal, "AV", next(x for x in table["track_id"].to_pylist() if x not in (focal, "AV"))}
    table = table.filter(pc.is_in(table["track_id"], pa.array(sorted(names))))
    steps = pc.subtract(table["timestep"], first)
    columns = {name: table[name] for name in table.column_names} | {
        "timestep": steps,
        "num_timestamps": pa.array([STEPS] * len(steps), pa.int64()),
        "observed": pc.less(steps, OBSERVED),
    }
    return pa.table(columns), {group: _few(records) for group, records in archive.items()}


def _few(records: dict[str, Any]) -> dict[str, Any]:
    """Two of the records, their lines shortened."""

    def short(found: Any) -> Any:
        return found[:3] if isinstance(found, list) else found

    return {key: {k: short(v) for k, v in one.items()} for key, one in list(records.items())[:2]}


def argoverse2_tracks(folder: Path) -> Reader:
    table, archive = small_scenario()
    scene = folder / "scene"
    scene.mkdir()
    (scene / "log_map_archive_0.json").write_text(json.dumps(archive))
    seeds = (to_parquet(table), to_parquet(table, use_dictionary=False, compression="none"))
    read = of_file(scene / "scenario_0.parquet", lambda: read_scenario(scene))
    return Reader(seeds, stacked(spoil_parquet, spoil_bytes), read)


def argoverse2_map(folder: Path) -> Reader:
    seed = json.dumps(small_scenario()[1]).encode()
    path = folder / "log_map_archive_0.json"
    return Reader(
        (seed,), stacked(spoil_json, spoil_json, spoil_bytes), of_file(path, lambda: read_map(path))
    )


def _sequence() -> pa.Table:
    """The focal track and two more of a shipped Argoverse 1 sequence."""
    table = pq.ParquetFile(PACK).read_row_group(0)
    table = table.filter(pc.equal(table["seq_id"], table["seq_id"][0]))
    return table.filter(pc.less_equal(table["TRACK_ID"], 3))


def argoverse1_csv(folder: Path) -> Reader:
    rows = _sequence()
    lines = ["TIMESTAMP,TRACK_ID,OBJECT_TYPE,X,Y,CITY_NAME"]
    for one in rows.to_pylist():
        x, y = one["x_dmm"] / 1e4, one["y_dmm"] / 1e4
        lines.append(f"{one['TIMESTAMP']},{one['TRACK_ID']:012},{one['OBJECT_TYPE']},{x},{y},MIA")
    path = _raw(folder) / "val" / "data" / "7.csv"
    path.parent.mkdir(parents=True)
    read = of_file(path, lambda: argoverse1.read_scenario(path))
    return Reader(("\n".join(lines).encode(),), stacked(_spoil_cells, _spoil_cells, spoil_bytes), read)


def _raw(folder: Path) -> Path:
    """A raw folder with Miami's map: a made one, of three lanes."""
    (folder / "map_files").mkdir()
    (folder / "map_files" / MAPS["MIA"]).write_text(made_map())
    return folder


def _spoil_cells(random: Random, data: bytes) -> bytes:
    """Change, lose or add a cell or a row of a CSV file."""
    lines = data.split(b"\n")
    at = random.choice((0, random.randrange(len(lines))))
    cells = lines[at].split(b",")
    column = random.randrange(len(cells))
    match random.randrange(6):
        case 0 | 1:
            cells[column] = _text(random)
        case 2:
            del cells[column]
        case 3:
            cells.insert(column, cells[random.randrange(len(cells))])
        case 4:
            lines.insert(random.randrange(len(lines)), lines[random.randrange(len(lines))])
            return b"\n".join(lines)
        case _:
            return b"\n".join([*lines[:at], *lines[at + 1 :]])
    lines[at] = b",".join(cells)
    return b"\n".join(lines)


def _text(random: Random) -> bytes:
    """What may stand between two commas or quotation marks."""
    shown = random.choice(
        (*TEXTS, *map(repr, FLOATS), *map(str, NUMBERS[:-1]), '"', "<", "&x;", "AGENT", "AV")
    )
    return random.choice((shown.encode("utf-8", "surrogatepass"), b"\xff\xfe", b"\x00"))


def argoverse1_map_xml(folder: Path) -> Reader:
    plain, packed = folder / "map.xml", folder / "map.xml.gz"

    def read(content: bytes) -> object:
        path = packed if content[:2] == b"\x1f\x8b" else plain
        path.write_bytes(content)
        return argoverse1_map.read_city_map(path).near(np.zeros(2), np.full(2, 100.0), 50.0)

    xml = made_map().encode()
    mutate = stacked(_spoil_xml, _spoil_xml, spoil_bytes)
    return Reader((xml, gzip.compress(xml, mtime=0)), mutate, read)


def _spoil_xml(random: Random, data: bytes) -> bytes:
    """Change an attribute or a line, add entities, or dig a hole; a packed map is packed again."""
    if data[:2] == b"\x1f\x8b":
        try:
            return gzip.compress(_spoil_xml(random, gzip.decompress(data)), 1, mtime=0)
        except (OSError, EOFError, ValueError, zlib.error):
            return spoil_bytes(random, data)
    quoted = [found.span() for found in re.finditer(rb'"[^"]*"', data)]
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    kind = random.randrange(40)
    if quoted and kind < 20:
        start, stop = random.choice(quoted)
        return data[:start] + b'"' + _text(random) + b'"' + data[stop:]
    if kind < 38:
        return b"\n".join([*lines[:at], *lines[at : at + 1] * random.choice((0, 2)), *lines[at + 1 :]])
    if kind == 38:
        return hollow(random, data.decode("utf-8", "replace")).replace(b'{"a":', b"<a>").replace(b"[", b"<b>")
    bomb = b"".join(b'<!ENTITY a%d "%s">' % (i + 1, b"&a%d;" % i * 10) for i in range(9))
    head = b'<!DOCTYPE x [<!ENTITY a0 "lol">' + bomb + b"]>"
    return head + data.replace(b"</way>", b"&a%d;</way>" % random.choice((1, 3, 9)), 1)


def argoverse1_pack(folder: Path) -> Reader:
    rows, pack = _sequence(), _raw(folder) / "val.parquet"
    later = rows.set_column(0, rows.schema.field(0), pc.add(rows["seq_id"], pa.scalar(1, pa.int32())))
    seeds = tuple(
        to_parquet(pa.concat_tables([rows, later]), row_group_size=size) for size in (None, len(rows))
    )

    def read() -> None:
        failed = None
        for paths in argoverse1.discover(folder).values():
            for path in paths[:3]:
                try:
                    argoverse1.read_scenario(path)
                except DataError as error:
                    failed = error
        if failed is not None:
            raise failed

    return Reader(seeds, stacked(spoil_parquet, spoil_bytes), of_file(pack, read))


READERS = {
    "argoverse2 tracks (parquet)": argoverse2_tracks,
    "argoverse2 map (JSON)": argoverse2_map,
    "argoverse1 sequence (CSV)": argoverse1_csv,
    "argoverse1 map (XML, gzip)": argoverse1_map_xml,
    "argoverse1 pack (parquet)": argoverse1_pack,
}
