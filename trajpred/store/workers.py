"""Where the jobs of a run are worked on: in this process, in several processes, or on a Dask cluster."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from joblib import Parallel, delayed, effective_n_jobs, parallel_config

from trajpred.errors import DataError, require

J = TypeVar("J")
R = TypeVar("R")
#: How long to wait for the scheduler, and for the first of its workers.
TIMEOUT_S = 10
_WATCH_S = 0.5


class Run(Protocol):
    """Calls a function on each of the jobs, several at once; its results come in the jobs' order."""

    def __call__(self, function: Callable[[J], R], jobs: Sequence[J]) -> Generator[R, None, None]: ...


@contextmanager
def workers(count: int, scheduler: str | None) -> Iterator[Run]:
    """The workers of one run.

    Args:
        count: processes of this machine; -1 for all cores.
        scheduler: address of a Dask scheduler, whose workers take the place of these processes.

    Raises:
        DataError: no such number, no answer from the scheduler within ten seconds, no ``distributed``.
    """
    require(count != 0, "workers", "must be a number of processes, or -1 for all cores")
    if scheduler is None:
        yield partial(_run_here, effective_n_jobs(count))
    else:
        with _client(scheduler) as client:
            options = {"client": client, "wait_for_workers_timeout": TIMEOUT_S}
            yield partial(_run_on_cluster, {"n_jobs": -1, "backend": "dask", **options})


def _run_here(count: int, function: Callable[[J], R], jobs: Sequence[J]) -> Generator[R, None, None]:
    options: dict[str, Any] = {"n_jobs": max(1, min(count, len(jobs)))}
    if options["n_jobs"] > 1:
        options |= {"backend": "loky", "initializer": _follow, "initargs": (os.getpid(),)}
    try:
        yield from _run(options, function, jobs)
    except BrokenExecutor:
        problem = "a process died, perhaps for want of memory; try fewer, the same command continues"
        raise DataError(problem, field="workers") from None


def _run_on_cluster(
    options: dict[str, Any], function: Callable[[J], R], jobs: Sequence[J]
) -> Generator[R, None, None]:
    from distributed import CancelledError, KilledWorker

    try:
        yield from _run(options, function, jobs)
    except (CancelledError, KilledWorker, TimeoutError) as error:
        problem = f"the cluster's workers are gone ({type(error).__name__}); the same command continues"
        raise DataError(problem, field="scheduler") from None


def _run(options: dict[str, Any], function: Callable[[J], R], jobs: Sequence[J]) -> Generator[R, None, None]:
    if jobs:
        with parallel_config(**options):
            pool = Parallel(return_as="generator")
        with closing(pool(delayed(function)(job) for job in jobs)) as results:
            yield from results


def _follow(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end when it does; joblib's processes would go on for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _client(scheduler: str) -> Iterator[Any]:
    try:
        from distributed import Client
        from distributed.comm import resolve_address
    except ImportError:
        problem = "needs dask.distributed: pip install 'trajpred[cluster]'"
        raise DataError(problem, field="scheduler") from None
    try:
        resolve_address(scheduler)  # else Client would hang for 20 s after its error
        client = Client(scheduler, timeout=TIMEOUT_S, set_as_default=False)
    except Exception as error:  # an address where something else answers provokes anything
        problem = f"no Dask scheduler answers at {scheduler} ({str(error) or type(error).__name__})"
        raise DataError(problem, field="scheduler") from None
    with client:
        yield client
