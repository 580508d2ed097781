"""Random access to the scenarios of a store: its manifest, memory-mapped shards, and the store itself.

Every file has checksums: the manifest in its text, a split's index in its name, a shard in its rows.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.environment import command_words
from trajpred.data.motion import mean_step_s
from trajpred.data.resample import resample, same_step, whole_steps
from trajpred.data.scenario import Scenario
from trajpred.data.splits import HOLD_OUT, Half, draw, half_of
from trajpred.errors import DataError, require
from trajpred.store.format import SCHEMA, Rows, decode, decode_batch

#: Version of the files of a store.
VERSION = 8
MANIFEST = "manifest.json"
#: Columns of the index: the first columns of every shard (name, number of tracks with an observed state,
#: number of lane segments and crossings), and the name of the recording.
INDEX = pa.schema([SCHEMA.field(name) for name in ("scenario_id", "tracks", "lanes")]).append(
    pa.field("recording", pa.string(), nullable=False)
)
#: Columns of a shard: a scenario's columns, and their checksum.
SHARD = SCHEMA.append(pa.field("crc32", pa.uint32(), nullable=False))
#: Maximum number of open shards per process.
OPEN_SHARDS = 64
#: Maximum number of ids listed in a message.
MAX_LISTED = 5
#: Advice about windows of several kinds.
ADVICE = (
    "train and evaluate need one kind: prepare the recordings of each kind from a raw folder of their own "
    "into a store of their own"
)


# -------------------------------------------------------------------------------------------------- checksums


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file's content. Raises: OSError."""
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            value = zlib.crc32(chunk, value)
    return value


def signed_name(stem: str, path: Path) -> str:
    """Return ``STEM-CHECKSUM.arrow``, the name for the content of ``path``."""
    return f"{stem}-{checksum(path):08x}.arrow"


def is_intact(path: Path) -> bool:
    """Return whether a file's content matches its name. Raises: OSError."""
    return path.stem.rpartition("-")[2] == f"{checksum(path):08x}"


def record_of(shard: Path) -> Path:
    """Return the path of a shard's record."""
    return shard.with_name(f"{shard.stem.rpartition('-')[0]}.json")


def sealed(values: dict[str, Any]) -> str:
    """Serialise ``values`` with their checksum."""
    signed: dict[str, Any] = {"crc32": zlib.crc32(_text(values).encode())}
    return _text(signed | values)


def unsealed(text: str) -> dict[str, Any]:
    """Invert :func:`sealed`. Raises: ValueError if any byte has changed."""
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("is not an object")
    values.pop("crc32", None)
    if sealed(values) != text:
        raise ValueError("its checksum is wrong")
    return values


def _text(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=1) + "\n"


# --------------------------------------------------------------------------------------------------- manifest


def read_manifest(store: Path) -> dict[str, Any]:
    """Read the manifest of a store.

    Raises:
        DataError: it is missing, damaged, or of another version; the message states the command that prepares
            the store.
    """
    path = store / MANIFEST
    if not path.is_file():
        raise DataError(f"no store here; {_advice(store, {})}", file=store)
    try:
        text = path.read_text("utf-8")
        manifest: dict[str, Any] = json.loads(text)
        version = manifest["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"is not a store manifest ({error!r}); {_advice(store, {})}", file=path) from None
    if version != VERSION:
        problem = f"store version {version}, this trajpred reads version {VERSION}"
        raise DataError(f"{problem}; {_advice(store, manifest)}", file=path)
    try:
        return unsealed(text)
    except ValueError as error:
        raise DataError(f"is damaged ({error}); {_advice(store, manifest)}", file=path) from None


def _advice(store: Path, manifest: dict[str, Any]) -> str:
    return f"prepare it with: {prepare_command(store, manifest)}"


def prepare_command(store: Path, manifest: dict[str, Any]) -> str:
    """Return the command that prepares a store with the options of ``manifest``."""
    words = ["--source", manifest.get("source", "SOURCE"), "--raw", "RAW_DIR", "--store", store]
    if manifest.get("heights"):
        words.append("--heights")
    for name, value in manifest.get("options", {}).items():
        if value not in (None, [], False):
            words.append(f"--{name.replace('_', '-')}")
            words += value if isinstance(value, list) else [value]
    if manifest.get("shard_size", 256) != 256:
        words += ["--shard_size", manifest["shard_size"]]
    extended = manifest.get("extended")
    if isinstance(extended, dict):
        words += ["--continue-s", extended.get("seconds", "SECONDS")]
        words += ["--teacher", extended.get("teacher", "TEACHER")]
    return f"trajpred prepare {command_words(*words)}"


# ----------------------------------------------------------------------------------------------------- shards


def _mapped(path: Path, rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Map the only batch of a file. Raises: DataError if it has other columns or another number of rows."""
    try:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        is_ours = file.schema == schema and file.num_record_batches == 1
        batch = pa.record_batch({})
        if is_ours:  # other files are not read
            batch = file.get_batch(0)
        batch.validate()
        for column in batch.columns:
            if not pa.types.is_list(column.type):  # Rows checks lists
                column.validate(full=True)  # otherwise Arrow would follow offsets out of bounds
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"cannot be opened ({error}); prepare it again", file=path) from None
    nulls = any(column.null_count for column in batch.columns)
    if not is_ours or batch.num_rows != rows or nulls:
        raise DataError("is not the file named in the manifest; prepare it again", file=path)
    return batch


def row_checksum(parts: Sequence[NDArray[Any]]) -> int:
    """Return the CRC-32 of the number of entries of each part (int32), followed by all entries."""
    value = zlib.crc32(np.array(list(map(len, parts)), "<i4").data)
    for part in parts:
        value = zlib.crc32(part.data, value)
    return value


def open_index(path: Path, rows: int) -> pa.RecordBatch:
    """Open the index of a split, and verify its checksum. Raises: DataError."""
    batch = _mapped(path, rows, INDEX)
    if not is_intact(path):
        raise DataError("is damaged (its checksum is wrong); prepare it again", file=path)
    return batch


class Shard(Rows):
    """An open shard; only offsets and names have been read.

    Args:
        path: path of the file.
        index: its scenarios' entries in the index.

    Raises: DataError if the file is another one or damaged.
    """

    def __init__(self, path: Path, index: pa.RecordBatch) -> None:
        self.path = path
        batch = _mapped(path, index.num_rows, SHARD)
        if not batch.column("scenario_id").equals(index.column("scenario_id")):
            raise DataError("does not contain the scenarios of the index; prepare it again", file=path)
        self._crc32 = batch.column("crc32")
        try:
            super().__init__(batch.select(SCHEMA.names))
        except (ValueError, IndexError) as error:
            raise self._damage(str(error)) from None

    def __getitem__(self, row: int) -> list[NDArray[Any]]:
        """Return the parts of a row. Raises: DataError if its checksum is wrong."""
        parts = super().__getitem__(row)
        if row_checksum(parts) != self._crc32[row].as_py():
            raise self._damage(f"row {row} has a wrong checksum")
        return parts

    def _damage(self, problem: str) -> DataError:
        return DataError(f"shard is damaged ({problem}); prepare it again", file=self.path)


# -------------------------------------------------------------------------------------------------- the store


class Window(NamedTuple):
    """The numbers of observed steps and of all steps."""

    observed: int
    steps: int

    @property
    def future(self) -> int:
        """Number of future steps."""
        return self.steps - self.observed

    def __str__(self) -> str:
        return f"{self.observed} + {self.future}"


def cut(scenario: Scenario, window: Window) -> Scenario:
    """Cut a scenario to its last observed and first future steps, and to the tracks seen then."""
    if window == (scenario.num_observed, scenario.num_steps):
        return scenario
    shorter = scenario.window(window.observed, window.future)
    rows = np.flatnonzero(shorter.tracks.valid.any(axis=1))
    return replace(shorter, tracks=shorter.tracks.take(rows))


class ScenarioStore:
    """The scenarios of one split of a store: a sequence that can be pickled and shared by processes.

    Args:
        path: folder of the store.
        split: ``train``, ``val`` or ``test``.

    Attributes:
        half: one of :data:`~trajpred.data.splits.HALVES`; empty for the whole split.
        observed_s: seconds of history if they differ from the recordings'; else 0.
        step_s: seconds between steps to which scenarios are resampled; None for the recordings' steps.

    Raises:
        DataError: no such store or split, another version, or a damaged shard.

    Example:
        >>> store = ScenarioStore("/data/av2-store", "val")
        >>> store[0].scenario_id == store.scenario_ids[0], len(store.batch([3, 1]))
        (True, 2)
    """

    def __init__(self, path: str | Path, split: str) -> None:
        self.path = Path(path)
        self.split = split
        self.half = ""
        self.observed_s = 0.0
        self.step_s: float | None = None
        splits: dict[str, Any] = read_manifest(self.path)["splits"]
        if split not in splits:
            raise DataError(f"store has no split {split!r}, only {', '.join(splits)}", file=self.path)
        entry = splits[split]
        folder = self.path / split
        self._index_file = folder / entry["index"]
        self._lengths = [Window(*window) for window in entry["lengths"]]
        #: Whether some scenarios are longer than the window, since frames were lost.
        self._is_cut: bool = entry.get("cut", False) and len(self._lengths) == 1
        self._shards: list[Path] = []
        #: First row of each shard, then the number of all rows.
        self._bounds = [0]
        for shard in entry["shards"]:
            self._shards.append(folder / shard["file"])
            self._bounds.append(self._bounds[-1] + shard["scenarios"])
        self._open: dict[int, Shard] = {}
        #: Row in the split of each scenario.
        self._rows: Sequence[int] | NDArray[np.int64] = range(self._bounds[-1])

    def subset(self, rows: NDArray[np.int64 | np.bool_]) -> ScenarioStore:
        """Return the scenarios of ``rows`` (numbers or a mask) as a store."""
        other = copy(self)
        other._rows = np.asarray(self._rows, np.int64)[rows]
        return other

    def held_out(self, fraction: float) -> NDArray[np.bool_]:
        """Return a mask ``[N]`` of about a ``fraction`` of the scenarios, drawn by recording."""
        return np.array([draw(name, HOLD_OUT) < fraction for name in self.recordings], np.bool_)

    def halved(self, half: Half) -> ScenarioStore:
        """Return the scenarios of one half (:func:`~trajpred.data.splits.half_of`) as a store.

        No recording is in both halves. Raises: DataError if there are none.
        """
        members = [half_of(name) == half for name in self.recordings]
        empty = f"no scenario of split {self.split!r} is in the {half} half; evaluate the whole split"
        require(any(members), "half", empty)
        other = self.subset(np.array(members, np.bool_))
        other.half = half
        return other

    def resampled(self, step_s: float) -> ScenarioStore:
        """Return the scenarios resampled to steps of ``step_s`` seconds and cut to one window, if needed."""
        if not len(self):
            return self
        own_step_s = self[0].step_s
        if same_step(own_step_s, step_s):
            return self
        observed, future = self.lengths
        past = whole_steps((observed - 1) * own_step_s, step_s)
        other = copy(self)
        other.step_s = step_s
        other._lengths = [Window(past + 1, past + 1 + whole_steps(future * own_step_s, step_s))]
        other._is_cut = True
        return other

    def __getstate__(self) -> dict[str, Any]:
        # Every process opens its own memory maps.
        state = dict(self.__dict__)
        state.pop("_index", None)
        state["_open"] = {}
        return state

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        windows = " or ".join(str(window) for window in self._lengths) or "no"
        size = f"{len(self):,} scenarios of {windows} steps"
        return f"ScenarioStore({self.path}, {self.split}: {size})"

    def __getitem__(self, index: int) -> Scenario:
        scenario = decode(self._parts(index))
        if self.step_s is not None:
            scenario = resample(scenario, self.step_s)
        if self._is_cut:
            return cut(scenario, self._lengths[0])
        return scenario

    def __iter__(self) -> Iterator[Scenario]:
        for row in range(len(self)):
            yield self[row]

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> ScenarioBatch:
        """Read the scenarios of ``rows``, in any order and with repetitions; equals ``ScenarioBatch.of``.

        Raises:
            DataError: no rows, differing window lengths, or a damaged shard.
            IndexError: a row out of range.
        """
        if self._is_cut:
            return ScenarioBatch.of([self[int(row)] for row in rows])
        return decode_batch([self._parts(int(row)) for row in rows])

    def _parts(self, index: int) -> list[NDArray[Any]]:
        """Read the parts of a row; its shard stays open, and the one opened first may be closed."""
        if not 0 <= index < len(self):
            raise IndexError(f"scenario {index} of {len(self)}")
        row = int(self._rows[index])
        number = bisect_right(self._bounds, row) - 1
        start = self._bounds[number]
        if number not in self._open:
            entries = self._index.slice(start, self._bounds[number + 1] - start)
            self._open[number] = Shard(self._shards[number], entries)
        if len(self._open) > OPEN_SHARDS:
            del self._open[next(iter(self._open))]
        return self._open[number][row - start]

    @property
    def scenario_ids(self) -> list[str]:
        """Return the ids in the order of the rows."""
        return self._entries.column("scenario_id").to_pylist()

    @property
    def recordings(self) -> list[str]:
        """Return the recording of each row; windows of one recording may overlap.

        If a scenario is the only one of its recording, the recording has the scenario's id.
        """
        return self._entries.column("recording").to_pylist()

    @property
    def split_ids(self) -> list[str]:
        """Return the ids of the whole split, also if this store has only some of its rows."""
        return self._index.column("scenario_id").to_pylist()

    @property
    def sizes(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the observed tracks ``[N]`` and the lanes and crossings ``[N]`` of each row."""
        return self._entries.column("tracks").to_numpy(), self._entries.column("lanes").to_numpy()

    @property
    def lengths(self) -> tuple[int, int]:
        """Return the observed and future steps of all scenarios. Raises: DataError if they differ."""
        if not self._lengths:
            raise DataError(f"split {self.split!r} contains no scenario", file=self.path)
        if len(self._lengths) != 1:
            kinds = ", ".join(f"{window} steps" for window in self._lengths)
            raise DataError(f"split {self.split!r} mixes window lengths: {kinds}; {ADVICE}", file=self.path)
        observed, steps = self._lengths[0]
        return observed, steps - observed

    def windows(self) -> tuple[list[Window], NDArray[np.float64]]:
        """Return the window and the step in seconds ``[N]`` of each scenario of the whole split."""
        windows: list[Window] = []
        step_s: list[float] = []
        for number, file in enumerate(self._shards):
            batch = _mapped(file, self._bounds[number + 1] - self._bounds[number], SHARD)
            observed = batch.column("num_observed").to_pylist()
            for count, stamps in zip(observed, batch.column("timestamps_ns"), strict=True):
                window = Window(count, len(stamps))
                windows.append(self._lengths[0] if self._is_cut else window)
                step_s.append(float(mean_step_s(stamps.values.to_numpy(), count)))
        return windows, np.array(step_s)

    def index(self, scenario_id: str) -> int:
        """Return the row of a scenario. Raises: DataError if there is none."""
        row = int(pc.index(self._entries.column("scenario_id"), scenario_id).as_py())
        if row < 0:
            raise DataError(f"split {self.split!r} contains no scenario {scenario_id!r}", file=self.path)
        return row

    @property
    def _entries(self) -> pa.RecordBatch:
        """The entries of the index for the rows of this store."""
        if isinstance(self._rows, range):
            return self._index
        return self._index.take(pa.array(self._rows))

    @cached_property
    def _index(self) -> pa.RecordBatch:
        return open_index(self._index_file, self._bounds[-1])


def find_scenarios(store: Path, names: Sequence[str], first: str = "") -> list[tuple[str, ScenarioStore]]:
    """Find the id and split of each scenario, given by any unambiguous prefix of its id.

    If several splits contain an id, ``first`` takes precedence.

    Raises: DataError if no scenario starts with a name, or several do.
    """
    splits = sorted(read_manifest(store)["splits"], key=lambda split: split == first)
    split_of: dict[str, ScenarioStore] = {}
    for split in splits:
        scenarios = ScenarioStore(store, split)
        split_of |= dict.fromkeys(scenarios.scenario_ids, scenarios)
    scenarios_of: list[tuple[str, ScenarioStore]] = []
    for name in names:
        try:
            scenario_id = complete_id(name, split_of)
        except DataError as error:
            raise error.located(store) from None
        scenarios_of.append((scenario_id, split_of[scenario_id]))
    return scenarios_of


def complete_id(name: str, ids: Collection[str]) -> str:
    """Return the only one of ``ids`` that starts with ``name``.

    Raises:
        DataError: none does, or several do; the message lists them.
    """
    if name in ids:
        return name
    matches = sorted(scenario_id for scenario_id in ids if scenario_id.startswith(name))
    if not matches:
        raise DataError(f"no split holds scenario {name!r}")
    if len(matches) > 1:
        raise DataError(f"{len(matches)} scenarios start with {name!r}: {listed(matches)}")
    return matches[0]


def listed(names: Sequence[str]) -> str:
    """Join the first names for a message."""
    text = ", ".join(names[:MAX_LISTED])
    if len(names) <= MAX_LISTED:
        return text
    return f"{text}, …"
