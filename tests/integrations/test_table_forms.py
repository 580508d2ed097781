"""Tables as people have them: each form of a file is read as the plain one, or refused in a sentence."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import rejects
from tests.integrations.map_files import lanelet2
from tests.integrations.recordings import write_ind
from trajpred import Scenario
from trajpred.data.geometry import unit_vector
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import DataError
from trajpred.integrations.table import SOURCE, TableOptions
from trajpred.sources import RawScenario

SECONDS = 12.0
COLUMNS = ("track=id", "time=t:s", "x=X", "y=Y")


def rows(step_s: float = 0.1, times: np.ndarray | None = None) -> np.ndarray:
    """Return id, time, x, y, heading, vx, vy of four cars that drive on circles of 30 m at 8 m/s."""
    time = np.arange(0, SECONDS, step_s) if times is None else times
    cars: list[np.ndarray] = []
    for n in range(4):
        heading = n * np.pi / 2 + 8 * time / 30
        centre = np.array([100.0 * n, 0.0])
        xy = centre + 30 * unit_vector(heading - np.pi / 2)
        velocity = 8 * unit_vector(heading)
        cars.append(np.column_stack((np.full(len(time), n), time, xy, heading, velocity)))
    return np.concatenate(cars)


def text(states: np.ndarray, delimiter: str = ",") -> str:
    lines = [delimiter.join(("id", "t", "X", "Y", "h", "vx", "vy"))]
    for row in states:
        cells = [f"{value:.6f}" for value in row]
        lines.append(delimiter.join(cells))
    return "\n".join(lines) + "\n"


def first(file: Path, options: TableOptions) -> Scenario:
    """Return the first window of a table in a folder ``val``, which is not divided."""
    return SOURCE.scenario(SOURCE.scenarios(file.parent.parent, options)["val"][0], options)


def circles(scenario: Scenario) -> tuple[np.ndarray, np.ndarray]:
    """Return the true positions ``[A, T, 2]`` and headings ``[A, T]``."""
    number = np.array([float(name.replace(",", ".")) for name in scenario.tracks.track_id.tolist()])
    heading = number[:, None] * np.pi / 2 + 8 * scenario.timestamps_ns / 1e9 / 30
    return np.stack((100 * number[:, None] + 30 * np.sin(heading), -30 * np.cos(heading)), -1), heading


def require_circles(file: Path, columns: tuple[str, ...] = COLUMNS, **more: object) -> None:
    scenario = first(file, TableOptions(columns=columns, **more))
    tracks = scenario.tracks
    position, heading = circles(scenario)
    assert len(position) == 4
    np.testing.assert_allclose(tracks.position, position, atol=2e-3)
    assert np.cos(tracks.heading - heading)[:, 12:].min() > 0.98


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "val").mkdir()
    return tmp_path / "val"


def with_comments(table: str) -> bytes:
    head, first_row, *others = table.splitlines()
    return "\n".join(["# made by hand", "", "# rate: 10", head, first_row, "# a pause", *others]).encode()


def german(table: str) -> str:
    return table.replace(",", ";").replace(".", ",")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.csv", lambda table: table.encode("utf-8-sig")),
        ("a.csv", lambda table: table.encode("utf-16")),
        ("a.txt", lambda table: table.replace(",", "  ").encode("utf-16")),
        ("a.csv.gz", lambda table: gzip.compress(table.encode())),
        ("a.csv", with_comments),
        ("a.csv", lambda table: german(table).encode()),
        ("a.csv", lambda table: re.sub(r"([^;\n]+)", r'"\1"', german(table)).encode()),
        ("a.tsv", lambda table: table.replace(",", "\t").replace(".", ",").encode()),
        ("a.txt", lambda table: table.replace(",", " ").replace(".", ",").encode()),
        ("a.csv", lambda table: table.replace("\n", "\r\n").encode()),
    ],
)
def test_a_table_in_any_form_is_the_plain_one(name: str, form: Callable[[str], bytes], folder: Path) -> None:
    (folder / name).write_bytes(form(text(rows())))
    require_circles(folder / name)


@pytest.mark.parametrize("delimiter", [",", ";", " "])
def test_columns_without_names_are_numbered(delimiter: str, folder: Path) -> None:
    table = text(rows(), delimiter).partition("\n")[2]
    if delimiter == ";":
        table = table.replace(".", ",")
    (folder / "a.csv").write_text(table)
    require_circles(folder / "a.csv", ("track=1", "time=2:s", "x=3", "y=4", "heading=5:rad", "vx=6", "vy=7"))


@pytest.mark.parametrize(
    ("form", "zone"),
    [
        ("%Y-%m-%d %H:%M:%S.%f", ""),
        ("%Y-%m-%dT%H:%M:%S.%f", "Z"),
        ("%Y-%m-%d %H:%M:%S.%f", "+02:00"),
        ("%Y/%m/%d %H:%M:%S.%f", "-0330"),
        ("%Y%m%dT%H%M%S.%f", "Z"),
        ('"%Y-%m-%dT%H:%M:%S,%f', '"'),
    ],
)
def test_dates_and_times_are_read_as_iso_8601(form: str, zone: str, folder: Path) -> None:
    """Also over midnight, with a change of digits."""
    states = rows()
    start = np.datetime64("2024-02-28T23:59:55.000000")
    moments = start + (states[:, 1] * 1e6).round().astype("timedelta64[us]")
    lines = ["id,t,X,Y"]
    for row, moment in zip(states, moments, strict=True):
        stamp = moment.astype(datetime).strftime(form)
        lines.append(f"{row[0]:g},{stamp}{zone},{row[2]:.6f},{row[3]:.6f}")
    (folder / "a.csv").write_text("\n".join(lines))
    require_circles(folder / "a.csv", ("track=id", "time=t:iso", "x=X", "y=Y"))
    (folder / "a.csv").write_text("\n".join([*lines[:5], lines[5].replace("2024", "24."), *lines[6:]]))
    with pytest.raises(DataError, match=r"'t': must be times, or dates and times as in .*, has '24\."):
        first(folder / "a.csv", TableOptions(columns=("track=id", "time=t:iso", "x=X", "y=Y")))


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("us"), pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("ns"), pa.time64("us"),
        pa.time32("ms"), pa.duration("ms"), pa.duration("ns"),
    ],
)  # fmt: skip
def test_times_with_a_type_of_their_own_need_no_unit(kind: pa.DataType, folder: Path) -> None:
    states = rows()
    unit = str(getattr(kind, "unit", "ms"))
    whole = (states[:, 1] * {"ms": 1e3, "us": 1e6, "ns": 1e9}[unit]).round().astype(np.int64)
    width = pa.int32() if pa.types.is_time32(kind) else pa.int64()
    time = pa.array(whole, width).cast(kind)
    table = pa.table({"id": states[:, 0], "t": time, "X": states[:, 2], "Y": states[:, 3]})
    pq.write_table(table, folder / "a.parquet")
    for stated in ("s", "ns", "iso"):
        require_circles(folder / "a.parquet", ("track=id", f"time=t:{stated}", "x=X", "y=Y"))


@pytest.mark.parametrize("rate", [240, 500, 1000])
def test_rates_up_to_1_khz_are_read(rate: int, folder: Path) -> None:
    (folder / "a.csv").write_text(text(rows(1 / rate)))
    require_circles(folder / "a.csv")


@pytest.mark.parametrize("lost", [0.1, 0.3, 0.5])
def test_lost_rows_at_jittering_times_do_not_change_the_rate(lost: float, folder: Path) -> None:
    """States between rows are extrapolated by up to 0.1 s, at velocities that lag behind by up to 2 m/s."""
    random = np.random.default_rng(0)
    times = np.arange(0, SECONDS, 0.1) + random.uniform(-0.03, 0.03, 120)
    times[0] = 0.0
    states = rows(times=times)
    is_kept = (random.uniform(size=len(states)) > lost) | (states[:, 1] == 0)
    (folder / "a.csv").write_text(text(states[is_kept]))
    scenario = first(folder / "a.csv", TableOptions(columns=COLUMNS))
    valid = scenario.tracks.valid
    assert scenario.step_s == pytest.approx(0.1)
    assert valid.mean() > (1 - lost) ** 2
    away = np.linalg.norm(scenario.tracks.position - circles(scenario)[0], axis=-1)
    assert away[valid].max() < 0.2


@pytest.mark.parametrize("down", [False, True])
def test_bearings_are_clockwise_from_north(down: bool, folder: Path) -> None:
    states = rows()
    states[:, 4] = np.degrees(np.pi / 2 - states[:, 4]) % 360
    if down:
        states[:, 3] *= -1
    (folder / "a.csv").write_text(text(states))
    require_circles(
        folder / "a.csv", ("track=id", "time=t:s", "x=X", "y=Y:down" if down else "y=Y", "heading=h:bearing")
    )


def changed(column: int, row: int, value: str) -> str:
    lines = text(rows()).splitlines()
    cells = lines[row].split(",")
    cells[column] = value
    lines[row] = ",".join(cells)
    return "\n".join(lines)


TABLE = text(rows())
FIELD = "'columns': .*"


@pytest.mark.parametrize(
    ("table", "columns", "sentence"),
    [
        (changed(0, 7, ""), COLUMNS, r"'id': is missing: row 7 \(track '', time 0.6 s\)"),
        (changed(0, 7, "nan"), COLUMNS, r"'id': is missing: row 7 \(track 'nan', time 0.6 s\)"),
        (changed(1, 9, ""), COLUMNS, "'t': is missing or no number: row 9"),
        (changed(1, 9, "-31e6"), COLUMNS, r"'t': is a day .* row 9 \(track '0.000000', time -31000000 s\)"),
        (changed(1, 9, "1.7e9"), COLUMNS, "'t': is a day or more away from the others, .*: row 9"),
        (TABLE.rstrip().replace("id,", "kind,id,").replace("\n", "\nä,"), (*COLUMNS, "type=kind"),
         "'rows': have text that is not UTF-8"),
        (TABLE.replace("X", "Länge", 1), ("track=id", "time=t:s", "x=Länge", "y=Y"),
         "'rows': have text that is not UTF-8"),
        (TABLE, ("track=id", "time=t", "x=X", "y=Y"), f"{FIELD}time=t lacks its unit; units: s, ms, us, ns"),
        (TABLE, (*COLUMNS, "heading=h"), f"{FIELD}heading=h lacks its unit; units: rad, deg"),
        (TABLE, (*COLUMNS[:3], "y=Y:feet"), f"{FIELD}'feet' is not a unit of y; units: m, km, cm, mm, ft"),
        (TABLE, COLUMNS[:3], f"{FIELD}lacks y; it has track, time, x"),
        (TABLE, ("id", "time=t:s"), f"{FIELD}'id' must be ROLE=COLUMN or ROLE=COLUMN:UNIT"),
        (TABLE, ("speed=v",), f"{FIELD}'speed=v' must be ROLE=COLUMN .* with a role of recording, track"),
        (TABLE, (), f"{FIELD}or --preset must be given"),
        (TABLE, (*COLUMNS, "vx=vx"), "has vx without vy"),
        (TABLE, (*COLUMNS, "x=Y"), "states x twice"),
        (TABLE, ("track=id", "time=t:s:ms", "x=X", "y=Y"), "time=t has several units, such as ms"),
        (TABLE, ("track=id", "time=t:0hz", "x=X", "y=Y"), "'0hz' is not a unit of time"),
        (TABLE, ("track=id", "time=t:1..2hz", "x=X", "y=Y"), "'1..2hz' is not a unit of time"),
        (TABLE, ("track=id", "time=t:s", "x=X:corner", "y=Y"), "x=X:corner needs length=COLUMN"),
        (TABLE, ("track=id", "time=t:{vx}hz", "x=X", "y=Y"), "'vx': must be a rate of frames above 0"),
        (TABLE.replace("id,", "kind,id,").replace("\n0", "\nAuto,0").replace("\n1", "\nRad,1")
         .replace("\n2", "\nRad,2").replace("\n3", "\nRad,3"), (*COLUMNS, "type=kind"),
         "'kind': has only unknown classes, 'Auto', 'Rad'; state their types: type=kind:Auto=TYPE"),
        ("\n<fcd-export>\n  <timestep/>\n", COLUMNS, "'rows': are XML, HTML or JSON: save the file as CSV"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:f3\n", COLUMNS, "pointer of git-lfs"),
    ],
)  # fmt: skip
def test_mistakes_are_named(table: str, columns: tuple[str, ...], sentence: str, folder: Path) -> None:
    (folder / "a.csv").write_bytes(table.encode("latin-1"))
    rejects(sentence, lambda: first(folder / "a.csv", TableOptions(columns=columns)))


@pytest.mark.parametrize(("factor", "unit"), [(1.0, "s"), (1e3, "ms"), (1e9, "ns")])
def test_times_that_float32_has_rounded_are_blamed(factor: float, unit: str, folder: Path) -> None:
    states = rows()
    time = ((1.7e9 + states[:, 1]) * factor).astype(np.float32)
    table = pa.table({"id": states[:, 0], "t": time, "X": states[:, 2], "Y": states[:, 3]})
    pq.write_table(table, folder / "a.parquet")
    with pytest.raises(DataError, match="'t': float32 has rounded the times to multiples of"):
        first(folder / "a.parquet", TableOptions(columns=("track=id", f"time=t:{unit}", "x=X", "y=Y")))


def test_a_pause_of_days_costs_nothing_and_has_no_window(folder: Path) -> None:
    states = rows()
    later = states.copy()
    later[:, 1] += 30 * 86_400
    (folder / "a.csv").write_text(text(np.concatenate((states, later))))
    options = TableOptions(columns=COLUMNS)
    found = SOURCE.scenarios(folder.parent, options)["val"]
    assert len(found) < 20
    for window in found:
        assert SOURCE.scenario(window, options).num_steps == 110


def test_velocities_in_the_frame_of_the_vehicle_are_a_warning(folder: Path) -> None:
    states = rows()
    (folder / "a.csv").write_text(text(states))
    SOURCE.scenarios(folder.parent, TableOptions(columns=(*COLUMNS, "vx=vx", "vy=vy")))
    states[:, 5:] = [8.0, 0.0]
    (folder / "a.csv").write_text(text(states))
    with pytest.warns(UserWarning, match=r"\d\d% of the velocities of moving road users contradict the posi"):
        SOURCE.scenarios(folder.parent, TableOptions(columns=(*COLUMNS, "vx=vx", "vy=vy")))


def test_the_most_frequent_known_class_counts(folder: Path) -> None:
    head, *lines = text(rows()).splitlines()
    kinds = ["pedestrian", *["car"] * 119, *["?"] * 100, *["bicycle"] * 20]
    kinds += ["van"] * 60 + ["car"] * 60 + ["?"] * 120
    table = [f"{head},kind"]
    table += [f"{line},{kind}" for line, kind in zip(lines, kinds, strict=True)]
    (folder / "a.csv").write_text("\n".join(table))
    options = TableOptions(columns=(*COLUMNS, "type=kind"))
    with pytest.warns(UserWarning) as said:
        splits = SOURCE.scenarios(folder.parent, options)
    sentences = " ".join(str(warning.message) for warning in said)
    assert "1 of 4 tracks change their class: the most frequent known one counts" in sentences
    assert "1 tracks are of unknown classes, '?'; state their types: type=kind:?=TYPE" in sentences
    tracks = SOURCE.scenario(splits["val"][0], options).tracks
    kinds = [OBJECT_TYPES[code] for code in tracks.object_type]
    assert kinds == ["vehicle", "cyclist", "vehicle", "unknown"]


def test_a_file_is_read_alone_and_two_exports_are_a_question(folder: Path) -> None:
    states = rows()
    (folder / "a.csv").write_text(text(states + np.array([0, 0, 0, 1.5, 0, 0, 0])))
    table = pa.table({"id": states[:, 0], "t": states[:, 1], "X": states[:, 2], "Y": states[:, 3]})
    pq.write_table(table, folder / "a.parquet")
    options = TableOptions(columns=COLUMNS)
    for file, y in ((folder / "a.csv", 1.5), (folder / "a.parquet", 0.0)):
        [window, *_] = SOURCE.scenarios(file, options)["train"]
        tracks = SOURCE.scenario(window, options).tracks
        assert tracks.position[0][tracks.valid[0]][0, 1] == pytest.approx(y - 30, abs=1e-5)
    rejects(r"a.parquet and a.csv are one recording: name one of them", SOURCE.scenarios, folder, options)


@dataclass(frozen=True)
class PresetFile:
    """A file as a preset's repository writes it: ``row(number, frame, time, x, y, heading, vx, vy)``."""

    name: str
    #: The lines before the rows.
    head: str
    rate: float
    #: Types of cars with even and odd numbers.
    kinds: tuple[str, str]
    row: Callable[..., str]
    sized: bool = False


PRESETS = {
    "sumo": PresetFile(
        "fcd.csv",
        "timestep_time;vehicle_angle;vehicle_id;vehicle_lane;vehicle_pos;vehicle_slope;vehicle_speed;"
        "vehicle_type;vehicle_x;vehicle_y\n0.00;;;;;;;;;\n0.10;;;;;;;;;",
        10,
        ("vehicle", "vehicle"),
        lambda n, k, t, x, y, h, vx, vy: (
            f"{t:.2f};{np.degrees(np.pi / 2 - h) % 360:.2f};{n};-37_0;5.10;0.00;8.00;DEFAULT_VEHTYPE;"
            f"{x:.3f};{y:.3f}"
        ),
    ),
    "sind": PresetFile(
        "Veh_smoothed_tracks.csv",
        "track_id,frame_id,timestamp_ms,agent_type,x,y,vx,vy,yaw_rad,heading_rad,length,width,ax,ay,v_lon,v_lat,a_lon,a_lat",
        1000 / 100.1,
        ("vehicle", "vehicle"),
        lambda n, k, t, x, y, h, vx, vy: (
            f"{n},{k},{1000 * t},car,{x},{y},{vx},{vy},{h},{h},4.5,1.8,0,0,8,0,0,0"
        ),
        sized=True,
    ),
    "pedpy": PresetFile(
        "040.txt",
        "# PeTrack project: 040.pet\n# framerate: 25 fps\n# id frame x/m y/m z/m",
        25,
        ("pedestrian", "pedestrian"),
        lambda n, k, t, x, y, h, vx, vy: f"{n}\t{k}\t{x}\t{y}\t1.76",
    ),
    "eth-ucy": PresetFile(
        "hotel.txt",
        "",
        2.5,
        ("pedestrian", "pedestrian"),
        lambda n, k, t, x, y, h, vx, vy: f" {10 * k:.1f}\t{n}  {x:.6f} {y:.6f} ",
    ),
    "citr": PresetFile(
        "front_01_traj_veh_filtered.csv",
        "id,frame,label,x_est,y_est,psi_est,vel_est",
        29.97,
        ("vehicle", "vehicle"),
        lambda n, k, t, x, y, h, vx, vy: f"{n},{k},veh,{x},{-y},{-h},8.0",
    ),
    "ngsim": PresetFile(
        "drive.csv",
        "Vehicle_ID,Frame_ID,Global_Time,Local_X,Local_Y,v_Length,v_Width,v_Class,Location",
        10,
        ("motorcyclist", "vehicle"),
        lambda n, k, t, x, y, h, vx, vy: (
            f"{n},{k},{1118846980200 + t * 1000:.0f},{x / 0.3048},{y / 0.3048},"
            f"{4.5 / 0.3048},{1.8 / 0.3048},{1 + n % 2},us-101"
        ),
        sized=True,
    ),
    "nuscenes": PresetFile(
        "drive.csv",
        "scene_token,instance_token,timestamp,translation_x,translation_y,width,length,yaw,category_name",
        2,
        ("motorcyclist", "vehicle"),
        lambda n, k, t, x, y, h, vx, vy: (
            f"scene,{n},{1531883530000000 + t * 1e6:.0f},{x},{y},1.8,4.5,{h},"
            f"vehicle.{('motorcycle', 'car')[n % 2]}"
        ),
        sized=True,
    ),
    "waymo": PresetFile(
        "drive.csv",
        "scenario_id,timestamps_seconds,id,object_type,center_x,center_y,length,width,heading,velocity_x,velocity_y",
        10,
        ("cyclist", "vehicle"),
        lambda n, k, t, x, y, h, vx, vy: f"a1b2,{t},{n},{(3, 1)[n % 2]},{x},{y},4.5,1.8,{h},{vx},{vy}",
        sized=True,
    ),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_read_as_their_repositories_write_them(preset: str, folder: Path) -> None:
    """Column names, units and comments are those of the sources that docs/how-to/own-data.md names."""
    file = PRESETS[preset]
    lines = [file.head]
    for n in range(1, 4):
        for k in range(int(13 * file.rate)):
            t = k / file.rate
            h = n + 8 * t / 30
            lines.append(file.row(n, k, t, 30 * np.sin(h), -30 * np.cos(h), h, 8 * np.cos(h), 8 * np.sin(h)))
    (folder / file.name).write_text("\n".join(lines) + "\n")
    step_s = 1 / file.rate if file.rate < 5 else 0.1
    scenario = first(folder / file.name, TableOptions(preset=preset, step_s=step_s))
    tracks = scenario.tracks
    number = np.array([int(name.removeprefix("veh")) for name in tracks.track_id])
    heading = number[:, None] + 8 * scenario.timestamps_ns / 1e9 / 30
    expected = 30 * np.stack((np.sin(heading), -np.cos(heading)), -1)
    np.testing.assert_allclose(tracks.position, expected, atol=0.03)
    moving = np.s_[:, 12:]  # velocities and headings that are not given are causal estimates
    assert np.cos(tracks.heading - heading)[moving].min() > 0.98
    np.testing.assert_allclose(np.hypot(*tracks.velocity[moving].T), 8, rtol=0.05)
    size = [4.5, 1.8] if file.sized else [np.nan, np.nan]
    np.testing.assert_allclose(tracks.size, [size] * 3)
    assert [OBJECT_TYPES[code] for code in tracks.object_type] == [file.kinds[n % 2] for n in number]


def test_tracks_of_both_files_of_citr_stay_apart(folder: Path) -> None:
    walk = [f"1,{k},ped,{k / 30},0,1,0" for k in range(400)]
    drive = [f"1,{k},veh,{k / 10},9,0,3" for k in range(400)]
    for kind, states, rows in (("ped", "vx_est,vy_est", walk), ("veh", "psi_est,vel_est", drive)):
        lines = [f"id,frame,label,x_est,y_est,{states}", *rows]
        (folder / f"x_traj_{kind}_filtered.csv").write_text("\n".join(lines))
    tracks = first(folder / "x", TableOptions(preset="citr")).tracks
    assert tracks.track_id.tolist() == ["ped1", "veh1"]
    assert [OBJECT_TYPES[code] for code in tracks.object_type] == ["pedestrian", "vehicle"]


def test_the_origin_of_a_map_is_that_of_the_recording(tmp_path: Path) -> None:
    """In UTM as pyproj says; the place of the recording alone; neither is a question."""
    from pyproj import Transformer

    (tmp_path / "map.osm").write_bytes(lanelet2())
    file = write_ind(tmp_path / "raw", seconds=30)
    east, north = Transformer.from_crs("EPSG:4326", "EPSG:32632", always_xy=True).transform(9.002, 48.001)
    options = TableOptions(preset="ind", map=tmp_path / "map.osm")

    def corner(options: TableOptions) -> np.ndarray:
        window = SOURCE.scenarios(file, options)["train"][0]
        return SOURCE.scenario(window, options).map.centerline.values[:, :2].min(axis=0)

    at_zero = corner(TableOptions(preset="ind", map=tmp_path / "map.osm", origin=(48.0, 9.0)))
    zero = Transformer.from_crs("EPSG:4326", "EPSG:32632", always_xy=True).transform(9.0, 48.0)
    meta = file.with_name(file.name.replace("_tracks", "_recordingMeta"))
    header = "recordingId,frameRate,latLocation,lonLocation,xUtmOrigin,yUtmOrigin"
    for origin in (f"48.0008,9.0004,{east},{north}", "48.001,9.002,,"):
        meta.write_text(f"{header}\n0,25,{origin}\n")
        np.testing.assert_allclose(corner(options), at_zero + np.subtract(zero, (east, north)), atol=1e-3)
    meta.write_text("recordingId,frameRate\n0,25\n")
    rejects("'origin': is in degrees: give the origin of x and y", SOURCE.scenarios, file, options)


def seen(windows: list[RawScenario], number: int, options: TableOptions) -> list[int]:
    """Return the times of the states of a recording in any of its windows."""
    times: list[int] = []
    for window in windows:
        if window.name.startswith(f"{number:02}"):
            scene = SOURCE.scenario(window, options)
            times += scene.timestamps_ns[scene.tracks.valid.any(axis=0)].tolist()
    return times


@pytest.mark.parametrize(
    "seconds", [[4.5], [8.0], [13.0], [21.0], [26.0], [60.0], [60.0, 60.0], [60.0, 5.0]], ids=str
)
def test_recordings_are_divided_without_a_common_second(seconds: list[float], tmp_path: Path) -> None:
    """One or two make both splits; a short one beside a long one is trained on."""
    for number, length in enumerate(seconds):
        write_ind(tmp_path, number, seconds=length, tracks=10)
    options = TableOptions(preset="ind")
    splits = SOURCE.scenarios(tmp_path, options)
    names = [window.name for window in (*splits["train"], *splits["val"])]
    assert len(set(names)) == len(names)
    for number, length in enumerate(seconds):
        train = seen(splits["train"], number, options)
        val = seen(splits["val"], number, options)
        assert max(train) < min(val, default=2**63)
        assert bool(val) == (length != 5.0)


def test_a_state_an_hour_early_does_not_move_the_border(tmp_path: Path) -> None:
    later = np.array([0, SECONDS, 0, 0, 0, 0, 0])
    table = text(np.concatenate((rows(), rows() + later, rows() + 2 * later)))
    (tmp_path / "a.csv").write_text(table.replace("\n0.000000,0.000000", "\n0.000000,-3600.0"))
    splits = SOURCE.scenarios(tmp_path / "a.csv", TableOptions(columns=COLUMNS))
    assert len(splits["train"]) > 3
    assert len(splits["val"]) > 0
