"""Is this installation healthy? Each check tells what is well, what to know, and what to do about it.

Nothing but the standard library is imported before it was looked at: what is broken is told, not raised.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from trajpred.doctor.contents import data, models
from trajpred.doctor.finding import Check, Finding, reason
from trajpred.doctor.installation import optional, versions
from trajpred.doctor.machine import hardware, space


def main(args: Sequence[str] | None = None) -> int:
    """Print the report; 1 if there is a problem, else 0."""
    parser = argparse.ArgumentParser(prog="tools/doctor.py", description="Check this installation.")
    parser.add_argument("--store", type=Path, help="also check a store: folder written by tools/prepare.py")
    store = parser.parse_args(args).store
    checks: dict[str, Check] = {
        "versions": versions,
        "optional": optional,
        "machine": hardware,
        "space": lambda: space(store),
        "data": lambda: data(store),
        "trained models": models,
    }
    levels = [one.level for name, check in checks.items() for one in report(name, check)]
    print(f"{levels.count('problem')} problems, {levels.count('note')} notes")
    return int("problem" in levels)


def report(name: str, check: Check) -> Iterator[Finding]:
    """The findings of a check, printed below its name. One that fails is a problem itself."""
    print(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for finding in check():
                print(finding, flush=True)
                yield finding
    except Exception as error:  # whatever a broken installation raises
        advice = "solve the problems above first; if there are none, install trajpred again"
        failed = Finding("problem", f"cannot be checked ({reason(error)})", advice)
        print(failed, flush=True)
        yield failed
