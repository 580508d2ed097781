"""Invalid files of Argoverse 1: file and field are named."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import rejected
from tests.sources.argoverse1_files import (
    HEADER,
    MAPS,
    Row,
    made_map,
    made_rows,
    map_of,
    text_of,
    with_pack,
    write,
)
from trajpred.sources import SOURCES
from trajpred.sources.argoverse1 import discover, read_city_map, read_packed, read_scenario


def with_cell(column: str, value: str) -> list[Row]:
    """Replace one cell of the focal track."""
    rows = made_rows()
    next(row for row in rows[8:] if row[1] == "focal")[HEADER.index(column)] = value
    return rows


def without(column: str) -> str:
    """Remove a column."""
    lines = [list(HEADER), *made_rows()]
    for line in lines:
        del line[HEADER.index(column)]
    return text_of(lines)


def with_two(column: str) -> str:
    """Append a column once more."""
    lines = [list(HEADER), *made_rows()]
    for line in lines:
        line.append(line[HEADER.index(column)])
    return text_of(lines)


def with_all(column: str, value: str, track: str | None = None) -> list[Row]:
    """Replace a column of all rows, or of those of a track."""
    rows = made_rows()
    for row in rows:
        if track in (None, row[1]):
            row[HEADER.index(column)] = value
    return rows


def without_observed_focal() -> list[Row]:
    """Remove the focal track's first states."""
    rows = made_rows()
    first = [row for row in rows[:10] if row[1] == "focal"]
    return [row for row in rows if row not in first]


@pytest.mark.parametrize(
    ("rows", "field", "message"),
    [
        (without("CITY_NAME"), "CITY_NAME", "missing"),
        (with_two("X"), "X", "duplicated"),
        (with_cell("X", "far"), None, "CSV column #3: Row #.*'far'"),
        (with_cell("Y", "1,5"), None, "Expected 6 columns, got 7"),
        (with_cell("X", ""), "X", "missing"),
        (with_cell("Y", "inf"), "Y", "non-finite"),
        (with_cell("TIMESTAMP", "1e300"), "TIMESTAMP", "seconds"),
        (with_cell("TRACK_ID", ""), "TRACK_ID", "empty"),
        (with_cell("OBJECT_TYPE", "CAR"), "OBJECT_TYPE", "unknown value 'CAR'"),
        (with_cell("OBJECT_TYPE", "OTHERS"), "OBJECT_TYPE", "changes within a track"),
        (with_cell("CITY_NAME", "PIT"), "CITY_NAME", "same in all rows"),
        (with_all("CITY_NAME", "BOS"), "CITY_NAME", "unknown value 'BOS'"),
        (with_all("OBJECT_TYPE", "AGENT"), "OBJECT_TYPE", "one AGENT, names 5"),
        (with_all("OBJECT_TYPE", "AV", track="parked"), "OBJECT_TYPE", "one AV"),
        ([*made_rows(), made_rows()[40]], "TIMESTAMP", "same step"),
        (without_observed_focal(), "TIMESTAMP", "AGENT is not"),
        (made_rows(49), "TIMESTAMP", "has 49"),
        ([], "TIMESTAMP", "no rows"),
        (b"\xff\xfe\x00", None, None),
    ],
)
def test_invalid_sequences_are_named(
    tmp_path: Path, rows: Any, field: str | None, message: str | None
) -> None:
    path = write(tmp_path, rows)
    rejected(lambda: read_scenario(path), "val/data/7.csv", field, message)


def test_missing_files_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, made_rows())
    rejected(lambda: read_scenario(path.with_name("8.csv")), "8.csv", None)
    rejected(lambda: read_scenario(path.parent), "data", None)
    map_of(tmp_path).unlink()
    rejected(lambda: read_scenario(path), f"map_files/{MAPS['MIA']}", None, "missing")
    (tmp_path / "map_files").rmdir()
    rejected(lambda: discover(tmp_path), "map_files", None, "missing")
    path.unlink()
    rejected(lambda: SOURCES["argoverse1"].scenarios(tmp_path), tmp_path.name, None, "train,val,test_obs")


INVALID_MAPS = [
    ('lane_id="12"', 'lane_id="11"', "lane_id"),
    ('lane_id="12"', "", "way.lane_id"),
    ('k="is_intersection" v="True"', 'k="is_intersection" v="maybe"', "way.is_intersection"),
    ('k="is_intersection" v="True"', 'k="crossing" v="True"', "way.is_intersection"),
    ('k="is_intersection" v="True"', 'k="is_intersection"', "way.is_intersection"),
    ('k="l_neighbor_id" v="13"', 'k="l_neighbor_id" v="-7"', "way.l_neighbor_id"),
    ('k="successor" v="12"', 'k="successor" v="None"', "way.successor"),
    ('k="successor" v="12"', 'k="is_intersection" v="True"', "way.is_intersection"),
    ('<nd ref="7" />', "", "way.nd"),
    ('<nd ref="7" />', '<nd ref="8" />', "way.nd"),
    ('<node id="7"', '<node id="0"', "node.id"),
    ('x="180"', 'x="far"', "node.x"),
    ('x="180"', 'x="nan"', "node.x"),
    ("</ArgoverseVectorMap>", "", None),
]


def test_invalid_maps_are_named(tmp_path: Path) -> None:
    contents: list[Any] = [
        ("<ArgoverseVectorMap/>", "way"),
        (b"", None),
        ('<?xml version="1.0" encoding="x"?><a/>', None),
    ]
    for old, new, field in INVALID_MAPS:
        assert old in made_map()
        contents.append((made_map().replace(old, new), field))
    for content, field in contents:
        write(tmp_path, made_rows(), content)
        rejected(lambda: read_city_map(map_of(tmp_path)), MAPS["MIA"], field)
    compressed = gzip.compress(made_map().encode())
    path = tmp_path / "map.xml.gz"
    path.write_bytes(compressed[: len(compressed) // 2])
    rejected(lambda: read_city_map(path), "map.xml.gz", None)


def test_invalid_packs_are_named(tmp_path: Path) -> None:
    path = with_pack(tmp_path / "raw") / "val.parquet"
    table = pq.read_table(path).slice(0, 2000)
    table = table.filter(pc.not_equal(table["seq_id"], 2))

    def check(field: str | None, message: str | None = None, seq_id: int = 1) -> None:
        rejected(lambda: read_packed(path, seq_id), "val.parquet", field, message)

    pq.write_table(table, path, write_statistics=False, row_group_size=300)
    assert read_packed(path, 1).scenario_id == "1"
    for seq_id in (0, 2, 99999999, 10**40):
        check("seq_id", f"{seq_id} is not in the pack", seq_id)
    for name in ("seq_id", "TIMESTAMP", "TRACK_ID", "OBJECT_TYPE", "x_dmm", "CITY_NAME"):
        pq.write_table(table.drop_columns([name]), path)
        check(name)
        at = table.schema.get_field_index(name)
        number = name not in ("OBJECT_TYPE", "CITY_NAME")
        wrong = pa.array(["1"] * len(table)) if number else pa.array([1] * len(table))
        pq.write_table(table.set_column(at, name, wrong), path)
        check(name)
    pq.write_table(table.sort_by([("seq_id", "descending")]), path)
    check("seq_id", "sorted")
    for content in (b"", b"PAR1" * 20):
        path.write_bytes(content)
        check(None)
        rejected(lambda: discover(path.parent), "val.parquet", "seq_id")
