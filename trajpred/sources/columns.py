"""The columns of tables with a row per state of a road user: roles, units, published data sets.

A mapping has entries ``role=column`` or ``role=column:unit``; docs/how-to/own-data.md describes the language.
Units are stated, never guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import DataError, quoted, require

#: Roles of columns, and the kinds of their values.
ROLES = {
    **dict.fromkeys(("recording", "track", "type"), "text"),
    "time": "time",
    **dict.fromkeys(("x", "y"), "length"),
    "heading": "angle",
    **dict.fromkeys(("vx", "vy"), "speed"),
    **dict.fromkeys(("length", "width"), "length"),
}
#: The roles that a mapping must have.
NEEDED = ("track", "time", "x", "y")
#: Factor of each unit, by kind of value. Times and angles must state a unit; the defaults are m and m/s.
UNITS = {
    "text": {},
    "time": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "iso": 1.0},
    "length": {"m": 1.0, "km": 1000.0, "cm": 0.01, "mm": 0.001, "ft": 0.3048},
    "angle": {"rad": 1.0, "deg": math.pi / 180, "bearing": math.pi / 180},
    "speed": {"m/s": 1.0, "km/h": 1 / 3.6, "ft/s": 0.3048},
}
#: Frames at a rate, or at the rate in a column.
_RATE = re.compile(r"(\d+(?:\.\d+)?)hz|\{(\w+)\}hz")
#: The object type of each class, in lower case; any other is ``unknown``.
CLASSES = {
    **dict.fromkeys(("vehicle", "car", "van", "truck", "truck_bus", "trailer", "taxi"), "vehicle"),
    **dict.fromkeys(("vehicle.car", "vehicle.truck", "vehicle.trailer", "type_vehicle"), "vehicle"),
    **dict.fromkeys(("bus", "vehicle.bus.rigid", "vehicle.bus.bendy"), "bus"),
    **dict.fromkeys(("motorcycle", "motorcyclist", "motorbike", "vehicle.motorcycle"), "motorcyclist"),
    **dict.fromkeys(("bicycle", "cyclist", "bike", "vehicle.bicycle", "type_cyclist"), "cyclist"),
    **dict.fromkeys(("pedestrian", "person", "type_pedestrian"), "pedestrian"),
    **dict.fromkeys(("human.pedestrian.adult", "human.pedestrian.child"), "pedestrian"),
    "human.pedestrian.construction_worker": "pedestrian",
    "human.pedestrian.police_officer": "pedestrian",
}


class Preset(NamedTuple):
    """The files and columns of a published data set.

    Attributes:
        columns: the mapping; a role with ``?`` may be missing.
        files: regular expression for its file names; files of one ``recording`` are read together. Track ids
            are unique within files of a ``kind``.
        metadata: accompanying files with the other columns, with one row per track or one row in all.
        header: column names of files without a header.
        origin: latitude and longitude of its Lanelet2 maps' origin.
        origin_columns: metadata columns with the origin instead: easting and northing in UTM, and latitude
            and longitude of a place in the zone, which is the origin if the first two are missing.
    """

    columns: str
    files: str = r"(?P<recording>.+)\.((csv|txt|tsv)(\.gz)?|parquet)"
    metadata: tuple[str, ...] = ()
    header: str = ""
    origin: tuple[float, float] | None = None
    origin_columns: tuple[str, ...] = ()

    def matches(self, name: str) -> bool:
        """Return whether a file with this name belongs to the data set."""
        return re.fullmatch(self.files, name) is not None

    def recording_of(self, path: Path) -> str:
        """Return a file's recording, or its stem if it is not named like the data set's files."""
        match = re.fullmatch(self.files, path.name)
        return match["recording"] if match else path.stem

    def kind_of(self, path: Path) -> str:
        """Return the kind of a recording's file, "" if it has none."""
        match = re.fullmatch(self.files, path.name)
        return (match.groupdict().get("kind") or "") if match else ""

    def metadata_of(self, path: Path) -> list[Path]:
        """Return the metadata files beside a file."""
        return [path.with_name(pattern.format(self.recording_of(path))) for pattern in self.metadata]


_LEVELX = Preset(
    "track=trackId time=frame:{frameRate}hz x=xCenter y=yCenter heading=heading:deg vx=xVelocity "
    "vy=yVelocity type=class length?=length width?=width",
    r"(?P<recording>.+)_tracks\.csv",
    ("{}_tracksMeta.csv", "{}_recordingMeta.csv"),
    origin_columns=("xUtmOrigin", "yUtmOrigin", "latLocation", "lonLocation"),
)
#: Published data sets.
PRESETS = {
    "ind": _LEVELX,
    "round": _LEVELX,
    "exid": _LEVELX,
    "unid": _LEVELX,
    "highd": _LEVELX._replace(
        # Its positions are the upper left corners of boxes along the axes of the image.
        columns="track=id time=frame:{frameRate}hz x=x:corner y=y:corner:down vx=xVelocity vy=yVelocity "
        "type=class length=width width=height"
    ),
    "interaction": Preset(
        "recording?=case_id track=track_id time=timestamp_ms:ms x=x y=y heading?=psi_rad:rad vx=vx vy=vy "
        "type=agent_type:pedestrian/bicycle=pedestrian length?=length width?=width",
        r"((vehicle|pedestrian)_tracks_)?(?P<recording>.+)\.csv",
        origin=(0.0, 0.0),
    ),
    "eth-ucy": Preset(
        "track=track time=frame:25hz x=x y=y type=pedestrian",
        r"(?P<recording>.+)\.(txt|csv|tsv)",
        header="frame track x y",
    ),
    "ngsim": Preset(
        "recording?=Location track=Vehicle_ID time=Global_Time:ms x=Local_X:ft y=Local_Y:ft "
        "type=v_Class:1=motorcyclist:2=vehicle:3=vehicle length=v_Length:ft width=v_Width:ft",
        r"(?P<recording>.+)\.(csv|txt)",
        header="Vehicle_ID Frame_ID Total_Frames Global_Time Local_X Local_Y Global_X Global_Y v_Length "
        "v_Width v_Class v_Vel v_Acc Lane_ID Preceding Following Space_Headway Time_Headway",
    ),
    # SOTIF-AVLab/SinD, Format.md: "the origin of the map coincides with the origin of the ground coordinate
    # system"; each recording has a folder.
    "sind": Preset(
        "track=track_id time=timestamp_ms:ms x=x y=y heading?=yaw_rad:rad vx=vx vy=vy type=agent_type:"
        "tricycle=motorcyclist:pedestrain=pedestrian length?=length width?=width",
        r"(Veh|Ped)_(?P<recording>smoothed_tracks)\.csv",
        origin=(0.0, 0.0),
    ),
    # eclipse-sumo/sumo, docs of FCDOutput and of tools/xml/xml2csv.py: metres, degrees clockwise from north.
    "sumo": Preset(
        "track=vehicle_id time=timestep_time:s x=vehicle_x y=vehicle_y heading=vehicle_angle:bearing "
        "type=vehicle"
    ),
    # PedestrianDynamics/PedPy, pedpy/io/trajectory_loader.py: metres, white space, the rate in a comment.
    "pedpy": Preset(
        "track=id time=frame:{framerate}hz x=x y=y type=pedestrian",
        r"(?P<recording>.+)\.txt",
        header="id frame x y z",
    ),
    # dongfang-steven-yang/vci-dataset-citr, README.md and scripts/filter_trajectories.py: metres from pixels.
    "citr": Preset(
        "track=id time=frame:29.97hz x=x_est y=y_est:down heading?=psi_est:rad vx?=vx_est vy?=vy_est "
        "type=label:ped=pedestrian:veh=vehicle",
        r"(?P<recording>.+)_traj_(?P<kind>ped|veh)_filtered\.csv",
    ),
    "nuscenes": Preset(
        "recording=scene_token track=instance_token time=timestamp:us x=translation_x y=translation_y "
        "heading?=yaw:rad type=category_name length?=length width?=width"
    ),
    "waymo": Preset(
        "recording=scenario_id track=id time=timestamps_seconds:s x=center_x y=center_y heading?=heading:rad "
        "vx?=velocity_x vy?=velocity_y type=object_type:1=vehicle:2=pedestrian:3=cyclist length?=length "
        "width?=width"
    ),
}


@dataclass(frozen=True)
class Column:
    """Column and unit of a role's values.

    Attributes:
        name: name of the column; for a type also an object type for all.
        optional: whether it may be missing.
        factor: factor to seconds, metres, radians or m/s.
        rate: name of the column with the frames per second.
        is_corner: positions are corners of axis-aligned boxes, with the smallest coordinates.
        is_down: the y axis of the table points down.
        is_bearing: angles are clockwise from north, the y axis.
        is_iso: times are dates and times as text.
        classes: object types by the text of the column.
    """

    name: str
    optional: bool = False
    factor: float = 1.0
    rate: str = ""
    is_corner: bool = False
    is_down: bool = False
    is_bearing: bool = False
    is_iso: bool = False
    classes: Mapping[str, str] = field(default_factory=dict)


def parse_columns(preset: Iterable[str], own: Iterable[str]) -> dict[str, Column]:
    """Parse the entries of a mapping; ``own`` entries replace a preset's entries for their roles.

    Raises: DataError about ``columns``.
    """
    columns = _entries(preset) | _entries(own)
    missing = [role for role in NEEDED if role not in columns]
    require(not missing, "columns", f"lacks {', '.join(missing)}; it has {', '.join(columns) or 'no column'}")
    for first, second in (("vx", "vy"), ("vy", "vx")):
        alone = f"has {first} without {second}: state both, or neither and they follow from the positions"
        require(first not in columns or second in columns, "columns", alone)
    for role, size in (("x", "length"), ("y", "width")):
        sizeless = f"{role}={columns[role].name}:corner needs {size}=COLUMN"
        require(not columns[role].is_corner or size in columns, "columns", sizeless)
    return columns


def _entries(entries: Iterable[str]) -> dict[str, Column]:
    """Parse entries ``role=column:unit``, by role. Raises: DataError about the first invalid one."""
    columns: dict[str, Column] = {}
    for entry in entries:
        role, _, value = entry.partition("=")
        name, *words = value.split(":")
        form = f"{quoted(entry)} must be ROLE=COLUMN or ROLE=COLUMN:UNIT with a role of {', '.join(ROLES)}"
        optional = role.endswith("?")
        role = role.removesuffix("?")
        require(role in ROLES and name != "", "columns", form)
        require(role not in columns, "columns", f"states {role} twice, the second time as {quoted(entry)}")
        columns[role] = _column(role, name, words, optional)
    return columns


def _column(role: str, name: str, words: Sequence[str], optional: bool) -> Column:
    """Build a role's column from its name and the words after it. Raises: DataError about an unknown word."""
    facts: dict[str, Any] = {}
    classes: dict[str, str] = {}
    units = UNITS[ROLES[role]]
    for word in words:
        text, _, kind = word.rpartition("=")
        rate = _RATE.fullmatch(word) if role == "time" else None
        is_rate = rate is not None and float(rate[1] or 1) > 0
        if word in units or is_rate:
            several = f"{role}={name} has several units, such as {word}: state one"
            require("factor" not in facts, "columns", several)
        if word in units:
            facts["factor"] = units[word]
            facts["is_bearing"] = word == "bearing"
            facts["is_iso"] = word == "iso"
        elif rate is not None and is_rate:
            facts["factor"] = 1 / float(rate[1] or 1)
            facts["rate"] = rate[2] or ""
        elif word == "corner" and role in ("x", "y"):
            facts["is_corner"] = True
        elif word == "down" and role == "y":
            facts["is_down"] = True
        elif role == "type" and kind in OBJECT_TYPES:
            classes[text.lower()] = kind
        else:
            _refuse(role, name, word)
    if ROLES[role] in ("time", "angle") and "factor" not in facts:
        _refuse(role, name, "")
    return Column(name, optional, classes=classes, **facts)


def _refuse(role: str, name: str, word: str) -> None:
    """Raise DataError about the unit of a role."""
    units = list(UNITS[ROLES[role]])
    if role == "time":
        units += ["25hz for frames at that rate", "{COLUMN}hz for the rate in a column"]
    if role in ("x", "y"):
        units.append("corner")
    if role == "y":
        units.append("down")
    if role == "type":
        units = [f"CLASS=TYPE with a type of {', '.join(OBJECT_TYPES)}"]
    problem = f"{word!r} is not a unit of {role}" if word else f"{role}={name} lacks its unit"
    raise DataError(f"{problem}; units: {', '.join(units) or 'none'}", field="columns")
