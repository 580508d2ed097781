"""Random access to prepared scenarios, memory-mapped."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

from trajpred.errors import DataError
from trajpred.scenario import Scenario
from trajpred.store.codec import SCHEMA, VERSION, decode_row

MANIFEST = "manifest.json"


def read_manifest(store: Path) -> dict[str, Any]:
    """The manifest of a store. Raises: DataError that says how to make the store."""
    path = store / MANIFEST
    advice = f"prepare it with: python tools/prepare.py --source SOURCE --raw RAW_DIR --store {store}"
    if not path.is_file():
        raise DataError(f"no store here; {advice}", file=store)
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        version = manifest["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"is no store manifest ({error!r}); {advice}", file=path) from None
    if version != VERSION:
        raise DataError(
            f"store version {version}, this trajpred reads version {VERSION}; {advice}", file=path
        )
    return manifest


class ScenarioStore:
    """The scenarios of one split of a store; a sequence that can be pickled and shared by processes.

    Args:
        path: the store's folder.
        split: ``train``, ``val`` or ``test``.

    Raises:
        DataError: no such store or split, a version this code does not read, a damaged shard.
    """

    def __init__(self, path: str | Path, split: str) -> None:
        self.path, self.split = Path(path), split
        try:
            splits: dict[str, Any] = read_manifest(self.path)["splits"]
            if split not in splits:
                raise DataError(f"store has no split {split!r}, only {', '.join(splits)}", file=self.path)
            shards = splits[split]["shards"]
            self._lengths: list[list[int]] = splits[split]["lengths"]
            self._shards = [self.path / split / shard["file"] for shard in shards]
            self._ends: list[int] = list(accumulate(shard["scenarios"] for shard in shards))
        except (KeyError, TypeError) as error:
            raise DataError(f"is damaged ({error!r}); prepare it again", file=self.path / MANIFEST) from None
        self._open: dict[int, pa.RecordBatch] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A memory map cannot travel to another process; every process opens its own. The list of
        # ids is not worth sending.
        return {**{k: v for k, v in self.__dict__.items() if k != "scenario_ids"}, "_open": {}}

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Scenario:
        if not 0 <= index < len(self):
            raise IndexError(f"scenario {index} of {len(self)}")
        shard = bisect_right(self._ends, index)
        batch = self._batch(shard)
        try:
            return decode_row(batch, index - self._start(shard))
        except (pa.ArrowException, ValueError, IndexError) as error:
            raise DataError(
                f"shard is damaged ({error}); prepare it again", file=self._shards[shard]
            ) from None

    def __iter__(self) -> Iterator[Scenario]:
        return (self[i] for i in range(len(self)))

    @cached_property
    def scenario_ids(self) -> list[str]:
        """Ids in the order of the rows."""
        return [
            name
            for shard in range(len(self._shards))
            for name in self._batch(shard).column("scenario_id").to_pylist()
        ]

    @property
    def lengths(self) -> tuple[int, int]:
        """Observed and future steps, the same in all scenarios. Raises: DataError if they differ."""
        if not self._lengths:
            raise DataError(f"split {self.split!r} holds no scenario", file=self.path)
        if len(self._lengths) != 1:
            raise DataError(f"split {self.split!r} mixes window lengths: {self._lengths}", file=self.path)
        observed, steps = self._lengths[0]
        return observed, steps - observed

    def index(self, scenario_id: str) -> int:
        """Row of a scenario. Raises: DataError."""
        try:
            return self.scenario_ids.index(scenario_id)
        except ValueError:
            raise DataError(
                f"split {self.split!r} holds no scenario {scenario_id!r}", file=self.path
            ) from None

    def _start(self, shard: int) -> int:
        return self._ends[shard - 1] if shard else 0

    def _batch(self, shard: int) -> pa.RecordBatch:
        if shard not in self._open:
            path, rows = self._shards[shard], self._ends[shard] - self._start(shard)
            try:
                batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
                batch.validate(full=True)  # offsets of a damaged file would be followed out of memory
            except (pa.ArrowException, OSError, ValueError) as error:
                raise DataError(f"shard cannot be opened ({error}); prepare it again", file=path) from None
            if batch.schema != SCHEMA or batch.num_rows != rows:
                raise DataError("is not the shard that the manifest names; prepare it again", file=path)
            self._open[shard] = batch
        return self._open[shard]


def find_scenarios(store: Path, scenario_ids: Sequence[str]) -> list[Scenario]:
    """The scenarios with these ids, from whichever split. Raises: DataError."""
    splits = [ScenarioStore(store, split) for split in read_manifest(store)["splits"]]
    return [_find(splits, scenario_id, store) for scenario_id in scenario_ids]


def _find(splits: list[ScenarioStore], scenario_id: str, store: Path) -> Scenario:
    for split in splits:
        if scenario_id in split.scenario_ids:
            return split[split.index(scenario_id)]
    raise DataError(f"no split holds scenario {scenario_id!r}", file=store)
