"""Rows of the leaderboard: train for a budget of core minutes, evaluate once, write a result for each seed.

``python tools/benchmark_row.py --help`` explains it; docs/results/leaderboard.md states the rules.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import resource
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from cyclopts import App, Parameter

from trajpred.data.files import atomic_file
from trajpred.data.registry import load_module, source_digest
from trajpred.data.splits import Half
from trajpred.errors import DataError, require
from trajpred.evaluation import Evaluation, evaluate, read_results, write_results
from trajpred.evaluation.recipes import by_recipe, over_seeds
from trajpred.evaluation.report import markdown, note_of
from trajpred.evaluation.table import Interval, compare, pairs
from trajpred.model.pretrained import CHECKPOINTS, LAST
from trajpred.predictors import load_predictor
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.predictors.predictor import Predictor
from trajpred.store import ScenarioStore

#: Milliseconds of :func:`reference_ms` on the core of the first rows; all times are scaled by it.
REFERENCE_MS = 8.0
#: A training that exceeds its budget by this factor is timed again: other work slowed it down.
MOST = 1.05
#: Steps of the two short trainings that separate the start-up time from the time per step. Batches differ in
#: size by a factor of four: 200 of them have a mean that is known to 3 %.
PROBES = (20, 220)
#: Settings of the folder of a training's results.
LOGGER = "--trainer.logger.init_args"
#: Number of scenes for measuring the time of a forecast.
TIMED = 32
#: Settings of every training: one core, no validation, the schedule ends with the steps.
BUDGETED = (
    *("--trainer.accelerator", "cpu", "--trainer.devices", "1", "--trainer.max_epochs", "-1"),
    *("--trainer.limit_val_batches", "0", "--pictures.scenes", "0"),
)
#: Costs in the table, in these units.
COSTS = {"parameters": 1e6, "scaled_s": 60.0, "ms_per_scene": 1.0}
#: Metrics of the table, for focal agents.
METRICS = ("minADE6", "minFDE6", "MR6", "brier-minFDE6", "minFDE1")
Plugin = Annotated[Path | None, Parameter(name="--import")]
OUT = Path("runs/leaderboard")
app = App(
    name="benchmark_row",
    help="Make rows of the leaderboard.",
    default_parameter=Parameter(consume_multiple=True, negative_iterable=()),
)


def reference_ms() -> float:
    """Measure the median CPU time of a fixed computation on this core, independent of trajpred.

    Its memory is allocated once: whether the system takes back what is freed differs between processes.
    """
    x = torch.linspace(-1, 1, 2**18).reshape(4096, 64)
    product = torch.empty_like(x)
    weight = torch.empty_like(x)
    in_order = np.empty(x.numel(), np.float32)
    times: list[float] = []
    for _ in range(30):
        start = time.process_time()
        for _ in range(8):
            torch.mm(x, x[:64].T, out=product)
            torch.softmax(product, 1, out=weight)
            torch.sub(weight, x, out=x)
        in_order[:] = x.numpy().ravel()
        in_order.sort()
        sum(i * i for i in range(50_000))
        times.append(1e3 * (time.process_time() - start))
    return float(np.median(times))


def core_seconds(settings: Sequence[str], plugin: Path | None) -> float:
    """Train in a single-threaded process; return the CPU seconds of this process and its children.

    Raises: DataError if the training failed, or was stopped.
    """
    from trajpred.training.checkpoint_io import STOPPED

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = multiprocessing.get_context("spawn").Process(target=_train, args=(settings, plugin))
    process.start()
    while process.is_alive():
        with suppress(KeyboardInterrupt):  # Ctrl-C stops the training, too, which saves a checkpoint first
            process.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.exitcode == STOPPED:
        raise DataError("the training was stopped; run benchmark_row again to continue it")
    if process.exitcode:
        raise DataError(f"the training ended with exit code {process.exitcode}; see the error above")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _train(settings: Sequence[str], plugin: Path | None) -> None:
    from trajpred.cli.models import silence_libraries
    from trajpred.training.train import train as run

    torch.set_num_threads(1)
    silence_libraries()
    try:
        if plugin is not None:
            load_module(str(plugin))
        run(settings)
    except DataError as error:
        sys.exit(f"error: {error}")


class Pace(NamedTuple):
    """CPU seconds until the first step of a training, and per step, scaled to the reference core."""

    start_s: float
    step_s: float

    @classmethod
    def measure(cls, settings: Sequence[str], plugin: Path | None) -> Pace:
        """Measure with two short trainings, of :data:`PROBES` steps."""
        scale = REFERENCE_MS / reference_ms()
        seconds: list[float] = []
        for steps in PROBES:
            with TemporaryDirectory() as folder:
                limits = [f"{LOGGER}.save_dir", folder, "--trainer.max_steps", str(steps)]
                seconds.append(scale * core_seconds([*settings, *limits], plugin))
        short_s, long_s = seconds
        few, many = PROBES
        step_s = (long_s - short_s) / (many - few)
        return cls(start_s=short_s - few * step_s, step_s=step_s)

    def affordable(self, budget_s: float) -> int:
        """Compute how many steps a budget of scaled CPU seconds allows."""
        steps = int((budget_s - self.start_s) / self.step_s)
        pace = f"{1e3 * self.step_s:.0f} ms a step after {self.start_s:.0f} s"
        print(f"{pace}: {steps:,} steps in {budget_s:.0f} s")
        require(steps > 0, "minutes", "are too few to start")
        return steps

    def seconds(self, steps: int) -> float:
        """Compute the scaled CPU seconds of a training."""
        return self.start_s + steps * self.step_s


@app.command
def train(
    name: str,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True)],
    store: Path,
    minutes: float = 10.0,
    seeds: list[int] = [0, 1, 2],  # noqa: B006
    half: Half = "reporting",
    plugin: Plugin = None,
    out: Path = OUT,
) -> None:
    """Train from random weights for this many core minutes, once per seed, and evaluate each model once.

    Seeds with existing results are skipped, and a stopped training is resumed, so that a stopped command
    continues. If a training was resumed, or slowed down by other work, its time is estimated by two short
    trainings: the result does not depend on the load.

    Args:
        name: Name of the row and its files.
        settings: Settings of trajpred train: --config FILE … --NAME VALUE.
        store: Folder written by prepare, with the training and validation scenes.
        minutes: CPU time of all processes of a training, including features, on the core of the first rows;
            on other cores it is scaled by the time of a fixed computation.
        seeds: Seeds of the trainings.
        half: Half of the validation scenes: choose models on one, report on the other.
        plugin: A module of your own.
        out: Folder of results and runs.
    """
    torch.set_num_threads(1)
    if plugin is not None:
        load_module(str(plugin))
    budget_s = 60 * minutes
    words = [*settings, "--data.store", str(store), *BUDGETED]
    plan = {"settings": list(settings), "minutes": minutes}
    if plugin is not None:
        plan["source"] = source_digest(plugin.stem)
    steps = steps_of(sorted(out.glob(f"{name}_[0-9]*.json")), settings, minutes)
    for seed in seeds:
        path = out / f"{name}_{seed}.json"
        if path.is_file():
            check_time(path, words, plugin, budget_s)
            continue
        run = out / "runs" / name / f"seed_{seed}"
        if steps is None:
            stopped = stopped_plan(run)
            is_same = stopped.items() >= plan.items()
            steps = stopped["steps"] if is_same else Pace.measure(words, plugin).affordable(budget_s)
        facts = train_seed(run, seed, words, plugin, plan | {"steps": steps})
        predictor = load_predictor(run / CHECKPOINTS / LAST)
        write_row(path, name, predictor, ScenarioStore(store, "val").halved(half), facts)
        plan_file(run).unlink()
        check_time(path, words, plugin, budget_s)


def train_seed(
    run: Path, seed: int, settings: Sequence[str], plugin: Path | None, plan: dict[str, Any]
) -> dict[str, Any]:
    """Train into the folder ``run``, or resume a stopped training with the same plan; return its costs."""
    folder = [f"{LOGGER}.save_dir", str(run.parent.parent), f"{LOGGER}.name", run.parent.name]
    own = [*folder, f"{LOGGER}.version", run.name, "--seed_everything", str(seed)]
    words = [*settings, *own, "--trainer.max_steps", str(plan["steps"])]
    facts = {"settings": plan["settings"], "minutes": plan["minutes"]}
    if stopped_plan(run) == plan:
        core_seconds([*words, "--resume", str(run)], plugin)
        scaled_s = Pace.measure(settings, plugin).seconds(plan["steps"])
        return facts | {"scaled_s": round(scaled_s, 1), "timed_again": True}
    shutil.rmtree(run, ignore_errors=True)
    run.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(plan_file(run)) as unfinished:
        unfinished.write_text(json.dumps(plan))
    before_ms = reference_ms()
    core_s = core_seconds(words, plugin)
    mean_ms = (before_ms + reference_ms()) / 2
    times = {"core_s": round(core_s, 1), "reference_ms": round(mean_ms, 2)}
    return facts | times | {"scaled_s": round(core_s * REFERENCE_MS / mean_ms, 1)}


def plan_file(run: Path) -> Path:
    """Return the file, beside the folder of an unfinished training, of what it was started with."""
    return run.with_suffix(".json")


def stopped_plan(run: Path) -> dict[str, Any]:
    """Return what a stopped training was started with; empty if there is none to resume."""
    if not plan_file(run).is_file() or not (run / CHECKPOINTS / LAST).is_file():
        return {}
    plan: dict[str, Any] = json.loads(plan_file(run).read_text())
    return plan


def steps_of(results: Sequence[Path], settings: Sequence[str], minutes: float) -> int | None:
    """Return the number of steps of the finished seeds of a row, None if there are none.

    Raises: DataError if a seed was trained with other settings or for another time.
    """
    steps: int | None = None
    for path in results:
        training = read_results(path)[0].training
        facts = training["benchmark"]
        trained_minutes = facts.get("minutes", minutes)  # older files do not state it
        if trained_minutes != minutes or facts["settings"] != list(settings):
            trained = f"was trained for {trained_minutes:g} minutes with {' '.join(facts['settings'])}"
            raise DataError(f"{path}: {trained}; give another NAME or another --out")
        steps = training["steps"]
    return steps


def check_time(path: Path, settings: Sequence[str], plugin: Path | None, budget_s: float) -> None:
    """Measure the time of a finished training again if it exceeds the budget, and record the lower time."""
    result = read_results(path)[0]
    facts = result.training["benchmark"]
    if facts["scaled_s"] > MOST * budget_s:
        again_s = Pace.measure(settings, plugin).seconds(result.training["steps"])
        facts = facts | {"scaled_s": round(min(again_s, facts["scaled_s"]), 1), "timed_again": True}
        write_results(path, replace(result, training=result.training | {"benchmark": facts}))
    taken = f"{path}: {facts['scaled_s'] / 60:.1f} of {budget_s / 60:g} core minutes"
    if facts["scaled_s"] > MOST * budget_s:
        taken += "; run this command again when the machine is quiet, to measure the time again"
    print(taken)


@app.command
def score(
    name: str,
    *,
    checkpoint: str,
    store: Path,
    half: Half = "reporting",
    plugin: Plugin = None,
    out: Path = OUT,
) -> None:
    """Evaluate a checkpoint, a baseline or a predictions file of any origin.

    Args:
        name: Name of the row and its file.
        checkpoint: As for trajpred evaluate.
        store: Folder written by prepare.
        half: Half of the validation scenes.
        plugin: A module of your own.
        out: Folder of results.
    """
    torch.set_num_threads(1)
    if plugin is not None:
        load_module(str(plugin))
    path = out / f"{name}.json"
    write_row(path, name, load_predictor(checkpoint), ScenarioStore(store, "val").halved(half), {})


def write_row(
    path: Path, name: str, predictor: Predictor, rows: ScenarioStore, facts: dict[str, Any]
) -> None:
    """Evaluate a predictor on all agents with one thread; write the result with ``facts`` about its costs.

    The milliseconds to predict a scene are scaled to the reference core, as the time of a training is.
    """
    result = evaluate(predictor, rows, complete=True)
    costs = dict(facts)
    if isinstance(predictor, CheckpointPredictor):
        costs["parameters"] = sum(weight.numel() for weight in predictor.model.parameters())
    scenes = [rows[i] for i in range(min(TIMED, len(rows)))]
    times: list[float] = []
    for scene in scenes:
        start = time.process_time()
        predictor([scene])
        times.append(1e3 * (time.process_time() - start))
    costs["ms_per_scene"] = round(float(np.median(times)) * REFERENCE_MS / reference_ms(), 2)
    training = dict(result.training) | {"recipe": name, "benchmark": costs}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_results(path, replace(result, predictor=name, training=training))
    print(f"wrote {path}")


@app.command
def table(*results: Path) -> None:
    """Print the Markdown table of result files, ranked by the minFDE6 of moving agents.

    Args:
        results: Files written by train and score.
    """
    evaluations: list[Evaluation] = []
    files: list[Path] = []
    for path in results:
        for result in read_results(path):
            evaluations.append(result)
            files.append(path)
    recipes = by_recipe(evaluations, files)
    ranked = sorted(recipes.items(), key=lambda recipe: mean_of(recipe[1]).mean)
    rows: list[list[str]] = []
    above: list[Evaluation] | None = None
    for name, seeds in ranked:
        against = "" if above is None else f"{compare(seeds, above, group='moving'):+}"
        interval = mean_of(seeds)
        bounds = "" if math.isnan(interval.low) else f"{interval.low:.2f} to {interval.high:.2f}"
        moving = [over_seeds(seeds, "minFDE6", "moving"), bounds, against]
        focal = [over_seeds(seeds, metric) for metric in METRICS]
        rows.append([name, *moving, *focal, *costs(seeds)])
        above = seeds
    moving_columns = ["moving minFDE6", "moving minFDE6 interval", "moving minFDE6 against above"]
    print(markdown(["", *moving_columns, *METRICS, "million parameters", "core minutes", "ms a scene"], rows))
    note = note_of([result for _, seeds in ranked for result in seeds], "")
    if note:
        print(f"\n{note}")


def mean_of(seeds: Sequence[Evaluation]) -> Interval:
    """Compute the mean minFDE6 of moving agents over the seeds, with its interval over recordings."""
    paired = pairs(seeds, "moving")
    return paired.possible_intervals({"minFDE6": paired.values["minFDE6"].mean(axis=0)})["minFDE6"]


def costs(seeds: Sequence[Evaluation]) -> list[str]:
    """Format the mean over the seeds of each of :data:`COSTS`; empty where none was recorded."""
    texts: list[str] = []
    for name, unit in COSTS.items():
        values = [result.training.get("benchmark", {}).get(name) for result in seeds]
        recorded = [value / unit for value in values if value is not None]
        texts.append(f"{np.mean(recorded):.3g}" if recorded else "")
    return texts


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        app()
    except (DataError, OSError) as error:
        sys.exit(f"error: {error}")
