"""Random access to the memory-mapped scenarios of a store."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.motion import mean_step_s
from trajpred.data.resample import resample, same_step, whole_steps
from trajpred.data.scenario import Scenario
from trajpred.data.splits import HOLD_OUT, Half, draw, half_of
from trajpred.errors import DataError, require
from trajpred.store.format import decode, decode_batch
from trajpred.store.shards import Shard, open_index, read_manifest, read_times
from trajpred.store.windows import ADVICE, Window, cut

#: Maximum number of open shards per process.
OPEN_SHARDS = 64
#: Maximum number of ids listed in a message.
MAX_LISTED = 5

T = TypeVar("T")


class ScenarioStore:
    """The scenarios of one split of a store: a sequence that can be pickled and shared by processes.

    Args:
        path: folder of the store.
        split: ``train``, ``val`` or ``test``.

    Attributes:
        half: one of :data:`~trajpred.data.splits.HALVES`; empty for the whole split.
        observed_s: seconds of history, if they are not those of the recordings; else 0.
        step_s: seconds between the steps that scenarios are resampled to; None for those of the recordings.

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
        #: Whether some scenarios are longer than the others, since frames were lost, or those of the window.
        self._is_cut: bool = entry.get("cut", False) and len(self._lengths) == 1
        self._shards: list[Path] = []
        #: The first row of each shard, and the number of all rows.
        self._bounds = [0]
        for shard in entry["shards"]:
            self._shards.append(folder / shard["file"])
            self._bounds.append(self._bounds[-1] + shard["scenarios"])
        self._open: OrderedDict[int, Shard] = OrderedDict()
        #: Row in the split of each scenario.
        self._rows: Sequence[int] | NDArray[np.int64] = range(self._bounds[-1])

    def subset(self, rows: NDArray[np.int64 | np.bool_]) -> ScenarioStore:
        """Return the scenarios of ``rows``, numbers or a mask, as a store of their own."""
        other = copy(self)
        other._rows = np.asarray(self._rows, np.int64)[rows]
        return other

    def held_out(self, fraction: float) -> NDArray[np.bool_]:
        """Return a mask ``[N]`` of about a ``fraction`` of the scenarios, drawn by their ids alone."""
        return np.array([draw(name, HOLD_OUT) < fraction for name in self.scenario_ids], np.bool_)

    def halved(self, half: Half) -> ScenarioStore:
        """Return the scenarios of one half (:func:`~trajpred.data.splits.half_of`) as a store of their own.

        Raises: DataError if there are none.
        """
        members = [half_of(name) == half for name in self.scenario_ids]
        empty = f"no scenario of split {self.split!r} is in the {half} half; evaluate the whole split"
        require(any(members), "half", empty)
        other = self.subset(np.array(members, np.bool_))
        other.half = half
        return other

    def resampled(self, step_s: float) -> ScenarioStore:
        """Return the scenarios at steps of ``step_s`` seconds, all of one window, unless they have these."""
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
        state["_open"] = OrderedDict()
        return state

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        windows = " or ".join(str(window) for window in self._lengths) or "no"
        size = f"{len(self):,} scenarios of {windows} steps"
        return f"ScenarioStore({self.path}, {self.split}: {size})"

    def __getitem__(self, index: int) -> Scenario:
        scenario = self._decode_row(index, decode)
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
        parts = [self._decode_row(int(row), list) for row in rows]
        try:
            return decode_batch(parts)
        except ValueError:
            for row in rows:
                self[int(row)]  # raises an error that names the damaged shard
            raise

    def _decode_row(self, index: int, decoder: Callable[[Any], T]) -> T:
        """Decode the parts of a row; errors name its shard."""
        if not 0 <= index < len(self):
            raise IndexError(f"scenario {index} of {len(self)}")
        row = int(self._rows[index])
        number = bisect_right(self._bounds, row) - 1
        shard = self._shard(number)
        try:
            return decoder(shard[row - self._bounds[number]])
        except (pa.ArrowException, OSError, ValueError) as error:
            path = self._shards[number]
            raise DataError(f"shard is damaged ({error}); prepare it again", file=path) from None

    @property
    def scenario_ids(self) -> list[str]:
        """Return the ids in the order of the rows."""
        ids: list[str] = self._entries.column("scenario_id").to_pylist()
        return ids

    @property
    def split_ids(self) -> list[str]:
        """Return the ids of the whole split, of which these rows may be a part."""
        ids: list[str] = self._index.column("scenario_id").to_pylist()
        return ids

    @property
    def sizes(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the observed tracks ``[N]`` and the lanes and crossings ``[N]`` of each row."""
        return self._entries.column("tracks").to_numpy(), self._entries.column("lanes").to_numpy()

    @property
    def lengths(self) -> tuple[int, int]:
        """Return the observed and future steps of all scenarios. Raises: DataError if they differ."""
        if not self._lengths:
            raise DataError(f"split {self.split!r} holds no scenario", file=self.path)
        if len(self._lengths) != 1:
            kinds = ", ".join(f"{window} steps" for window in self._lengths)
            raise DataError(f"split {self.split!r} mixes window lengths: {kinds}; {ADVICE}", file=self.path)
        observed, steps = self._lengths[0]
        return observed, steps - observed

    def windows(self) -> tuple[list[Window], NDArray[np.float64]]:
        """Return the window and the step in seconds ``[N]`` of each scenario of the whole split."""
        windows: list[Window] = []
        step_s: list[float] = []
        for file, (start, end) in zip(self._shards, pairwise(self._bounds), strict=True):
            observed, stamps = read_times(file, end - start)
            for row in range(end - start):
                window = Window(int(observed[row]), len(stamps[row]))
                windows.append(self._lengths[0] if self._is_cut else window)
                step_s.append(float(mean_step_s(stamps[row], window.observed)))
        return windows, np.array(step_s)

    def index(self, scenario_id: str) -> int:
        """Return the row of a scenario. Raises: DataError if there is none."""
        row = int(pc.index(self._entries.column("scenario_id"), scenario_id).as_py())
        if row < 0:
            raise DataError(f"split {self.split!r} holds no scenario {scenario_id!r}", file=self.path)
        return row

    @property
    def _entries(self) -> pa.RecordBatch:
        """The entries of the index for the rows of this store."""
        if isinstance(self._rows, range):
            return self._index
        return self._index.take(pa.array(self._rows))

    @cached_property
    def _index(self) -> pa.RecordBatch:
        """The index of the whole split."""
        return open_index(self._index_file, self._bounds[-1])

    def _shard(self, number: int) -> Shard:
        shard = self._open.pop(number, None)
        if shard is None:
            start = self._bounds[number]
            count = self._bounds[number + 1] - start
            shard = Shard(self._shards[number], self._index.slice(start, count))
        self._open[number] = shard
        if len(self._open) > OPEN_SHARDS:
            self._open.popitem(last=False)
        return shard


def find_scenarios(store: Path, names: Sequence[str], first: str = "") -> list[tuple[str, ScenarioStore]]:
    """Find the id and the split of each scenario, which may be named by any unambiguous start of its id.

    If several splits hold an id, ``first`` takes precedence.

    Raises: DataError if no scenario starts with a name, or several do.
    """
    splits = sorted(read_manifest(store)["splits"], key=lambda split: split == first)
    split_of: dict[str, ScenarioStore] = {}
    for split in splits:
        scenarios = ScenarioStore(store, split)
        for scenario_id in scenarios.scenario_ids:
            split_of[scenario_id] = scenarios
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
        DataError: none does, or several do, which the message lists.
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
