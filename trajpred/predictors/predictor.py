"""The base class of predictors, and their forecasts of a store: batch by batch, in one process or several."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, TypeAlias

from trajpred.data.environment import processes
from trajpred.data.files import progress_bar
from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError, require
from trajpred.store import ScenarioStore
from trajpred.store.jobs import serve


class Predictor:
    """Forecasts scenarios. Your own predictor is a subclass with a ``name`` and a ``__call__``.

    Attributes:
        name: the name in tables.
        training: how the model was trained (:class:`trajpred.training.TrainingRecord`), if known.
        joint: whether mode k of all agents of a scene is one joint mode.
        how: the way of forecasting, if a model has several (``joint``, ``mirrored``).
        fork_safe: whether it also works in forked processes, without state or a GPU of this process.

    Example:
        >>> predictor = load_predictor("constant_velocity")
        >>> [forecast] = predictor([scenario])
    """

    name: str
    training: Mapping[str, Any] = {}
    joint: bool = False
    how: str = ""
    fork_safe: bool = False

    @property
    def members(self) -> tuple[Predictor, ...]:
        """The predictors that it consists of; itself by default."""
        return (self,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    def steps(self, scenario: Scenario) -> int:
        """Return how many steps of ``scenario`` it predicts; by default all future steps."""
        return future_steps(scenario)

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        """Forecast each scenario, in order."""
        raise NotImplementedError


def future_steps(scenario: Scenario) -> int:
    """Return the number of steps to predict: the scenario's, or 6 s if it ends with the observed steps."""
    return scenario.num_future or round(6 / scenario.step_s)


#: Scenarios and their forecasts.
Batch: TypeAlias = tuple[list[Scenario], list[Forecast]]


class Job(NamedTuple):
    """The work of every process of :func:`forecast_store`: the predictor, and where its scenarios are."""

    predictor: Predictor
    store: ScenarioStore
    labelled: bool

    def scenarios(self, rows: Sequence[int]) -> list[Scenario]:
        """Read the recorded part of the scenarios of ``rows``."""
        scenarios = [self.store[row].without_continuation() for row in rows]
        if not self.labelled:
            return scenarios
        return [scenario for scenario in scenarios if scenario.has_future]

    def batch(self, rows: Sequence[int]) -> Batch:
        """Read and forecast the scenarios of ``rows``, which may be empty."""
        scenarios = self.scenarios(rows)
        forecasts = self.predictor(scenarios) if scenarios else []
        return scenarios, forecasts


#: Seconds that a stopped command waits for its processes.
PATIENCE_S = 5.0
#: The job of a worker process, inherited by forking.
_job: Job | None = None


def forecast_store(
    predictor: Predictor,
    store: ScenarioStore,
    *,
    labelled: bool = False,
    batch_size: int = 16,
    limit: int | None = None,
    workers: int = 1,
    progress: bool = False,
) -> Iterator[Batch]:
    """Yield the scenarios of each batch and their forecasts, in the order of the store.

    Args:
        labelled: leave out scenarios without a future.
        batch_size: scenarios at once per process.
        limit: only the first ``limit`` scenarios.
        workers: processes, -1 for all cores. Only one is used for GPUs, onboard bundles and predictions files
            (:attr:`Predictor.fork_safe`), and on systems that cannot fork.
        progress: show a progress bar.

    Raises: DataError if a number is out of range, the scenarios do not fit the model, or a process dies.
    """
    require(batch_size > 0, "batch_size", "must be positive")
    require(limit is None or limit > 0, "limit", "must be positive")
    count = len(store) if limit is None else min(limit, len(store))
    batches = list(in_batches(range(count), batch_size))
    job = Job(predictor, store, labelled)
    used = min(processes(workers), len(batches))
    if not predictor.fork_safe or "fork" not in multiprocessing.get_all_start_methods():
        used = 1
    results = _forked(job, batches, used) if used > 1 else map(job.batch, batches)
    with progress_bar(total=count, unit=" scenarios", desc=predictor.name, shown=progress) as bar:
        for rows, result in zip(batches, results, strict=True):
            yield result
            bar.update(len(rows))


def in_batches(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Split ``rows`` into runs of at most ``size``."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _forked(job: Job, batches: Sequence[Sequence[int]], count: int) -> Iterator[Batch]:
    """Forecast in ``count`` forked single-threaded processes, which share the model's memory."""
    global _job
    _job = job
    context = multiprocessing.get_context("fork")
    try:
        pool = ProcessPoolExecutor(count, context, initializer=_start, initargs=(os.getpid(),))
    except OSError as error:
        problem = f"no processes can be started ({error.strerror})"
        advice = "give 1, or more shared memory or open files"
        raise DataError(f"{problem}: {advice}", field="workers") from None
    others = {*multiprocessing.active_children()}
    waiting: deque[Future[tuple[list[Forecast], list[str]]]] = deque()
    warned = False
    try:
        remaining = deque(batches)
        for rows in batches:
            while remaining and len(waiting) < 2 * count:
                waiting.append(pool.submit(_forecast, remaining.popleft()))
            # Read the scenarios again here, which is cheaper than sending them.
            scenarios = job.scenarios(rows)
            forecasts, problems = waiting.popleft().result()
            if problems and not warned:
                warned = True  # the other processes repeat it
                warnings.warn(problems[0], stacklevel=2)
            yield scenarios, forecasts
    except BrokenProcessPool:
        problem = "a process died, possibly out of memory; try fewer workers"
        raise DataError(problem, field="workers") from None
    except (KeyboardInterrupt, SystemExit):
        pool.shutdown(wait=False, cancel_futures=True)
        _end_soon({*multiprocessing.active_children()} - others)
        raise
    finally:
        _job = None
        pool.shutdown(cancel_futures=True)


def _end_soon(pool: Iterable[BaseProcess]) -> None:
    """Wait for the processes' batches; kill those that take longer than :data:`PATIENCE_S`."""
    end = time.monotonic() + PATIENCE_S
    for process in pool:
        process.join(max(0.0, end - time.monotonic()))
        process.kill()
        process.join()


def _start(parent: int) -> None:
    """Prepare a worker process, which ends with ``parent``."""
    import torch  # predictions files are read without it

    torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
    gc.freeze()  # nor do threads that uncollected onnxruntime sessions would wait for
    serve(parent)


def _forecast(rows: Sequence[int]) -> tuple[list[Forecast], list[str]]:
    """Forecast, and also return the warnings about the scenarios."""
    assert _job is not None
    with warnings.catch_warnings(record=True) as said:
        _, forecasts = _job.batch(rows)
    return forecasts, [str(warning.message) for warning in said if warning.category is UserWarning]
