"""Spoils small files by the thousand and reads them, each reader in a process of its own.

    python -m tests.fuzz.campaign --inputs 100000 --out runs/fuzz

A reader may refuse an input with a DataError. Findings are any other error, a process that dies, and an input
that takes more time or memory than the limit. Input i of a reader depends on the seed and on i alone. Failing
inputs are written to ``--out``; the last line tells how many kinds of failure there were.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.reader import Maker, Reader
from trajpred.errors import DataError

#: An input that takes more processor time, or makes the process larger by more, is a finding.
SLOW_S, GROWTH_MIB = 2.0, 512
#: A process may take so much more address space than it begins with: what asks for more fails at once.
SPACE_BYTES = 8 * 2**30
#: A process that has said nothing for so long hangs.
SILENCE_S = 60.0


@dataclass
class Tally:
    """What became of a reader's inputs. ``findings``: kind of failure -> the first input that shows it."""

    name: str
    inputs: int = 0
    read: int = 0
    cpu_s: float = 0.0
    slowest_s: float = 0.0
    growth_mib: float = 0.0
    findings: Counter[str] = field(default_factory=Counter)


def spoilt_input(reader: Reader, seed: int, number: int) -> bytes:
    return reader.spoilt(Random(f"{seed}/{number}"))


def failure(reader: Reader, content: bytes) -> tuple[str | None, bool]:
    """What is wrong with how ``reader`` takes ``content``, in a line that is the same for the same fault; and
    whether it could be read."""
    try:
        reader.read(content)
    except DataError:
        return None, False
    except Exception as error:
        frames = [
            f for f in traceback.extract_tb(error.__traceback__) if "trajpred" in Path(f.filename).parts
        ]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "elsewhere"
        return f"{type(error).__name__} {where}", False
    return None, True


def _mib(of: str) -> float:
    """``VmRSS``: what this process holds; ``VmHWM``: the most since it was last told to forget."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{of}:"))


def _forget_peak() -> None:
    """Else a small peak would hide behind a larger one before it."""
    Path("/proc/self/clear_refs").write_text("5")


def _limit_space() -> None:
    import resource  # not on Windows, where this module is imported too

    space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (space + SPACE_BYTES, resource.RLIM_INFINITY))


def _work(maker: Maker, seed: int, numbers: range, told: Connection) -> None:
    """Read the inputs ``numbers``; tells how far it is before it could die, and of every failure."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        reader = maker(Path(folder))
        for content in reader.seeds:
            reader.read(content)
        _limit_space()
        for number in numbers:
            told.send(("at", number, None))
            content = spoilt_input(reader, seed, number)
            _forget_peak()
            held, start = _mib("VmRSS"), time.process_time()
            problem, was_read = failure(reader, content)
            spent, growth = time.process_time() - start, _mib("VmHWM") - held
            problem = problem or (f"takes over {SLOW_S:g} s" if spent > SLOW_S else None)
            problem = problem or (f"takes over {GROWTH_MIB} MiB" if growth > GROWTH_MIB else None)
            if problem is not None:
                told.send(("failed", number, problem))
            told.send(("took", number, (was_read, spent, growth)))
        told.send(("done", numbers.stop, None))


def fuzz(name: str, maker: Maker, inputs: int, seed: int = 0, out: Path | None = None) -> Tally:
    """Read ``inputs`` spoilt inputs. A process that dies or hangs is followed by one that goes on behind."""
    tally, start = Tally(name, inputs), 0
    context = multiprocessing.get_context("spawn")
    while start < inputs:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(maker, seed, range(start, inputs), there), daemon=True)
        process.start()
        there.close()
        start = _listen(here, process, tally, maker, seed, out, start)
        process.join()
    return tally


def _listen(
    here: Connection, process: Any, tally: Tally, maker: Maker, seed: int, out: Path | None, start: int
) -> int:
    """Take what a process tells until its end; where to go on."""
    at = start
    while True:
        if not here.poll(SILENCE_S):
            process.kill()
            _note(tally, "hangs", at, maker, seed, out)
            return at + 1
        try:
            kind, at, value = here.recv()
        except EOFError:
            process.join()
            _note(tally, f"dies ({process.exitcode})", at, maker, seed, out)
            return at + 1
        if kind == "failed":
            _note(tally, value, at, maker, seed, out)
        elif kind == "took":
            was_read, spent, growth = value
            tally.read, tally.cpu_s = tally.read + was_read, tally.cpu_s + spent
            tally.slowest_s, tally.growth_mib = max(tally.slowest_s, spent), max(tally.growth_mib, growth)
        elif kind == "done":
            return at


def _note(tally: Tally, problem: str, number: int, maker: Maker, seed: int, out: Path | None) -> None:
    tally.findings[problem] += 1
    if out is not None and tally.findings[problem] == 1:
        with tempfile.TemporaryDirectory() as folder:
            content = spoilt_input(maker(Path(folder)), seed, number)
        words = f"{tally.name} {number} {problem}"
        (out / "".join(c if c.isalnum() or c in "-." else "_" for c in words)).write_bytes(content)


def table(tallies: Sequence[Tally]) -> str:
    """Markdown."""
    head = "| reader | inputs | read | refused | findings | ms each | slowest, s | growth, MiB |"
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for one in tallies:
        failed = sum(one.findings.values())
        lines.append(
            f"| {one.name} | {one.inputs:,} | {one.read:,} | {one.inputs - one.read - failed:,} | {failed} | "
            f"{1e3 * one.cpu_s / max(one.inputs, 1):.1f} | {one.slowest_s:.2f} | {one.growth_mib:.0f} |"
        )
    lines += [f"- {one.name}: {problem}, {n} times" for one in tallies for problem, n in one.findings.items()]
    return "\n".join(lines)


def campaign(makers: dict[str, Maker], inputs: int, seed: int = 0, out: Path | None = None) -> list[Tally]:
    """``inputs`` in all, shared out by the readers' rates."""
    with tempfile.TemporaryDirectory() as folder:
        places = {name: Path(folder) / str(i) for i, name in enumerate(makers)}
        for place in places.values():
            place.mkdir()
        rates = {name: maker(places[name]).rate for name, maker in makers.items()}
    each = inputs / sum(rates.values())
    tallies = []
    for name, maker in makers.items():
        tallies.append(fuzz(name, maker, max(1, round(rates[name] * each + 0.5)), seed, out))
        print(table(tallies[-1:]).split("\n", 2)[2], file=sys.stderr, flush=True)
    return tallies


def main() -> None:
    from tests.fuzz.readers import READERS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=100_000, help="of all readers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="for failing inputs")
    parser.add_argument("--only", default="", help="readers whose name holds this")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    chosen = {name: maker for name, maker in READERS.items() if given.only in name}
    start = time.monotonic()
    tallies = campaign(chosen, given.inputs, given.seed, given.out)
    found, read = sum(len(one.findings) for one in tallies), sum(one.inputs for one in tallies)
    print(f"{table(tallies)}\n\n{read:,} inputs, {found} findings, {(time.monotonic() - start) / 60:.1f} min")
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
