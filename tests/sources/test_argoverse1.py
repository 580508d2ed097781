"""The Argoverse 1 reader: equal to plain parsers, blind to the future, and exact about invalid files."""

from __future__ import annotations

import csv
import gzip
import os
from dataclasses import fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import equal, rejected
from tests.scenes import assert_same, features_of
from tests.sources.argoverse1_files import (
    HEADER,
    MAPS,
    SHIPPED,
    Row,
    made_map,
    made_rows,
    map_of,
    text_of,
    with_pack,
    write,
    write_csv,
)
from trajpred.data.lane_map import NO_LANE, LaneMap
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import EGO_ID, OBJECT_TYPES, TrackCategory, Tracks
from trajpred.evaluation import evaluate
from trajpred.predictors import load_predictor
from trajpred.sources import SOURCES, RawScenario
from trajpred.sources.argoverse1 import (
    LANE_RADIUS_M,
    city_map,
    discover,
    read,
    read_city_map,
    read_packed,
    read_scenario,
)
from trajpred.store import ScenarioStore, prepare


def check_tracks(scenario: Scenario, path: Path) -> None:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    stamps = sorted({float(row["TIMESTAMP"]) for row in rows})
    expected = np.full((len(scenario.tracks), 50, 2), np.nan)
    ids = set()
    for row in rows:
        name = EGO_ID if row["OBJECT_TYPE"] == "AV" else row["TRACK_ID"]
        step = stamps.index(float(row["TIMESTAMP"]))
        expected[scenario.tracks.index(name), step] = float(row["X"]), float(row["Y"])
        assert (name == scenario.focal_id) == (row["OBJECT_TYPE"] == "AGENT")
        assert row["CITY_NAME"] == scenario.city
        ids.add(name)
    assert set(scenario.tracks.track_id.tolist()) == ids
    assert scenario.scenario_id == path.stem
    np.testing.assert_array_equal(scenario.tracks.valid, ~np.isnan(expected[..., 0]))
    np.testing.assert_array_equal(scenario.tracks.position, np.nan_to_num(expected))


def test_positions_of_csv_files_and_packs_equal_plain_csv(tmp_path: Path) -> None:
    path = write(tmp_path, made_rows())
    check_tracks(read_scenario(path), path)
    raw = with_pack(tmp_path / "packed")
    packed = discover(raw)["val"]
    assert len(packed) == 4007
    (raw / "train" / "data").mkdir(parents=True)
    table = pq.read_table(SHIPPED / "val.parquet")
    for sequence in packed[::1000]:
        rows = table.filter(pc.equal(table["seq_id"], int(sequence.name)))
        lines = []
        for row in rows.to_pylist():
            row["TRACK_ID"] = f"00000000-0000-0000-0000-{row['TRACK_ID']:012}"
            row["X"] = row["x_dmm"] / 1e4
            row["Y"] = row["y_dmm"] / 1e4
            lines.append([row[name] for name in HEADER])
        plain = raw / "train" / "data" / f"{sequence.name}.csv"
        write_csv(plain, lines)
        check_tracks(read(sequence), plain)
        assert equal(read(sequence), read(RawScenario.of(plain)))


#: The columns of a pack that hold text.
TEXT = ("OBJECT_TYPE", "CITY_NAME")


def test_the_row_groups_and_text_encoding_of_a_pack_do_not_matter(tmp_path: Path) -> None:
    """Groups smaller than a sequence, and groups that end within one; text without a dictionary."""
    raw = with_pack(tmp_path)
    path = raw / "val.parquet"
    table = pq.read_table(path)
    table = table.filter(pc.less(table["seq_id"], 20))
    pq.write_table(table, path, row_group_size=len(table))
    expected = [read(sequence) for sequence in discover(raw)["val"]]
    assert len(expected) > 5
    plain = [table[name].cast(pa.string()) if name in TEXT else table[name] for name in table.column_names]
    table = pa.table(plain, table.column_names)
    for size in (7, 300, 1999):
        pq.write_table(table, path, row_group_size=size)
        for sequence, whole in zip(discover(raw)["val"], expected, strict=True):
            assert equal(read(sequence), whole), f"{sequence.name}, groups of {size} rows"


def plain_lanes(path: Path) -> tuple[dict[int, Any], dict[int, list[list[float]]]]:
    """Return the tags (key -> values) and the points of each lane, parsed element by element."""
    with gzip.open(path) as file:
        root = ElementTree.parse(file).getroot()
    nodes = {}
    for node in root.iter("node"):
        nodes[node.attrib["id"]] = [float(node.attrib["x"]), float(node.attrib["y"])]
    tags: dict[int, Any] = {}
    points: dict[int, list[list[float]]] = {}
    for way in root.iter("way"):
        lane_id = int(way.attrib["lane_id"])
        tags[lane_id] = {}
        for tag in way.iter("tag"):
            tags[lane_id].setdefault(tag.attrib["k"], []).append(tag.attrib["v"])
        points[lane_id] = [nodes[nd.attrib["ref"]] for nd in way.iter("nd")]
    return tags, points


def neighbor_id(names: list[str]) -> int:
    return NO_LANE if names[0] == "None" else int(names[0])


def check_lanes(lanes: LaneMap, tags: dict[int, Any], points: dict[int, list[list[float]]]) -> None:
    for row, lane_id in enumerate(lanes.lane_id.tolist()):
        tag = tags[lane_id]
        np.testing.assert_array_equal(lanes.centerline[row], points[lane_id])
        assert [str(lanes.is_intersection[row])] == tag["is_intersection"]
        assert lanes.left_neighbor[row] == neighbor_id(tag["l_neighbor_id"])
        assert lanes.right_neighbor[row] == neighbor_id(tag["r_neighbor_id"])
        assert lanes.successors[row].astype(str).tolist() == tag.get("successor", [])
        assert lanes.predecessors[row].astype(str).tolist() == tag.get("predecessor", [])
        assert not len(lanes.left_boundary[row])


@pytest.mark.parametrize("city", [None, *(pytest.param(x, marks=pytest.mark.slow) for x in MAPS)])
def test_city_maps_and_the_lanes_near_a_scenario_equal_element_tree(tmp_path: Path, city: str | None) -> None:
    """On a small map, and on the shipped ones."""
    if city:
        path = SHIPPED / "map_files" / f"{MAPS[city]}.gz"
    else:
        path = tmp_path / "map.xml.gz"
        path.write_bytes(gzip.compress(made_map().encode()))
    tags, points = plain_lanes(path)
    whole = read_city_map(path)
    assert sorted(whole.lanes.lane_id.tolist()) == sorted(tags)
    check_lanes(whole.lanes, tags, points)
    row = len(whole.lanes) // 2
    low = whole.low[row] - 5
    high = whole.low[row] + 20
    near = set()
    for lane_id, line in points.items():
        gap = np.maximum(np.min(line, axis=0) - high, low - np.max(line, axis=0))
        if np.hypot(*np.maximum(gap, 0)) <= LANE_RADIUS_M:
            near.add(lane_id)
    chosen = whole.near(low, high, LANE_RADIUS_M)
    assert set(chosen.lane_id.tolist()) == near
    if city:
        assert 10 < len(near) < len(points) / 10
    else:
        assert 1 < len(near) < len(points)
    check_lanes(chosen, tags, points)


@pytest.mark.slow
def test_evaluation_of_the_shipped_scenes_gives_the_metrics_of_their_readme(tmp_path: Path) -> None:
    summary = prepare("argoverse1", SHIPPED, tmp_path / "store", workers=1, progress=False)
    assert (summary.scenarios, summary.skipped) == ({"val": 4007}, {"val": {}})
    rows = ScenarioStore(tmp_path / "store", "val")
    focal = evaluate(load_predictor("constant_velocity"), rows, progress=False).metrics["focal"]
    page = " ".join((SHIPPED / "README.md").read_text().split())
    ade = round(focal["minADE1"], 2)
    fde = round(focal["minFDE1"], 2)
    missed = round(focal["MR1"], 2)
    assert f"a focal minADE1 of {ade} m, minFDE1 of {fde} m and MR1 of {missed}" in page
    sequences = discover(SHIPPED)["val"]
    for index in range(0, len(sequences), 300):
        assert equal(rows[index], read(sequences[index]), tolerance=6e-4)


def test_window_roles_categories_and_motion(tmp_path: Path) -> None:
    scenario = read_scenario(write(tmp_path, made_rows()))
    tracks = scenario.tracks
    assert (scenario.num_observed, scenario.num_steps, scenario.has_future) == (20, 50, True)
    assert (scenario.step_s, scenario.focal_id) == (pytest.approx(0.1), "focal")
    assert tracks.track_id.tolist() == [EGO_ID, "focal", "late", "parked", "unseen"]
    types = [OBJECT_TYPES[i] for i in tracks.object_type]
    assert types == ["vehicle", "vehicle", "unknown", "unknown", "unknown"]
    categories = ("UNSCORED", "FOCAL", "FRAGMENT", "UNSCORED", "FRAGMENT")
    assert tracks.category.tolist() == [TrackCategory[name] for name in categories]
    ego = tracks.index(EGO_ID)
    focal = tracks.index("focal")
    parked = tracks.index("parked")
    np.testing.assert_allclose(tracks.velocity[focal, 1:], [[10, 0]] * 49, atol=1e-6)
    np.testing.assert_allclose(tracks.velocity[ego, 1:], [[0, 5]] * 49, atol=1e-6)
    np.testing.assert_allclose(tracks.heading[ego, 3:], np.pi / 2, atol=1e-6)
    assert not tracks.heading[parked].any()
    assert np.abs(tracks.velocity[parked, 9:]).max() < 0.1


def inputs(tracks: Tracks) -> Tracks:
    """Return the observed steps of the tracks that have any."""
    rows = tracks.valid[:, :20].any(axis=1)
    past = {}
    for field in fields(tracks):
        values = getattr(tracks, field.name)[rows]
        past[field.name] = values[:, :20] if values.ndim > 1 else values
    return Tracks(**past)


def with_other_future(rows: list[Row], change: str) -> list[Row]:
    stamps = sorted({row[0] for row in rows}, key=float)
    noise = np.random.default_rng(1)
    changed = []
    for row in rows:
        k = stamps.index(row[0])
        if k < 20:
            changed.append(row)
        elif change == "timestamps":
            late = float(row[0]) + 0.2 * (k - 19)
            changed.append([repr(late), *row[1:]])
        elif change == "positions" or (change == "focal only" and row[1] == "focal"):
            x, y = np.array(row[3:5], float) + noise.normal(0, 300, 2)
            changed.append([*row[:3], x, y, row[5]])
    return changed


def test_the_future_changes_no_input(tmp_path: Path) -> None:
    rows = made_rows()
    path = write(tmp_path, made_rows())
    before = read_scenario(path)
    for change in ("positions", "timestamps", "focal only", "none"):
        write_csv(path, with_other_future(rows, change))
        after = read_scenario(path)
        assert len(before.map) > 0
        assert before.step_s == after.step_s
        assert_same(before.map, after.map)
        assert_same(inputs(before.tracks), inputs(after.tracks))
        a = features_of(before)
        b = features_of(after)
        assert_same(a.agents, b.agents, skip=("target", "target_mask", "track"))
        assert_same(a.lanes, b.lanes)
        same_target = a.agents.target.tobytes() == b.agents.target.tobytes()
        assert same_target == (change == "timestamps")


def test_sequences_without_a_future_are_read_as_the_test_split(tmp_path: Path) -> None:
    path = write(tmp_path, made_rows(20), split="test_obs")
    scenario = read_scenario(path)
    assert (scenario.num_observed, scenario.num_steps, scenario.has_future) == (20, 50, False)
    maps = (map_of(tmp_path),)
    assert discover(tmp_path)["test"] == [RawScenario.of(path, maps)]
    whole = read_scenario(write(tmp_path, made_rows()))
    assert_same(inputs(scenario.tracks), inputs(whole.tracks))


def test_row_order_quotes_and_the_av_label_do_not_matter(tmp_path: Path) -> None:
    plain = read_scenario(write(tmp_path, made_rows()))
    quoted = made_rows()
    np.random.default_rng(0).shuffle(quoted)
    for row in quoted:
        row[1] = f'"{row[1]}"'
    assert_same(read_scenario(write(tmp_path, quoted)), plain)
    rows = made_rows()
    for row in rows:
        if row[1] == "000":
            row[2] = "OTHERS"
    unlabelled = read_scenario(write(tmp_path, rows)).tracks
    assert unlabelled.track_id[0] == "000"
    assert_same(plain.tracks, unlabelled, skip=("track_id", "object_type"))


def test_maps_are_cached_until_they_change(tmp_path: Path) -> None:
    write(tmp_path, made_rows())
    first = city_map(tmp_path / "map_files", "MIA")
    assert city_map(tmp_path / "map_files", "MIA") is first
    assert len(first.near(np.array([1e6, 0]), np.array([1e6, 1]), 100)) == 0
    path = map_of(tmp_path)
    path.write_text(made_map().replace('"700"', '"170"'))
    os.utime(path, ns=(0, 0))
    assert city_map(tmp_path / "map_files", "MIA").low[2, 0] == 170


def test_discover_sorts_by_number_and_prefers_folders_to_packs(tmp_path: Path) -> None:
    for name in ("val/data/10.csv", "val/data/9.csv", "val/data/list.txt", "train/data/3.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "map_files").mkdir()
    maps = tuple(tmp_path / "map_files" / name for name in sorted(MAPS.values()))
    for path in (*maps, tmp_path / "map_files" / "notes.txt"):
        path.touch()
    (tmp_path / "val.parquet").touch()
    splits = SOURCES["argoverse1"].scenarios(tmp_path)
    train = tmp_path / "train" / "data"
    val = tmp_path / "val" / "data"
    assert splits == {
        "train": [RawScenario.of(train / "3.csv", maps)],
        "val": [RawScenario.of(val / "9.csv", maps), RawScenario.of(val / "10.csv", maps)],
    }


def with_cell(column: str, value: str) -> list[Row]:
    """Replace one cell of the focal track."""
    rows = made_rows()
    next(row for row in rows[8:] if row[1] == "focal")[HEADER.index(column)] = value
    return rows


def with_all(column: str, value: str, track: str | None = None) -> list[Row]:
    """Replace a column of all rows, or of those of a track."""
    rows = made_rows()
    for row in rows:
        if track in (None, row[1]):
            row[HEADER.index(column)] = value
    return rows


LINES = [HEADER, *made_rows()]


@pytest.mark.parametrize(
    ("rows", "field", "message"),
    [
        (text_of([line[:-1] for line in LINES]), "CITY_NAME", "missing"),
        (text_of([[*line, line[3]] for line in LINES]), "X", "duplicated"),
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
        (made_rows()[1:], "TIMESTAMP", "AGENT is not"),
        (made_rows(49), "TIMESTAMP", "has 49"),
        ([], "TIMESTAMP", "no rows"),
        (b"\xff\xfe\x00", None, None),
    ],
)
def test_bad_sequences_are_named(tmp_path: Path, rows: Any, field: str | None, message: str | None) -> None:
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
    (made_map(), "<ArgoverseVectorMap/>", "way"),
    (made_map(), "", None),
    (made_map(), '<?xml version="1.0" encoding="x"?><a/>', None),
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
    for old, new, field in INVALID_MAPS:
        assert old in made_map()
        write(tmp_path, made_rows(), made_map().replace(old, new))
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


def test_the_shipped_splits() -> None:
    found = discover(SHIPPED)
    numbers = {split: len(sequences) for split, sequences in found.items()}
    assert numbers == {"train": 7377, "val": 4007, "test": 0}
    scenario = read(found["train"][-1])
    assert scenario.has_future
    assert len(scenario.map) > 0
