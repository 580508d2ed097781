"""Decode rows of a shard into scenarios, many at once.

The *parts* of a row are its columns as arrays, named by :data:`PARTS`; strings are UTF-8 bytes, and a list of
strings makes two parts. :func:`views` locates them in a shard; :func:`decode` and :func:`decode_batch`
concatenate the parts of ``S`` rows and decode them together. Damage raises ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.geometry import mean_step_s
from trajpred.lane_map import LaneMap, Ragged
from trajpred.scenario import Scenario, Tracks
from trajpred.scenario_batch import ScenarioBatch
from trajpred.store import codec
from trajpred.store.codec import ID_ROWS, LANE_CODES, LANE_IDS, OTHER_IDS, POLYLINES, SCHEMA, TRACK_CODES


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) and pa.types.is_string(kind.value_type))


def _parts() -> Iterator[tuple[str, tuple[np.dtype[Any], int]]]:
    for column in SCHEMA:
        kind, width = column.type, 1
        if pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_fixed_size_list(kind):
            kind, width = kind.value_type, kind.list_size
        yield column.name, (np.dtype("u1" if pa.types.is_string(kind) else kind.to_pandas_dtype()), width)
        if _is_text(column.type):
            yield f"{column.name}_lengths", (np.dtype(np.int32), 1)


#: Type and width of each of the ``P`` parts, ``[n]`` or, if the width is not 1, ``[n, width]``.
PARTS = dict(_parts())


def _same_length() -> Iterator[tuple[str, str]]:
    """Yield pairs of parts with the same number of entries."""
    scalars = [column.name for column in SCHEMA if pa.types.is_primitive(column.type)]
    yield from ((name, "num_observed") for name in scalars)
    yield from ((name, "track_id_lengths") for name in TRACK_CODES)
    yield from ((name, "position") for name in ("heading", "velocity"))
    yield from ((name, "lane_id") for name in (*LANE_IDS, *LANE_CODES, "is_intersection"))
    yield from ((f"{name}_lengths", "lane_id") for name in (*codec.LANE_LINES, *ID_ROWS))
    yield from ((f"{name}_lengths", "crossing_id") for name in codec.CROSSING_LINES)
    yield "drivable_area_lengths", "drivable_area_id"


_NAMES = list(PARTS)
_MEMBER, _MODEL = (
    np.array([_NAMES.index(name) for name in names]) for names in zip(*_same_length(), strict=True)
)


def views(batch: pa.RecordBatch) -> tuple[list[NDArray[Any]], NDArray[np.int32]]:
    """Locate the parts of all rows of a ``SCHEMA`` batch, copying only offsets.

    Returns the values of each part, and their offsets ``[P, rows + 1]``. Raises: ValueError.
    """
    columns = zip(SCHEMA.names, batch.columns, strict=True)
    pairs = [pair for name, column in columns for pair in _views(name, column)]
    for name, (values, offsets) in zip(PARTS, pairs, strict=True):
        _check(offsets, len(values), name)
    return [values for values, _ in pairs], np.stack([offsets for _, offsets in pairs])


def _views(name: str, column: pa.Array) -> list[tuple[NDArray[Any], NDArray[np.int32]]]:
    """Return values and offsets of the parts of one column. Arrow's buffers: validity, offsets …, values."""
    buffers, (kind, width) = column.buffers(), PARTS[name]
    values = _numbers(buffers[-1], kind)
    values = values if width == 1 else values.reshape(-1, width)
    if pa.types.is_primitive(column.type):
        return [(values, np.arange(len(column) + 1, dtype=np.int32))]
    offsets = _offsets(buffers[1], len(column))
    if not _is_text(column.type):
        return [(values, offsets)]
    ends = _offsets(buffers[3], len(column.values))
    _check(ends, len(values), name)
    _check(offsets, len(ends) - 1, name)
    return [(values, ends[offsets]), (np.diff(ends), offsets)]


def _numbers(buffer: pa.Buffer | None, kind: np.dtype[Any]) -> NDArray[Any]:
    return np.frombuffer(buffer, kind) if buffer is not None and buffer.size else np.zeros(0, kind)


def _offsets(buffer: pa.Buffer | None, rows: int) -> NDArray[np.int32]:
    found = _numbers(buffer, np.dtype(np.int32))[: rows + 1]
    return found if len(found) or rows else np.zeros(1, np.int32)


def _check(offsets: NDArray[np.int32], end: int, name: str) -> None:
    inside = len(offsets) > 0 and offsets[0] >= 0 and offsets[-1] <= end
    if not inside or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"offsets of {name} are out of range")


def decode(parts: Sequence[NDArray[Any]]) -> Scenario:
    """Decode the parts of one scenario. Raises: ValueError."""
    columns = _joined([parts])
    tracks, stamps = _tracks(columns), columns["timestamps_ns"].values
    return Scenario(
        scenario_id=str(_texts(columns["scenario_id"])[0]),
        city=str(_texts(columns["city"])[0]),
        timestamps_ns=stamps,
        num_observed=int(columns["num_observed"].values[0]),
        focal_id=str(tracks.track_id[_focal(columns)[0]]),
        tracks=tracks,
        map=_lane_map(columns),
        continued=int(columns["continued"].values[0]),
    )


def decode_batch(rows: Sequence[Sequence[NDArray[Any]]]) -> ScenarioBatch:
    """Decode the parts of ``S`` scenarios. Raises: DataError if window lengths differ; ValueError."""
    require(len(rows) > 0, "scenarios", "must not be empty")
    columns = _joined(rows)
    observed, stamps = columns["num_observed"].values, columns["timestamps_ns"]
    windows = set(zip(observed.tolist(), stamps.lengths.tolist(), strict=True))
    require(len(windows) == 1, "num_observed", f"window lengths differ: {sorted(windows)}")
    ((num_observed, steps),) = windows
    scene = np.arange(len(rows))
    return ScenarioBatch(
        scenario_id=_texts(columns["scenario_id"]),
        step_s=mean_step_s(stamps.values.reshape(-1, steps), num_observed),
        num_observed=num_observed,
        recorded=steps - columns["continued"].values.astype(np.int64),
        focal=_focal(columns),
        tracks=_tracks(columns),
        track_scene=np.repeat(scene, columns["object_type"].lengths),
        map=_lane_map(columns),
        lane_scene=np.repeat(scene, columns["lane_id"].lengths),
        crossing_scene=np.repeat(scene, columns["crossing_id"].lengths),
    )


def _joined(rows: Sequence[Sequence[NDArray[Any]]]) -> dict[str, Ragged]:
    """Concatenate each part over the ``S`` rows: a ragged array with one row per scenario."""
    counts = np.array([[len(part) for part in row] for row in rows])
    offsets = np.zeros((len(PARTS), len(rows) + 1), np.int64)
    np.cumsum(counts.T, axis=1, out=offsets[:, 1:])
    wrong = np.flatnonzero((offsets[_MEMBER] != offsets[_MODEL]).any(1))
    if len(wrong):
        member, model = _NAMES[_MEMBER[wrong[0]]], _NAMES[_MODEL[wrong[0]]]
        raise ValueError(f"{member} and {model} differ in the number of entries")
    values = map(np.concatenate, zip(*rows, strict=True))
    return {name: Ragged(part, own) for name, part, own in zip(PARTS, values, offsets, strict=True)}


def _focal(columns: dict[str, Ragged]) -> NDArray[np.int64]:
    """``[S]`` rows of the focal tracks among all tracks."""
    tracks, focal = columns["object_type"], columns["focal"].values
    if not ((focal >= 0) & (focal < tracks.lengths)).all():
        raise ValueError("focal is no row of the tracks")
    return tracks.offsets[:-1] + focal


def _tracks(columns: dict[str, Ragged]) -> Tracks:
    steps = int(columns["timestamps_ns"].lengths[0])
    names = _texts(_nested("track_id", columns))
    bits = columns["valid"].values.reshape(len(names), -1)
    valid = np.unpackbits(bits, axis=1, count=steps).view(np.bool_)
    at = np.flatnonzero(valid)
    if bits.shape[1] != -(-steps // 8) or len(at) != len(columns["position"].values):
        raise ValueError("valid does not match the states")

    def states(kept: NDArray[np.float64]) -> NDArray[np.float64]:
        dense = np.zeros((valid.size, *kept.shape[1:]))
        dense[at] = kept
        return dense.reshape(*valid.shape, *kept.shape[1:])

    unit = np.repeat(columns["velocity_unit"].values, columns["velocity"].lengths)
    return Tracks(
        track_id=names,
        valid=valid,
        position=states(_metres(columns["position"], columns)),
        heading=states(columns["heading"].values * codec.HEADING_UNIT),
        velocity=states(columns["velocity"].values * unit[:, None]),
        **{name: columns[name].values for name in TRACK_CODES},
    )


def _lane_map(columns: dict[str, Ragged]) -> LaneMap:
    elements: dict[str, Any] = {name: columns[name].values for name in (*LANE_IDS, *OTHER_IDS, *LANE_CODES)}
    elements["is_intersection"] = columns["is_intersection"].values != 0
    elements |= {name: _nested(name, columns) for name in ID_ROWS}
    elements |= {name: _polylines(name, columns) for name in POLYLINES}
    return LaneMap(**elements)


def _polylines(name: str, columns: dict[str, Ragged]) -> Ragged:
    points, height = _metres(columns[name], columns), columns[f"{name}_height"]
    if ((height.lengths > 0) & (height.lengths != columns[name].lengths)).any():
        raise ValueError(f"{name}_height does not have one entry per point")
    if height.lengths.all():  # as in ScenarioBatch.of: heights only if all scenarios have them
        points = np.concatenate((points, height.values[:, None]), axis=1)
    return Ragged(points, _nested(name, columns).offsets)


def _nested(name: str, columns: dict[str, Ragged]) -> Ragged:
    """Divide a part into rows whose lengths are in another part."""
    values, lengths = columns[name], columns[f"{name}_lengths"]
    rows = Ragged.from_lengths(values.values, lengths.values)
    if (lengths.values < 0).any() or (rows.offsets[lengths.offsets] != values.offsets).any():
        raise ValueError(f"{name} does not match its lengths")
    return rows


def _metres(points: Ragged, columns: dict[str, Ragged]) -> NDArray[np.float64]:
    """Convert millimetres from each scenario's origin to metres in the city frame, ``[N, 2]``."""
    origin = np.stack((columns["origin_x"].values, columns["origin_y"].values), -1)
    metres: NDArray[np.float64] = points.values / codec.PER_METRE
    metres += np.repeat(origin, points.lengths, axis=0)
    return metres


def _texts(letters: Ragged) -> NDArray[np.str_]:
    # NumPy pads every string to the longest.
    if len(letters) * int(letters.lengths.max(initial=0)) > codec.MAX_BYTES:
        raise ValueError("a text is too long")
    ends = pa.py_buffer(letters.offsets.astype(np.int32))
    texts = pa.StringArray.from_buffers(len(letters), ends, pa.py_buffer(letters.values))
    return texts.to_numpy(zero_copy_only=False).astype(np.str_)
