"""Run jobs in this process, in several processes, or on a Dask cluster."""

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

from joblib import Parallel, delayed, parallel_config

from trajpred.environment import install_command, processes
from trajpred.errors import DataError

J = TypeVar("J")
R = TypeVar("R")
#: Timeout for the scheduler, and for the first of its workers.
TIMEOUT_S = 10
_WATCH_S = 0.5


class Run(Protocol):
    """Apply a function to all jobs in parallel and yield the results in order."""

    def __call__(self, function: Callable[[J], R], jobs: Sequence[J]) -> Generator[R, None, None]: ...


@contextmanager
def workers(count: int, scheduler: str | None) -> Iterator[Run]:
    """Provide ``count`` local processes (-1: all cores), or the workers of a Dask scheduler at an address.

    Raises: DataError if the count is invalid, the scheduler does not answer, or ``distributed`` is missing.
    """
    count = processes(count)
    if scheduler is None:
        options = {"n_jobs": count, "backend": "loky", "initializer": serve, "initargs": (os.getpid(),)}
        problem = (
            "a process died, possibly out of memory; run the same command again to resume, with fewer workers"
        )
        yield partial(_run, options, BrokenExecutor, DataError(problem, field="workers"))
        return
    with _client(scheduler) as client:
        from distributed import CancelledError, KilledWorker

        options = {"backend": "dask", "client": client, "wait_for_workers_timeout": TIMEOUT_S}
        lost = DataError(
            "the cluster lost its workers; run the same command again to resume", field="scheduler"
        )
        yield partial(_run, options | {"n_jobs": -1}, (CancelledError, KilledWorker, TimeoutError), lost)


def _run(
    options: dict[str, Any], losses: Any, problem: DataError, function: Callable[[J], R], jobs: Sequence[J]
) -> Generator[R, None, None]:
    """Run jobs with these options of joblib; raise ``problem`` on an exception among ``losses``."""
    if not jobs:
        return
    try:
        with parallel_config(**options | {"n_jobs": min(options["n_jobs"], len(jobs))}):
            pool = Parallel(return_as="generator")
        with closing(pool(delayed(function)(job) for job in jobs)) as results:
            yield from results
    except losses:
        raise problem from None


def serve(parent: int) -> None:
    """Ignore Ctrl-C, which the parent handles, and exit with it, which the processes of pools do not."""
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
        problem = f"needs dask.distributed: {install_command('cluster')}"
        raise DataError(problem, field="scheduler") from None
    try:
        resolve_address(scheduler)  # otherwise Client hangs for 20 s after its error
        client = Client(scheduler, timeout=TIMEOUT_S, set_as_default=False)
    except Exception as error:  # anything may happen if another service answers
        problem = f"no Dask scheduler answers at {scheduler} ({str(error) or type(error).__name__})"
        raise DataError(problem, field="scheduler") from None
    with client:
        yield client
