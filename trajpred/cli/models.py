"""Commands that make and use models: train, predict, calibrate, export."""

from __future__ import annotations

import logging
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from trajpred.cli.scenarios import Positive, deciding, open_split
from trajpred.data.environment import command_words, install_command
from trajpred.data.files import require_writable
from trajpred.data.splits import Group, Half
from trajpred.errors import DataError, require

if TYPE_CHECKING:
    from trajpred.store import ScenarioStore

#: Library warnings that users of ``trajpred train`` cannot act on.
WARNINGS = (
    "LightningCLI's args",
    ".*does not have many workers",
    ".*logging interval",
    ".*LeafSpec",
    "Checkpoint directory .* is not empty",  # a resumed run
    "You're resuming from a checkpoint that ended before",  # SceneLoader resumes within the epoch
)


def train(*settings: Annotated[str, Parameter(allow_leading_hyphen=True, name="SETTINGS")]) -> int:
    """Train a forecaster; write checkpoints, TensorBoard logs, curves and a validation table.

    Example: trajpred train --weights argoverse-nano --data.store STORE

    Without settings, it trains on the bundled sample. The most common settings are --config FILE.yaml
    (several are merged), --data.store STORE, --data.batch_size N, --trainer.max_epochs N, --seed_everything
    N, --resume RUN and --weights CHECKPOINT. --print_config shows all values, --help_all describes every
    setting, and --model.encoder.help CLASS the settings of one class.

    Args:
        settings: --NAME VALUE or --NAME=VALUE, named as in the YAML files of configs/.
    """
    from trajpred.training.settings import read_settings

    words = ["--help" if word in ("--help_all", "--help-all") else word for word in settings]
    read_settings(words)  # before the import below, which takes seconds
    from trajpred.cli.training_report import report
    from trajpred.training.train import train as run

    silence_libraries()
    trained = run(words)
    if trained is not None:
        report(trained)
    return 0


def silence_libraries() -> None:
    """Hide messages of the training libraries, in the whole process."""
    threading.excepthook = _report_in_threads
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message)


def _report_in_threads(error: threading.ExceptHookArgs) -> None:
    """Print a thread's traceback, unless it is TensorBoard's writer: its next write raises the error."""
    if not isinstance(error.exc_value, OSError):
        threading.__excepthook__(error)


def predict(
    *,
    checkpoint: str = "constant_velocity",
    out: Path = Path("predictions.parquet"),
    store: Path | None = None,
    split: str = "val",
    half: Half | None = None,
    agents: Literal["focal", "scored", "all"] = "focal",
    joint: bool = False,
    mirror: bool = False,
    ensemble: list[str] | None = None,
    modes: Positive | None = None,
    batch_size: Positive = 16,
    limit: Positive | None = None,
    workers: int = -1,
) -> int:
    """Write a split's predictions to a parquet file of the Argoverse 2 challenges.

    Example: trajpred predict --checkpoint best.ckpt --store /data/av2-store --split test

    Args:
        checkpoint: Path of a checkpoint or run, or name of shipped weights or a baseline.
        out: The file, .parquet.
        store: Folder written by prepare; by default the sample's.
        split: train, val or test; scenarios without a labelled future are predicted too.
        half: Predict only this half of the split (docs/how-to/evaluate.md).
        agents: focal (single-agent challenge), scored (multi-agent challenge; a model needs --joint), or all,
            each with its own probabilities, for example to score moving agents.
        joint: Predict joint futures, where mode k of all agents is one future; for models with joint modes.
        mirror: Also predict the mirrored scenes with every model, and merge the modes.
        ensemble: Further checkpoints, whose modes are merged with the first one's.
        modes: Merge into this number of modes; 1 gives one future, the probability-weighted mean.
        batch_size: Scenarios per batch.
        limit: Predict only the first LIMIT scenarios.
        workers: Processes that run a model on the CPU; -1 for all cores.
    """
    require(out.suffix == ".parquet", "out", f"must end in .parquet, is {out}")
    require_writable(out)
    rows = open_split(store, split, half)
    from trajpred.predictors import load_ensemble
    from trajpred.predictors.predict import predict as write
    from trajpred.store.sample import split_words

    predictor = load_ensemble([checkpoint, *(ensemble or [])], joint, mirror, modes)
    scenarios, tracks = write(
        predictor, rows, out, agents, batch_size=batch_size, limit=limit, workers=workers
    )
    print(f"{out}: {tracks} tracks of {scenarios} scenarios")
    if not rows[0].has_future:
        return 0
    words = ["--checkpoint", str(out), *split_words(rows)]
    print(f"Score it: trajpred evaluate {command_words(*words)}")
    return 0


def calibrate(
    *,
    checkpoint: str = "argoverse-nano",
    out: Path = Path("calibrated.ckpt"),
    store: Path | None = None,
    split: str = "val",
    half: Half | None = None,
    coverage: float = 0.9,
    group: Group = "all",
    batch_size: Positive = 16,
    workers: int = -1,
) -> int:
    """Fit a temperature for the probabilities and conformal regions around the modes, and measure both.

    Example: trajpred calibrate --checkpoint best.ckpt --store STORE --out calibrated.ckpt

    Args:
        checkpoint: Path of a checkpoint or run, or name of shipped weights.
        out: The calibrated checkpoint, for all other commands.
        store: Folder written by prepare; by default the sample's.
        split: Scenarios that the model was not trained on: one third for fitting, one to decide whether to
            keep the temperature, one to measure both. The training split is reduced to its held-out
            scenarios (--data.hold_out).
        half: Use only this half of the split; by default the deciding one of val (docs/how-to/evaluate.md).
        coverage: Fraction of true positions that the regions should contain.
        group: Agents to fit to; all agents of a scene are predicted.
        batch_size: Scenarios per batch.
        workers: Processes that run the model on the CPU; -1 for all cores.
    """
    require_writable(out)
    rows = open_split(store, split, half)
    if half is None:
        rows = deciding(rows)
    from trajpred.data.tracks import OBJECT_TYPES
    from trajpred.evaluation.calibrate import calibrate as fit

    result = fit(checkpoint, rows, out, coverage, group, batch_size, workers)
    fitted, decided, measured = result.agents
    print(f"temperature {result.temperature:.3f}, fitted on {fitted} {group} agents, checked on {decided}")
    print(f"before and after, on {measured} further agents:")
    print(f"  expected calibration error: {result.ece[0]:.4f}, {result.ece[1]:.4f}")
    print(f"  negative log-likelihood: {result.nll[0]:.4f}, {result.nll[1]:.4f}")
    print(f"fraction of true positions inside the {coverage:.0%} regions, by seconds ahead:")
    regions = result.regions
    for seconds, covered in zip(regions.horizons_s, result.covered, strict=True):
        print(f"  {seconds:g} s: {covered:.1%}")
    for row, name in enumerate(OBJECT_TYPES):
        if regions.count[row, -1]:
            radii = ", ".join(f"{radius:.1f}" for radius in regions.radius[row])
            print(f"  {name}: radius {radii} m")
    print(f"wrote {out}")
    return 0


def export(
    *,
    checkpoint: str = "argoverse-nano",
    out: Path = Path("bundle"),
    store: Path | None = None,
    split: str = "val",
    limit: Positive = 20,
    max_agents: Positive | None = None,
    max_lanes: Positive | None = None,
    fused: bool = False,
    opset: int = 20,
    tolerance_m: float = 0.001,
    part: Literal["all", "encoder"] = "all",
) -> int:
    """Write and check the bundle that runs onboard without torch: ONNX graphs, description, example.

    Example: trajpred export --checkpoint argoverse-nano --out bundle

    Args:
        checkpoint: Path of a checkpoint or run, or name of shipped weights.
        out: Folder, or a file that ends in .zip.
        store: Scenarios for the check: folder written by prepare; by default the sample's.
        split: Split of the store; of val the deciding half is used.
        limit: Number of scenarios to check: the first, those with the most tracks and lanes, then others.
        max_agents: Fixed number of agents; with --max-lanes. By default any number.
        max_lanes: Fixed number of lane segments and crossings; with --max-agents.
        fused: Also write all graphs as one, forecaster.onnx.
        opset: ONNX opset, 20 to 23.
        tolerance_m: Maximum distance from PyTorch's futures for 99 % of the agents, in metres. No future may
            differ by more than ten times that (at least 0.01 m), and no probability by more than 0.001.
        part: encoder omits the decoder, for planners with their own head (OnboardEncoder).
    """
    both = (max_agents is None) == (max_lanes is None)
    require(both, "max_agents", "must be given together with --max-lanes")
    require_writable(out.parent, folder=True)
    every = open_split(store, split)
    rows = deciding(every)
    try:
        from trajpred.export.export_bundle import export_bundle as write
    except ImportError as error:
        raise DataError(f"exporting needs more packages ({error}): {install_command('export')}") from None
    scenarios = [rows[row] for row in checked_rows(rows, limit)]
    sizes = None
    if max_agents is not None and max_lanes is not None:
        sizes = (max_agents, max_lanes)
    result = write(
        checkpoint, out, scenarios, sizes=sizes, fused=fused, opset=opset, tolerance_m=tolerance_m, part=part
    )
    print(f"{out}: {result.summary()}")
    for case in result.cases:
        difference = f"{case.largest:.2g} {result.unit}"
        print(f"  {case.agents:4d} agents {case.lanes:4d} lanes  {difference}  {case.name}")
    if part == "encoder":
        print(f'Run it:  trajpred.onboard.OnboardEncoder("{out}").encode(scene)')
        return 0
    from trajpred.store.sample import split_words

    print(f"Run it:  trajpred replay {command_words('--bundle', out, *split_words(every))}")
    print(f"Score it: trajpred evaluate {command_words('--checkpoint', out, *split_words(rows))}")
    return 0


def checked_rows(rows: ScenarioStore, limit: int) -> list[int]:
    """Choose at most ``limit`` rows for checking a bundle; the first is also the example."""
    largest = [int(sizes.argmax()) for sizes in rows.sizes if len(sizes)]
    first = range(min(limit, len(rows)))
    return list(dict.fromkeys((*first[:1], *largest, *first)))[:limit]
