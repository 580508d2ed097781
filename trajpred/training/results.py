"""What a finished run leaves in its folder: learning curves, validation tables, the worst scenes."""

from __future__ import annotations

import shlex
from pathlib import Path

from trajpred.evaluation import evaluate, write_results
from trajpred.evaluation.report import beside, show, tables, to_markdown
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore
from trajpred.store.sample import store_words
from trajpred.training.record import RunHistory
from trajpred.viz.curves import draw_curves
from trajpred.viz.scene import draw_scene, save_scene

#: Files in the folder of a run. ``evaluation.json`` is the input of ``trajpred compare``.
CURVES, EVALUATION, TABLES, WORST = "curves.png", "evaluation.json", "evaluation.md", "worst_{}.png"
#: The metric of the focal agent that chooses the worst scenes.
WORST_BY = "minFDE6"
DPI = 110


def report(store: Path, checkpoint: Path, run: Path | None, history: RunHistory, scenes: int) -> None:
    """Evaluate ``checkpoint`` on the validation split, print the outcome, and fill the run's folder.

    Args:
        run: the folder; None without a logger, when nothing is written.
        history: curves of the run.
        scenes: number of worst scenes to draw.
    """
    rows = ScenarioStore(store, "val")
    print(f"\nEvaluating {checkpoint.name} on {len(rows):,} validation scenes", flush=True)
    predictor, constant_velocity = (load_predictor(name) for name in (checkpoint, "constant_velocity"))
    result, baseline = (evaluate(one, rows) for one in (predictor, constant_velocity))
    show([beside(result, baseline)], note="")
    if result.missing["all"]:
        print(f"{result.missing['all']} agents beyond the model's limits were not predicted.")
    if run is not None:
        write_results(run / EVALUATION, [baseline, result])
        (run / TABLES).write_text(to_markdown(tables(result)), encoding="utf-8")
        curves = draw_curves(history.rows, f"{run.parent.name}/{run.name}", result.training.get("steps"))
        save_scene(curves, run / CURVES, dpi=DPI)
        for number, name in enumerate(result.worst(WORST_BY, scenes), 1):
            scenario = rows[rows.index(name)]
            save_scene(draw_scene(scenario, predictor([scenario])[0]), run / WORST.format(number), dpi=DPI)
        _print_files(run, checkpoint)
    options = shlex.join(["--checkpoint", str(checkpoint), *store_words(store)])
    print("Next:")
    print(f"  trajpred visualize {options} --out {shlex.quote(str((run or Path()) / 'pictures'))}")
    print(f"  trajpred evaluate {options} --by all")
    if run is not None and any(run.glob("events.*")):
        print(f"  tensorboard --logdir {shlex.quote(str(run))}")


def _print_files(run: Path, checkpoint: Path) -> None:
    """Print which files are where."""
    model = checkpoint.resolve()
    if model.is_relative_to(run.resolve()):
        model = model.relative_to(run.resolve())
    files = {
        CURVES: "learning curves",
        TABLES: "validation tables",
        EVALUATION: "the same and more, for trajpred compare",
        WORST.format(1): f"the validation scene with the largest {WORST_BY}; further ones follow",
        "config.yaml": "all settings",
        model.as_posix(): "the model",
    }
    files = {name: text for name, text in files.items() if (run / name).exists()}
    width = max(map(len, files))
    print(f"Results in {run}:")
    print("\n".join(f"  {name:<{width}}  {text}" for name, text in files.items()))
