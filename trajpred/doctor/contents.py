"""The sample, a store, and the trained models that ship."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trajpred.doctor.finding import Finding, reason
from trajpred.doctor.installation import onboard

#: What mends a damaged store; its own errors end with these words.
_AGAIN = "prepare it again"


def data(store: Path | None = None) -> Iterator[Finding]:
    """The sample that ships in the repository, and the store; by default the sample's, if it was prepared."""
    if onboard():
        return
    from trajpred.sources.argoverse2 import discover
    from trajpred.store.sample import SAMPLE_RAW, SAMPLE_STORE

    if SAMPLE_RAW.is_dir():
        yield Finding("ok", f"sample: {sum(map(len, discover(SAMPLE_RAW).values()))} scenarios")
    else:
        yield Finding("note", "no sample", "it is in the repository, not in the package: name a --store")
    if store is not None or SAMPLE_STORE.is_dir():
        yield from stored(store or SAMPLE_STORE)


def stored(store: Path) -> Iterator[Finding]:
    """Each split of a store: files as long as they were written, the first and last row of each read."""
    from trajpred.errors import DataError
    from trajpred.store.reader import prepare_command, read_manifest

    try:
        manifest = read_manifest(store)
    except DataError as error:  # says itself what to do
        yield Finding("problem", str(error))
        return
    yield Finding("ok", f"store of {manifest.get('source')}: {store}")
    again = f"{_AGAIN}: {prepare_command(store, manifest)}"
    for split, facts in manifest["splits"].items():
        yield _examined(store, split, facts, again)


def _examined(store: Path, split: str, facts: dict[str, Any], again: str) -> Finding:
    """What :func:`_split` finds; whatever is wrong with one split, the next is looked at too."""
    from trajpred.errors import DataError

    try:
        return _split(store, split, facts)
    except DataError as error:
        return Finding("problem", str(error).removesuffix(f"; {_AGAIN}"), again)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Finding("problem", f"{split} cannot be checked ({reason(error)})", again)


def _split(store: Path, split: str, facts: dict[str, Any]) -> Finding:
    from trajpred.errors import DataError
    from trajpred.store import ScenarioStore

    rows, start, read = ScenarioStore(store, split), 0, 0
    for shard in facts["shards"]:
        file, count = store / split / shard["file"], shard["scenarios"]
        for row in {start, start + count - 1} if count else ():
            rows[row]
            read += 1
        if file.stat().st_size != json.loads(file.with_suffix(".json").read_text())["bytes"]:
            raise DataError("is not as long as it was written", file=file)
        start += count
    told = f"{split}: {len(rows)} scenarios in {len(facts['shards'])} shards, {read} of them read"
    skipped = len(facts["skipped"])
    return Finding("note", told, f"{skipped} were skipped, see {store}") if skipped else Finding("ok", told)


def models() -> Iterator[Finding]:
    """The weights that ship: found, undamaged, and fitting the model."""
    if onboard():
        return
    from trajpred.errors import DataError
    from trajpred.model import Forecaster
    from trajpred.model.pretrained import list_models

    if not list_models():
        yield Finding("problem", "no weights ship with this installation", "install trajpred again")
    for name in list_models():
        try:
            model = Forecaster.from_pretrained(name)
        except DataError as error:
            yield Finding("problem", str(error), "install trajpred again")
        else:
            size = sum(parameter.numel() for parameter in model.parameters()) / 1e6
            yield Finding("ok", f"{name}: {size:.1f} M parameters, from {model.history} steps")
