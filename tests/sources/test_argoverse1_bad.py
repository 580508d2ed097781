"""Bad Argoverse 1 files: each gives a DataError that names file and field, never another exception."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sources.argoverse1_files import MAPS, SHIPPED, Row, made_map, made_rows, write
from trajpred.errors import DataError
from trajpred.sources.argoverse1 import discover, read_scenario
from trajpred.sources.argoverse1_map import read_city_map

HEADER = "TIMESTAMP,TRACK_ID,OBJECT_TYPE,X,Y,CITY_NAME"
COLUMNS = HEADER.split(",")


def refused(read: Callable[[], object], file: str, field: str | None, message: str | None = None) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read()
    error = caught.value
    assert Path(str(error.file)).match(file), error
    assert error.field == field, error
    assert len(str(error).splitlines()) == 1


def refused_rows(
    tmp_path: Path, rows: list[Row] | str | bytes, field: str | None, message: str | None = None
) -> None:
    path = write(tmp_path, rows)
    refused(lambda: read_scenario(path), "val/data/7.csv", field, message)


# ----------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("name", COLUMNS)
def test_a_missing_column(tmp_path: Path, name: str) -> None:
    at = COLUMNS.index(name)
    lines = [COLUMNS, *made_rows()]
    text = "\n".join(",".join(map(str, (*line[:at], *line[at + 1 :]))) for line in lines)
    refused_rows(tmp_path, text, name, "missing")


@pytest.mark.parametrize("name", ["X", "TRACK_ID"])
def test_a_column_that_stands_there_twice(tmp_path: Path, name: str) -> None:
    at = COLUMNS.index(name)
    lines = [COLUMNS, *made_rows()]
    refused_rows(tmp_path, "\n".join(",".join(map(str, (*line, line[at]))) for line in lines), name, "twice")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("X", "far", "far"),
        ("Y", "1,5", "Expected 6 columns, got 7"),
        ("X", "", "missing"),
        ("X", "nan", "missing"),
        ("Y", "inf", "not finite"),
        ("TIMESTAMP", "noon", "noon"),
        ("TIMESTAMP", "", "missing"),
        ("TIMESTAMP", "-1", "seconds"),
        ("TIMESTAMP", "1e300", "seconds"),
        ("TIMESTAMP", "4.2", "50 distinct values"),
        ("TRACK_ID", "", "empty"),
        ("OBJECT_TYPE", "", "unknown value"),
        ("OBJECT_TYPE", "CAR", "unknown value 'CAR'"),
        ("OBJECT_TYPE", "OTHERS", "changes within a track"),
        ("CITY_NAME", "PIT", "same in all rows"),
    ],
)
def test_one_bad_value(tmp_path: Path, column: str, value: str, message: str) -> None:
    rows = made_rows()
    focal = next(row for row in rows[8:] if row[1] == "focal")
    focal[COLUMNS.index(column)] = value
    refused_rows(tmp_path, rows, None if value == "1,5" else column, message)


def with_column(name: str, value: str) -> list[Row]:
    at = COLUMNS.index(name)
    return [[*row[:at], value, *row[at + 1 :]] for row in made_rows()]


@pytest.mark.parametrize(
    ("rows", "field", "message"),
    [
        (with_column("CITY_NAME", "BOS"), "CITY_NAME", "unknown value 'BOS'"),
        (with_column("CITY_NAME", ""), "CITY_NAME", "unknown value ''"),
        (with_column("OBJECT_TYPE", "OTHERS"), "OBJECT_TYPE", "one AGENT, names 0"),
        (with_column("OBJECT_TYPE", "AGENT"), "OBJECT_TYPE", "one AGENT, names 5"),
        ([r if r[1] != "parked" else [*r[:2], "AV", *r[3:]] for r in made_rows()], "OBJECT_TYPE", "one AV"),
        ([r if r[1] != "parked" else [r[0], "AV", *r[2:]] for r in made_rows()], "track_id", "twice"),
        ([*made_rows(), made_rows()[40]], "TIMESTAMP", "same step twice"),
        (made_rows()[4:], "TIMESTAMP", "AGENT is not there|distinct"),
        ([r for i, r in enumerate(made_rows()) if r[1] != "focal" or i > 9], "TIMESTAMP", "AGENT is not"),
        (made_rows(49), "TIMESTAMP", "has 49"),
        (made_rows(51), "TIMESTAMP", "has 51"),
        (made_rows(19), "TIMESTAMP", "has 19"),
        ([], "TIMESTAMP", "no rows"),
    ],
)
def test_what_no_sequence_can_be(tmp_path: Path, rows: list[Row], field: str, message: str) -> None:
    refused_rows(tmp_path, rows, field, message)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\xff\xfe\x00", b"\0" * 50, b"PAR1", b"{}", HEADER[:9].encode()]
)
def test_what_is_no_sequence(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read_scenario(path)
    assert caught.value.file == path


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = write(tmp_path, made_rows())
    path.write_bytes(path.read_bytes().replace(b"parked", b"p\xffrked"))
    refused(lambda: read_scenario(path), "7.csv", "TRACK_ID")


def test_missing_files(tmp_path: Path) -> None:
    path = write(tmp_path, made_rows())
    refused(lambda: read_scenario(path.with_name("8.csv")), "8.csv", None)
    refused(lambda: read_scenario(path.parent), "data", None)
    (tmp_path / "map_files" / MAPS["MIA"]).unlink()
    refused(lambda: read_scenario(path), f"map_files/{MAPS['MIA']}", None, "missing")
    (tmp_path / "map_files").rmdir()
    refused(lambda: discover(tmp_path), "map_files", None, "missing")
    path.unlink()
    refused(lambda: discover(tmp_path), tmp_path.name, None, "train,val,test_obs")


def test_random_damage_gives_a_scenario_or_a_data_error(tmp_path: Path) -> None:
    path, random_ = write(tmp_path, made_rows()), random.Random(0)
    content, outcomes = path.read_bytes(), set()
    for _ in range(200):
        damaged = bytearray(content)
        damaged[random_.randrange(len(damaged))] = random_.choice([random_.randrange(256), ord("5")])
        path.write_bytes(damaged)
        try:
            read_scenario(path)
            outcomes.add("read")
        except DataError as error:
            assert error.file == path
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


# ------------------------------------------------------------------------------------------------ map


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('lane_id="12"', 'lane_id="11"', "lane_id"),
        ('lane_id="12"', 'lane_id="twelve"', "way.lane_id"),
        ('lane_id="12"', 'lane_id="-1"', "way.lane_id"),
        ('lane_id="12"', "", "way.lane_id"),
        ('lane_id="12"', f'lane_id="{2**63}"', "way.lane_id"),
        ('v="LEFT"', 'v="UP"', "way.turn_direction"),
        ('k="turn_direction" v="LEFT"', 'k="turn" v="LEFT"', "way.turn_direction"),
        ('k="is_intersection" v="True"', 'k="is_intersection" v="1"', "way.is_intersection"),
        ('k="has_traffic_control" v="True"', 'k="has_traffic_control"', "way.has_traffic_control"),
        ('k="l_neighbor_id" v="13"', 'k="l_neighbor_id" v="left"', "way.l_neighbor_id"),
        ('k="r_neighbor_id" v="99"', 'k="r_neighbor_id" v="1.5"', "way.r_neighbor_id"),
        ('k="successor" v="12"', 'k="successor" v="None"', "way.successor"),
        ('k="predecessor" v="11"', 'k="predecessor"', "way.predecessor"),
        ('k="successor" v="12"', 'k="turn_direction" v="LEFT"', "way.turn_direction"),
        ('<nd ref="7" />', "", "way.nd"),
        ('<nd ref="7" />', '<nd ref="8" />', "way.nd"),
        ('<node id="7"', '<node id="0"', "node.id"),
        ('x="180"', 'x="far"', "node.x"),
        ('x="180"', 'x="nan"', "node.x"),
        ('y="52"', "", "node.y"),
        ("</ArgoverseVectorMap>", "", None),
    ],
)
def test_a_damaged_map(tmp_path: Path, old: str, new: str, field: str | None) -> None:
    assert old in made_map()
    path = write(tmp_path, made_rows(), made_map().replace(old, new))
    refused(lambda: read_scenario(path), MAPS["MIA"], field)


@pytest.mark.parametrize(
    "content", [b"", b"<a>", b"\xff\xfe", b"{}", b'<?xml version="1.0" encoding="x"?><a/>']
)
def test_what_is_no_xml(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, made_rows(), content)
    refused(lambda: read_scenario(path), MAPS["MIA"], None)


def test_a_map_without_lanes(tmp_path: Path) -> None:
    path = write(tmp_path, made_rows(), "<ArgoverseVectorMap/>")
    refused(lambda: read_scenario(path), MAPS["MIA"], "way", "no lanes")


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_a_truncated_packed_map(tmp_path: Path, share: float) -> None:
    content = gzip.compress(made_map().encode())
    path = tmp_path / "map.xml.gz"
    path.write_bytes(content[: int(share * len(content))])
    refused(lambda: read_city_map(path), "map.xml.gz", None)


# ----------------------------------------------------------------------------------------------- pack


@pytest.fixture
def pack(tmp_path: Path) -> tuple[Path, pa.Table]:
    """A raw folder with one shipped sequence as a pack, and the table to damage."""
    (tmp_path / "map_files").symlink_to(SHIPPED / "map_files")
    return tmp_path / "val.parquet", pq.read_table(SHIPPED / "val.parquet").slice(0, 2000)


def test_a_pack_in_small_row_groups(pack: tuple[Path, pa.Table]) -> None:
    path, table = pack
    ids = table["seq_id"].to_numpy()
    first = table.filter(ids == ids[0])
    pq.write_table(first, path)
    assert read_scenario(path / str(ids[0])).scenario_id == str(ids[0])
    for name in ("0", "39", "99999999", "x", "9" * 40):
        refused(lambda name=name: read_scenario(path / name), f"val.parquet/{name}", "seq_id")


@pytest.mark.parametrize("name", ["seq_id", "TIMESTAMP", "TRACK_ID", "OBJECT_TYPE", "x_dmm", "CITY_NAME"])
def test_a_pack_without_a_column_or_of_another_type(pack: tuple[Path, pa.Table], name: str) -> None:
    path, table = pack
    pq.write_table(table.drop_columns([name]), path)
    refused(lambda: read_scenario(path / "40"), "val.parquet/40", name)
    at = table.schema.get_field_index(name)
    pq.write_table(table.set_column(at, name, pa.array(["1"] * len(table))), path)
    refused(lambda: read_scenario(path / "40"), "val.parquet/40", name)


def test_a_pack_out_of_order_but_not_one_without_statistics(pack: tuple[Path, pa.Table]) -> None:
    path, table = pack
    pq.write_table(table.sort_by([("seq_id", "descending")]), path)
    refused(lambda: read_scenario(path / "40"), "val.parquet/40", "seq_id", "sorted")
    pq.write_table(table, path, write_statistics=False)
    assert read_scenario(path / "40").scenario_id == "40"


@pytest.mark.parametrize("content", [b"", b"PAR1" * 20])
def test_what_is_no_pack(pack: tuple[Path, pa.Table], content: bytes) -> None:
    path, _ = pack
    path.write_bytes(content)
    refused(lambda: discover(path.parent), "val.parquet", "seq_id")
    refused(lambda: read_scenario(path / "40"), "val.parquet/40", None)
