"""Synthetic scenarios: av2 reads the files as we do, roads join up, traffic is physical, seeds hold."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from av2.datasets.motion_forecasting.scenario_serialization import load_argoverse_scenario_parquet
from av2.map.map_api import ArgoverseStaticMap
from matplotlib.path import Path as Outline
from numpy.typing import NDArray

from tests.conftest import SAMPLE
from trajpred.errors import DataError
from trajpred.lane_map import LaneMap
from trajpred.scenario import OBJECT_TYPES, Scenario, TrackCategory, equal
from trajpred.sources.argoverse2 import discover, read_scenario
from trajpred.sources.synthetic import make_block, synthesize
from trajpred.sources.synthetic.layouts import KINDS, build_roads
from trajpred.sources.synthetic.routes import plan_routes
from trajpred.sources.synthetic.scenes import block_of, index_of
from trajpred.sources.synthetic.traffic import STANDSTILL, Fleet, drive

each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def blocks() -> dict[str, list[Scenario]]:
    """One block of each kind of roads."""
    return {kind: make_block(5, block) for block, kind in enumerate(KINDS)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "with spaces"
    counts = synthesize(out, 20, 3, workers=1, progress=False)
    assert counts == {"train": 16, "val": 2, "test": 2}
    return out


def digest(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# ---------------------------------------------------------------------------------------------- files


def test_columns_and_types_are_those_of_real_files(folder: Path) -> None:
    made = [pq.read_schema(path) for path in folder.glob("*/*/scenario_*.parquet")]
    # Native scenarios; the sample's windows from sensor logs have two columns more.
    real = next(SAMPLE.glob("test/*/scenario_*.parquet"))
    assert len(made) == 20 and all(schema.equals(pq.read_schema(real)) for schema in made)


def test_map_records_have_the_keys_of_real_files(folder: Path) -> None:
    def keys(path: Path) -> dict[str, set[str]]:
        archive = json.loads(path.read_text())
        return {group: set().union(*map(set, records.values())) for group, records in archive.items()}

    real = keys(next(SAMPLE.glob("test/*/log_map_archive_*.json")))
    for path in folder.glob("*/*/log_map_archive_*.json"):
        made = keys(path)
        assert made.keys() == real.keys()
        assert all(not made[group] or made[group] == real[group] for group in real)


def test_av2_reads_what_our_reader_reads(folder: Path) -> None:
    for paths in discover(folder).values():
        for path in paths:
            scenario = read_scenario(path)
            expected = load_argoverse_scenario_parquet(next(path.glob("*.parquet")))
            lanes = ArgoverseStaticMap.from_json(next(path.glob("*.json"))).vector_lane_segments
            assert scenario.city == expected.city_name == "synthetic"
            assert (scenario.scenario_id, scenario.focal_id) == (path.name, expected.focal_track_id)
            np.testing.assert_array_equal(scenario.timestamps_ns, expected.timestamps_ns.astype(np.int64))
            for track in expected.tracks:
                row = scenario.tracks.index(track.track_id)
                steps = [state.timestep for state in track.object_states]
                assert np.flatnonzero(scenario.tracks.valid[row]).tolist() == steps
                given = np.array([state.position for state in track.object_states])
                np.testing.assert_array_equal(scenario.tracks.position[row, steps], given)
            assert set(scenario.map.lane_id.tolist()) == set(lanes)
            for row, lane_id in enumerate(scenario.map.lane_id.tolist()):
                assert scenario.map.successors[row].tolist() == lanes[lane_id].successors
                np.testing.assert_array_equal(
                    scenario.map.left_boundary[row], lanes[lane_id].left_lane_boundary.xyz
                )


def test_reading_gives_back_what_was_made(folder: Path) -> None:
    made = {one.scenario_id: one for block in range(6) for one in make_block(3, block)}
    for path in discover(folder)["train"]:
        read, original = read_scenario(path), made[path.name]
        # The reader sorts tracks by name.
        assert sorted(original.tracks.track_id) == read.tracks.track_id.tolist()
        order = np.argsort(original.tracks.track_id)
        np.testing.assert_array_equal(read.tracks.position, original.tracks.position[order])
        np.testing.assert_array_equal(read.tracks.category, original.tracks.category[order])
        np.testing.assert_array_equal(read.timestamps_ns, original.timestamps_ns)
        assert equal_maps(read.map, original.map)


def equal_maps(a: LaneMap, b: LaneMap) -> bool:
    one = make_block(0, 0)[0]
    parts = (one.scenario_id, one.city, one.timestamps_ns, one.num_observed, one.focal_id, one.tracks)
    return equal(Scenario(*parts, a), Scenario(*parts, b))


def test_only_the_test_split_lacks_the_future(folder: Path) -> None:
    for split, paths in discover(folder).items():
        for path in paths:
            scenario = read_scenario(path)
            assert (scenario.num_observed, scenario.num_steps) == (50, 110)
            assert scenario.has_future == (split != "test")
            assert scenario.tracks.valid[:, 50:].any() == (split != "test")


def test_the_folder_says_that_it_is_synthetic(folder: Path) -> None:
    assert "synthetic" in (folder / "README.md").read_text().lower()
    label = json.loads((folder / "synthetic.json").read_text())
    assert label["seed"] == 3 and "Synthetic" in label["notice"]


def test_same_seed_same_bytes_whatever_the_workers(folder: Path, tmp_path: Path) -> None:
    synthesize(tmp_path / "two", 20, 3, workers=2, progress=False)
    assert digest(tmp_path / "two") == digest(folder)
    synthesize(tmp_path / "other", 20, 4, workers=1, progress=False)
    ours, theirs = ({p.name for ps in discover(f).values() for p in ps} for f in (folder, tmp_path / "other"))
    assert not ours & theirs


def test_a_scenario_does_not_depend_on_how_many_are_made(folder: Path, tmp_path: Path) -> None:
    synthesize(tmp_path / "few", 7, 3, val=0.0, test=0.0, workers=1, progress=False)
    few, many = digest(tmp_path / "few" / "train"), digest(folder / "train")
    assert len(few) == 14 and few.items() <= many.items()


def test_indices_fill_blocks_without_gaps() -> None:
    places = [block_of(index) for index in range(96 * 3)]
    assert len(set(places)) == len(places) and max(block for block, _ in places) == 17
    assert [index_of(*place) for place in places] == list(range(96 * 3))


def test_lengths_are_arguments(tmp_path: Path) -> None:
    synthesize(tmp_path / "short", 2, steps=30, observed=20, val=0.5, test=0.0, workers=1, progress=False)
    found = [read_scenario(path) for paths in discover(tmp_path / "short").values() for path in paths]
    assert [(one.num_observed, one.num_steps) for one in found] == [(20, 30)] * 2


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("scenarios", {"scenarios": 0}),
        ("seed", {"seed": -1}),
        ("val", {"val": 0.7, "test": 0.7}),
        ("val", {"val": float("nan")}),
        ("observed", {"observed": 110}),
    ],
)
def test_bad_arguments(tmp_path: Path, field: str, arguments: dict[str, float]) -> None:
    with pytest.raises(DataError) as caught:
        synthesize(tmp_path / "out", **{"scenarios": 1, **arguments})  # type: ignore[arg-type]
    assert caught.value.field == field and not (tmp_path / "out").exists()


def test_nothing_is_overwritten(folder: Path) -> None:
    before = digest(folder)
    with pytest.raises(DataError, match="not empty") as caught:
        synthesize(folder, 1)
    assert caught.value.file == folder and digest(folder) == before


# ---------------------------------------------------------------------------------------------- roads


@each_kind
def test_roads_join_up(blocks: dict[str, list[Scenario]], kind: str) -> None:
    lanes = blocks[kind][0].map
    row = {lane: i for i, lane in enumerate(lanes.lane_id.tolist())}
    for i, lane in enumerate(lanes.lane_id.tolist()):
        for following in lanes.successors[i].tolist():
            j = row[following]
            assert lane in lanes.predecessors[j]
            np.testing.assert_allclose(lanes.centerline[i][-1], lanes.centerline[j][0], atol=0.02)
            ends = [np.arctan2(*np.diff(lanes.centerline[k][s, :2], axis=0)[0, ::-1]) for k, s in
                    ((i, slice(-2, None)), (j, slice(0, 2)))]  # fmt: skip
            assert abs(np.angle(np.exp(1j * (ends[1] - ends[0])))) < 0.25
        for neighbor, back in (("left_neighbor", "right_neighbor"), ("right_neighbor", "left_neighbor")):
            other = int(getattr(lanes, neighbor)[i])
            assert other == -1 or getattr(lanes, back)[row[other]] == lane
        middle = (lanes.left_boundary[i] + lanes.right_boundary[i]) / 2
        np.testing.assert_allclose(middle, lanes.centerline[i], atol=0.1)
        # Left is left: boundary and direction of travel turn the positive way.
        ahead = lanes.centerline[i][1, :2] - lanes.centerline[i][0, :2]
        left = lanes.left_boundary[i][0, :2] - lanes.centerline[i][0, :2]
        assert ahead[0] * left[1] - ahead[1] * left[0] > 0


@each_kind
def test_lanes_lie_on_drivable_ground(blocks: dict[str, list[Scenario]], kind: str) -> None:
    lanes = blocks[kind][0].map
    outlines = [Outline(area[:, :2]) for area in lanes.drivable_area]
    for line in lanes.centerline:
        points = line[1:-1, :2]
        inside = [outline.contains_points(points, radius=r) for outline in outlines for r in (-0.1, 0.1)]
        assert np.any(inside, axis=0).all(), line


def test_kinds_are_what_they_are_called(blocks: dict[str, list[Scenario]]) -> None:
    def ways(kind: str) -> tuple[int, int]:
        """Directions in which roads leave, directions from which they come (lanes side by side are one)."""
        lanes = blocks[kind][0].map
        edges = (lanes.successors.lengths == 0, lanes.predecessors.lengths == 0)
        return tuple(int((edge & (lanes.right_neighbor == -1)).sum()) for edge in edges)  # type: ignore[return-value]

    assert [ways(kind) for kind in ("four_way", "tee", "curve", "straight", "merge")] == [
        (4, 4), (3, 3), (2, 2), (2, 2), (2, 3)]  # fmt: skip
    assert ways("roundabout") in ((3, 3), (4, 4))
    for kind, scenarios in blocks.items():
        assert scenarios[0].map.is_intersection.any() == (kind not in ("straight", "curve"))


# --------------------------------------------------------------------------------------------- traffic


def fleet_of(route: list[int], start: list[float], speed: list[float], eager: list[float]) -> Fleet:
    """Cars of one scenario."""
    one = np.array([eager])
    return Fleet(np.array([route]), np.array([start]), np.array([speed]), one, one * 0 + 50, one * 0 + 4.6)


def follow(
    start: list[float], speed: list[float], eager: list[float], steps: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lengths and speeds ``[steps, 2]`` of two cars on one road."""
    routes = plan_routes(build_roads("straight", np.random.default_rng(0)))
    nobody = np.zeros((steps, 1, routes.crossing.shape[1]), np.bool_)
    s, v = drive(routes, fleet_of([0, 0], start, speed, eager), nobody, steps, 0.1)
    return s[:, 0], v[:, 0]


def test_a_free_driver_reaches_the_wished_speed_and_no_more() -> None:
    s, v = follow([0, -2000], [0, 0], [0.8, 0.8], 600)
    assert v[-1, 0] == pytest.approx(v[:, 0].max()) and (np.diff(v[:, 0]) >= -1e-9).all()
    np.testing.assert_allclose(np.diff(s[:, 0]), (v[1:, 0] + v[:-1, 0]) / 2 * 0.1)


def test_a_follower_settles_at_the_equilibrium_gap_of_the_model() -> None:
    # Treiber et al., eq. 4: s(v) = (s0 + v·T) / √(1 - (v/v0)⁴).
    s, v = follow([100, 40], [6, 12], [0.5, 1.0], 3000)
    leader, own = v[-1]
    assert own == pytest.approx(leader, abs=1e-3)
    alone = follow([0, -9000], [10, 0], [1.0, 1.0], 3000)[1][-1, 0]
    wished = (STANDSTILL + own * 1.3) / np.sqrt(1 - (own / alone) ** 4)
    assert s[-1, 0] - s[-1, 1] - 4.6 == pytest.approx(wished, rel=0.01)


def test_nobody_runs_into_a_standing_vehicle() -> None:
    s, v = follow([120, 10], [0, 14], [1e-9, 1.0], 400)
    gap = s[:, 0] - s[:, 1] - 4.6
    # The leader, who wants nothing, still trembles between two decisions.
    assert gap.min() > 0.5 and v[-1, 1] < 0.3 and gap[-1] < 4


@pytest.mark.parametrize("kind", ["four_way", "tee", "roundabout", "merge"])
def test_paths_that_cross_are_driven_one_after_the_other(kind: str) -> None:
    routes = plan_routes(build_roads(kind, np.random.default_rng(1)))
    R, N = routes.limit.shape
    at = np.arange(N) * 0.5
    yields = [np.flatnonzero(routes.yields[routes.lane[r]] & (at < routes.length[r])) for r in range(R)]
    pairs = [(i, j) for i in range(R) for j in range(R) if i != j and len(yields[i])
             and routes.lane[i, 0] != routes.lane[j, 0]]  # fmt: skip
    met = 0
    for i, j in pairs:
        gap = np.linalg.norm(routes.position[i, :, None] - routes.position[j], axis=-1)
        gap[at > routes.length[i]], gap[:, at > routes.length[j]] = np.inf, np.inf
        if gap.min() > 0.5:
            continue
        first = int((gap.min(1) <= 0.5).argmax())
        second = int(gap[first].argmin())
        # Both would be at the same spot after the same time.
        start = [at[first] - 80.0, at[second] - 80.0]
        nobody = np.zeros((200, 1, routes.crossing.shape[1]), np.bool_)
        s = drive(routes, fleet_of([i, j], start, [8.0, 8.0], [0.8, 0.8]), nobody, 200, 0.1)[0][:, 0]
        here = [np.stack([np.interp(s[:, k], at, routes.position[r, :, d]) for d in range(2)], -1)
                for k, r in enumerate((i, j))]  # fmt: skip
        inside = (s < routes.length[[i, j]] - 1).all(1)
        apart = np.linalg.norm(here[0] - here[1], axis=-1)[inside]
        assert apart.min() > 2.2, (i, j)
        met += 1
    assert met > 0


def test_a_car_stops_for_people_on_a_crossing_and_goes_on_after_them() -> None:
    routes = plan_routes(build_roads("straight", np.random.default_rng(1)))
    crossing = routes.crossing[0, 0]
    assert np.isfinite(crossing)
    occupied = np.zeros((300, 1, 1), np.bool_)
    occupied[:150] = True
    fleet = fleet_of([0, 0], [crossing - 70, -9000], [10, 0], [1, 1])
    s, v = (one[:, 0, 0] for one in drive(routes, fleet, occupied, 300, 0.1))
    assert s[149] + 2.3 < crossing - 1.5 and s[149] > crossing - 12 and v[149] < 0.3
    assert s[-1] > crossing + 20


@each_kind
def test_motion_is_physical(blocks: dict[str, list[Scenario]], kind: str) -> None:
    for scenario in blocks[kind]:
        tracks = scenario.tracks
        pair = tracks.valid[:, 1:] & tracks.valid[:, :-1]
        step = np.linalg.norm(np.diff(tracks.position, axis=1), axis=-1)
        speed = np.linalg.norm(tracks.velocity, axis=-1)
        assert step[pair].max() < 3.0 and speed.max() < 27  # nobody jumps, nobody races
        predicted = (tracks.velocity[:, 1:] + tracks.velocity[:, :-1]) / 2 * 0.1
        error = np.linalg.norm(np.diff(tracks.position, axis=1) - predicted, axis=-1)[pair]
        assert np.percentile(error, 99) < 0.25
        quick = (speed > 3) & tracks.valid
        course = np.arctan2(tracks.velocity[..., 1], tracks.velocity[..., 0])
        assert np.abs(np.angle(np.exp(1j * (course - tracks.heading))))[quick].max() < 0.2


@each_kind
def test_vehicles_keep_to_lanes_and_direction(blocks: dict[str, list[Scenario]], kind: str) -> None:
    lanes = blocks[kind][0].map
    points = np.concatenate([line[:, :2] for line in lanes.centerline])
    heading = np.concatenate(
        [np.arctan2(*np.gradient(line[:, :2], axis=0).T[::-1]) for line in lanes.centerline]
    )
    for scenario in blocks[kind]:
        tracks = scenario.tracks
        speed = np.linalg.norm(tracks.velocity, axis=-1)
        rows = np.isin(tracks.object_type, [OBJECT_TYPES.index(name) for name in ("vehicle", "bus")])
        moving = tracks.valid & rows[:, None] & (speed > 2)
        at, angle = tracks.position[moving], tracks.heading[moving]
        near = np.linalg.norm(at[:, None] - points, axis=-1) < 2.2
        along = np.cos(angle[:, None] - heading) > 0.85
        # Between the points of a lane, 2.5 m apart, and beyond the map's edge (ego and focal only).
        assert (near & along).any(1).mean() > 0.95


@each_kind
def test_nobody_overlaps(blocks: dict[str, list[Scenario]], kind: str) -> None:
    for scenario in blocks[kind]:
        tracks = scenario.tracks
        car = np.isin(tracks.object_type, [OBJECT_TYPES.index(name) for name in ("vehicle", "bus")])
        for t in range(0, scenario.num_steps, 10):
            at = tracks.position[car & tracks.valid[:, t], t]
            apart = np.linalg.norm(at[:, None] - at, axis=-1) + 99 * np.eye(len(at))
            assert apart.min() > 1.7


def test_people_wait_for_each_other(blocks: dict[str, list[Scenario]]) -> None:
    """At junctions some vehicles stop, and all kinds of road users and categories occur."""
    everything = [scenario for scenarios in blocks.values() for scenario in scenarios]
    types = {OBJECT_TYPES[code] for one in everything for code in one.tracks.object_type}
    assert types == {"vehicle", "bus", "motorcyclist", "cyclist", "pedestrian"}
    assert {code for one in everything for code in one.tracks.category.tolist()} == set(TrackCategory)
    stopping = 0
    for one in blocks["four_way"]:
        speed = np.linalg.norm(one.tracks.velocity, axis=-1)
        seen = one.tracks.valid
        stopping += int(((speed < 0.5) & seen).any(1) @ ((speed > 3) & seen).any(1))
    assert stopping >= 5


@each_kind
def test_ego_and_focal_are_whole_and_tracks_are_gappy(blocks: dict[str, list[Scenario]], kind: str) -> None:
    gaps = late = 0
    for one in blocks[kind]:
        tracks = one.tracks
        assert tracks.valid[one.focal].all() and tracks.valid[tracks.index("AV")].all()
        assert one.focal_id != "AV"
        assert (tracks.category == TrackCategory.FOCAL).sum() == 1
        assert tracks.valid[tracks.category == TrackCategory.SCORED].all()
        late += int((~tracks.valid[:, 0]).sum())
        gaps += int(((np.diff(tracks.valid.astype(int), axis=1) == 1).sum(1) + tracks.valid[:, 0] > 1).sum())
    assert gaps > 5 and late > 5
