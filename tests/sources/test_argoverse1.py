"""The Argoverse 1 reader: equal to plain parsers, blind to the future, and exact about invalid files."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable
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
from tests.features.scenes import assert_same, features_of
from tests.sources.argoverse1_files import HEADER, MAPS, SHIPPED, Row, made_map, made_rows, write, write_csv
from trajpred.evaluation import evaluate
from trajpred.lane_map import NO_LANE, TRAFFIC_CONTROL, TURN_DIRECTIONS, LaneMap
from trajpred.predictors import load_predictor
from trajpred.scenario import EGO_ID, OBJECT_TYPES, Scenario, TrackCategory, Tracks
from trajpred.sources import SOURCES, RawScenario
from trajpred.sources.argoverse1 import LANE_RADIUS_M, discover, read, read_packed, read_scenario
from trajpred.sources.argoverse1_map import city_map, read_city_map
from trajpred.store import ScenarioStore, prepare

# -------------------------------------------------------------------------------------------- parity


def check_tracks(scenario: Scenario, path: Path) -> None:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    ids = [EGO_ID if row["OBJECT_TYPE"] == "AV" else row["TRACK_ID"] for row in rows]
    stamps = sorted({float(row["TIMESTAMP"]) for row in rows})
    expected = np.full((len(scenario.tracks), 50, 2), np.nan)
    for name, row in zip(ids, rows, strict=True):
        step = stamps.index(float(row["TIMESTAMP"]))
        expected[scenario.tracks.index(name), step] = float(row["X"]), float(row["Y"])
    assert set(scenario.tracks.track_id.tolist()) == set(ids)
    assert {scenario.focal_id} == {row["TRACK_ID"] for row in rows if row["OBJECT_TYPE"] == "AGENT"}
    assert {scenario.city} == {row["CITY_NAME"] for row in rows}
    assert scenario.scenario_id == path.stem
    np.testing.assert_array_equal(scenario.tracks.valid, ~np.isnan(expected[..., 0]))
    np.testing.assert_array_equal(scenario.tracks.position, np.nan_to_num(expected))


def with_pack(raw: Path) -> Path:
    """Return a raw folder with the shipped pack and a small map for both cities."""
    (raw / "map_files").mkdir(parents=True)
    for name in MAPS.values():
        (raw / "map_files" / name).write_text(made_map())
    (raw / "val.parquet").write_bytes((SHIPPED / "val.parquet").read_bytes())
    return raw


def test_positions_of_csv_files_and_packs_equal_plain_csv(tmp_path: Path) -> None:
    path = write(tmp_path, made_rows())
    check_tracks(read_scenario(path), path)
    raw = with_pack(tmp_path / "packed")
    packed = discover(raw)["val"]
    assert len(packed) == 4007
    (raw / "train" / "data").mkdir(parents=True)
    table = pq.read_table(SHIPPED / "val.parquet")
    for one in packed[::1000]:
        rows = table.filter(pc.equal(table["seq_id"], int(one.name))).to_pylist()
        for row in rows:
            row["TRACK_ID"] = f"00000000-0000-0000-0000-{row['TRACK_ID']:012}"
            row["X"], row["Y"] = row["x_dmm"] / 1e4, row["y_dmm"] / 1e4
        lines = [[row[name] for name in HEADER] for row in rows]
        plain = raw / "train" / "data" / f"{one.name}.csv"
        write_csv(plain, lines)
        check_tracks(read(one), plain)
        assert equal(read(one), read(RawScenario.of(plain)))


def plain_lanes(path: Path) -> tuple[dict[int, Any], dict[int, list[list[float]]]]:
    """Return the tags (key -> values) and the points of each lane, parsed element by element."""
    with gzip.open(path) as file:
        root = ElementTree.parse(file).getroot()
    node = {one.attrib["id"]: [float(one.attrib["x"]), float(one.attrib["y"])] for one in root.iter("node")}
    tags: dict[int, Any] = {}
    points: dict[int, list[list[float]]] = {}
    for way in root.iter("way"):
        lane_id = int(way.attrib["lane_id"])
        tags[lane_id] = {}
        for tag in way.iter("tag"):
            tags[lane_id].setdefault(tag.attrib["k"], []).append(tag.attrib["v"])
        points[lane_id] = [node[nd.attrib["ref"]] for nd in way.iter("nd")]
    return tags, points


def check_lanes(lanes: LaneMap, tags: dict[int, Any], points: dict[int, list[list[float]]]) -> None:
    for row, lane_id in enumerate(lanes.lane_id.tolist()):
        tag = tags[lane_id]
        names = [tag[key][0] for key in ("l_neighbor_id", "r_neighbor_id")]
        neighbors = [NO_LANE if name == "None" else int(name) for name in names]
        np.testing.assert_array_equal(lanes.centerline[row], points[lane_id])
        assert [str(lanes.is_intersection[row])] == tag["is_intersection"]
        assert [lanes.left_neighbor[row], lanes.right_neighbor[row]] == neighbors
        assert lanes.successors[row].tolist() == [int(value) for value in tag.get("successor", [])]
        assert lanes.predecessors[row].tolist() == [int(value) for value in tag.get("predecessor", [])]
        assert not len(lanes.left_boundary[row])
        assert [TURN_DIRECTIONS[lanes.turn_direction[row]]] == tag["turn_direction"]
        control = {"NO": "False", "YES": "True"}[TRAFFIC_CONTROL[lanes.has_traffic_control[row]]]
        assert [control] == tag["has_traffic_control"]


@pytest.mark.parametrize("city", [None, *(pytest.param(x, marks=pytest.mark.slow) for x in MAPS)])
def test_city_maps_and_the_lanes_near_a_scenario_equal_element_tree(tmp_path: Path, city: str | None) -> None:
    """On a small map, and on the shipped ones."""
    path = SHIPPED / "map_files" / f"{MAPS[city]}.gz" if city else tmp_path / "map.xml.gz"
    if not city:
        path.write_bytes(gzip.compress(made_map().encode()))
    tags, points = plain_lanes(path)
    whole = read_city_map(path)
    assert sorted(whole.lanes.lane_id.tolist()) == sorted(tags)
    check_lanes(whole.lanes, tags, points)
    row = len(whole.lanes) // 2
    low, high = whole.low[row] - 5, whole.low[row] + 20
    near = set()
    for lane_id, line in points.items():
        gap = np.maximum(np.min(line, axis=0) - high, low - np.max(line, axis=0))
        if np.hypot(*np.maximum(gap, 0)) <= LANE_RADIUS_M:
            near.add(lane_id)
    found = whole.near(low, high, LANE_RADIUS_M)
    assert set(found.lane_id.tolist()) == near
    assert 10 < len(near) < len(points) / 10 if city else 1 < len(near) < len(points)
    check_lanes(found, tags, points)


@pytest.mark.slow
def test_evaluation_of_the_shipped_scenes_gives_the_metrics_of_their_readme(tmp_path: Path) -> None:
    summary = prepare("argoverse1", SHIPPED, tmp_path / "store", workers=1, progress=False)
    assert (summary.scenarios, summary.skipped) == ({"val": 4007}, {"val": {}})
    rows = ScenarioStore(tmp_path / "store", "val")
    focal = evaluate(load_predictor("constant_velocity"), rows, progress=False).metrics["focal"]
    figures = "a focal minADE1 of {} m, minFDE1 of {} m and MR1 of {}".format(
        *(round(focal[name], 2) for name in ("minADE1", "minFDE1", "MR1"))
    )
    assert figures in " ".join((SHIPPED / "README.md").read_text().split())
    for index, one in list(enumerate(discover(SHIPPED)["val"]))[::300]:
        assert equal(rows[index], read(one), tolerance=6e-4)


# ------------------------------------------------------------------------------------------- meaning


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
    ego, focal, parked = (tracks.index(name) for name in (EGO_ID, "focal", "parked"))
    np.testing.assert_allclose(tracks.velocity[focal, 1:], [[10, 0]] * 49, atol=1e-6)
    np.testing.assert_allclose(tracks.velocity[ego, 1:], [[0, 5]] * 49, atol=1e-6)
    np.testing.assert_allclose(tracks.heading[ego, 1:], np.pi / 2, atol=1e-6)
    assert not tracks.heading[parked].any() and np.abs(tracks.velocity[parked, 9:]).max() < 0.1


def inputs(tracks: Tracks) -> Tracks:
    """Return the observed steps of the tracks that have any."""
    rows = tracks.valid[:, :20].any(axis=1)
    cut = {one.name: getattr(tracks, one.name)[rows] for one in fields(tracks)}
    return Tracks(**{name: values[:, :20] if values.ndim > 1 else values for name, values in cut.items()})


def with_other_future(rows: list[Row], change: str) -> list[Row]:
    stamps, noise = sorted({row[0] for row in rows}, key=float), np.random.default_rng(1)
    changed = []
    for row in rows:
        k = stamps.index(row[0])
        if k < 20:
            changed.append(row)
        elif change == "timestamps":
            changed.append([repr(float(row[0]) + 0.2 * (k - 19)), *row[1:]])
        elif change != "none" and not (change == "focal only" and row[1] != "focal"):
            x, y = np.array(row[3:5], float) + noise.normal(0, 300, 2)
            changed.append([*row[:3], x, y, row[5]])
    return changed


def test_the_future_changes_no_input(tmp_path: Path) -> None:
    rows, path = made_rows(), write(tmp_path, made_rows())
    before = read_scenario(path)
    for change in ("positions", "timestamps", "focal only", "none"):
        write_csv(path, with_other_future(rows, change))
        after = read_scenario(path)
        assert len(before.map) > 0 and before.step_s == after.step_s
        assert_same(before.map, after.map)
        assert_same(inputs(before.tracks), inputs(after.tracks))
        a, b = features_of(before), features_of(after)
        assert_same(a.agents, b.agents, skip=("target", "target_mask", "track"))
        assert_same(a.lanes, b.lanes)
        assert (a.agents.target.tobytes() == b.agents.target.tobytes()) == (change == "timestamps")


def test_sequences_without_a_future_are_read_as_the_test_split(tmp_path: Path) -> None:
    path = write(tmp_path, made_rows(20), split="test_obs")
    scenario = read_scenario(path)
    assert (scenario.num_observed, scenario.num_steps, scenario.has_future) == (20, 50, False)
    assert discover(tmp_path)["test"] == [RawScenario("7", path)]
    assert_same(inputs(scenario.tracks), inputs(read_scenario(write(tmp_path, made_rows())).tracks))


def test_row_order_quotes_and_the_av_label_do_not_matter(tmp_path: Path) -> None:
    plain = read_scenario(write(tmp_path, made_rows()))
    given = made_rows()
    shuffled = [given[i] for i in np.random.default_rng(0).permutation(len(given))]
    quoted = [[row[0], f'"{row[1]}"', *row[2:]] for row in shuffled]
    assert_same(read_scenario(write(tmp_path, quoted)), plain)
    rows = [[*row[:2], "OTHERS" if row[1] == "000" else row[2], *row[3:]] for row in made_rows()]
    unlabelled = read_scenario(write(tmp_path, rows)).tracks
    assert unlabelled.track_id[0] == "000"
    assert_same(plain.tracks, unlabelled, skip=("track_id", "object_type"))


def test_maps_are_cached_until_they_change(tmp_path: Path) -> None:
    lanes = read_scenario(write(tmp_path, made_rows())).map
    assert lanes.lane_id.tolist() == [11, 12]
    assert [row.tolist() for row in lanes.successors] == [[12], []]
    first = city_map(tmp_path / "map_files", "MIA")
    assert city_map(tmp_path / "map_files", "MIA") is first
    assert len(first.near(np.array([1e6, 0]), np.array([1e6, 1]), 100)) == 0
    path = tmp_path / "map_files" / MAPS["MIA"]
    path.write_text(made_map().replace('"700"', '"170"'))
    os.utime(path, ns=(0, 0))
    assert city_map(tmp_path / "map_files", "MIA").low[2, 0] == 170


def test_discover_sorts_by_number_and_prefers_folders_to_packs(tmp_path: Path) -> None:
    for name in ("val/data/10.csv", "val/data/9.csv", "val/data/list.txt", "train/data/3.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "map_files").mkdir()
    (tmp_path / "val.parquet").touch()
    found = SOURCES["argoverse1"].scenarios(tmp_path)
    assert {split: [one.name for one in each] for split, each in found.items()} == {
        "train": ["3"],
        "val": ["9", "10"],
    }
    assert found["val"][0] == RawScenario("9", tmp_path / "val" / "data" / "9.csv")


# ------------------------------------------------------------------------------------- invalid files


def with_cell(column: str, value: str) -> list[Row]:
    """Replace one cell of the focal track."""
    rows = made_rows()
    next(row for row in rows[8:] if row[1] == "focal")[HEADER.index(column)] = value
    return rows


def with_header(change: Callable[[Row, int], Row], column: str) -> str:
    at = HEADER.index(column)
    return "\n".join(",".join(map(str, change(list(line), at))) for line in (HEADER, *made_rows()))


@pytest.mark.parametrize(
    ("rows", "field", "message"),
    [
        (with_header(lambda line, at: line[:at] + line[at + 1 :], "CITY_NAME"), "CITY_NAME", "missing"),
        (with_header(lambda line, at: [*line, line[at]], "X"), "X", "duplicated"),
        (with_cell("X", "far"), None, "CSV column #3: Row #.*'far'"),
        (with_cell("Y", "1,5"), None, "Expected 6 columns, got 7"),
        (with_cell("X", ""), "X", "missing"),
        (with_cell("Y", "inf"), "Y", "non-finite"),
        (with_cell("TIMESTAMP", "1e300"), "TIMESTAMP", "seconds"),
        (with_cell("TRACK_ID", ""), "TRACK_ID", "empty"),
        (with_cell("OBJECT_TYPE", "CAR"), "OBJECT_TYPE", "unknown value 'CAR'"),
        (with_cell("OBJECT_TYPE", "OTHERS"), "OBJECT_TYPE", "changes within a track"),
        (with_cell("CITY_NAME", "PIT"), "CITY_NAME", "same in all rows"),
        ([[*row[:5], "BOS"] for row in made_rows()], "CITY_NAME", "unknown value 'BOS'"),
        ([[*row[:2], "AGENT", *row[3:]] for row in made_rows()], "OBJECT_TYPE", "one AGENT, names 5"),
        ([r if r[1] != "parked" else [*r[:2], "AV", *r[3:]] for r in made_rows()], "OBJECT_TYPE", "one AV"),
        ([*made_rows(), made_rows()[40]], "TIMESTAMP", "same step"),
        ([r for i, r in enumerate(made_rows()) if r[1] != "focal" or i > 9], "TIMESTAMP", "AGENT is not"),
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
    (tmp_path / "map_files" / MAPS["MIA"]).unlink()
    rejected(lambda: read_scenario(path), f"map_files/{MAPS['MIA']}", None, "missing")
    (tmp_path / "map_files").rmdir()
    rejected(lambda: discover(tmp_path), "map_files", None, "missing")
    path.unlink()
    rejected(lambda: SOURCES["argoverse1"].scenarios(tmp_path), tmp_path.name, None, "train,val,test_obs")


INVALID_MAPS = [
    ('lane_id="12"', 'lane_id="11"', "lane_id"),
    ('lane_id="12"', "", "way.lane_id"),
    ('v="LEFT"', 'v="UP"', "way.turn_direction"),
    ('k="turn_direction" v="LEFT"', 'k="turn" v="LEFT"', "way.turn_direction"),
    ('k="has_traffic_control" v="True"', 'k="has_traffic_control"', "way.has_traffic_control"),
    ('k="l_neighbor_id" v="13"', 'k="l_neighbor_id" v="-7"', "way.l_neighbor_id"),
    ('k="successor" v="12"', 'k="successor" v="None"', "way.successor"),
    ('k="successor" v="12"', 'k="turn_direction" v="LEFT"', "way.turn_direction"),
    *(('<nd ref="7" />', new, "way.nd") for new in ("", '<nd ref="8" />')),
    ('<node id="7"', '<node id="0"', "node.id"),
    *(('x="180"', new, "node.x") for new in ('x="far"', 'x="nan"')),
    ("</ArgoverseVectorMap>", "", None),
]


def test_invalid_maps_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, made_rows())
    contents: list[Any] = [(made_map().replace(old, new), field) for old, new, field in INVALID_MAPS]
    contents += [("<ArgoverseVectorMap/>", "way"), (b"", None)]
    contents += [('<?xml version="1.0" encoding="x"?><a/>', None)]
    for content, field in contents:
        assert content != made_map()
        write(tmp_path, made_rows(), content)
        rejected(lambda: read_city_map(path.parents[2] / "map_files" / MAPS["MIA"]), MAPS["MIA"], field)
    compressed, path = gzip.compress(made_map().encode()), tmp_path / "map.xml.gz"
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
        pq.write_table(table.set_column(at, name, pa.array(["1"] * len(table))), path)
        check(name)
    pq.write_table(table.sort_by([("seq_id", "descending")]), path)
    check("seq_id", "sorted")
    for content in (b"", b"PAR1" * 20):
        path.write_bytes(content)
        check(None)
        rejected(lambda: discover(path.parent), "val.parquet", "seq_id")
