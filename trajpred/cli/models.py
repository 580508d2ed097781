"""Using models: predict, calibrate, ship. torch waits until one runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

from trajpred.cli.arguments import as_list
from trajpred.store.sample import SAMPLE_STORE, ensure_store


def calibrate(
    checkpoint: str,
    store: Path,
    out: Path,
    split: str = "val",
    coverage: float = 0.9,
    group: Literal["focal", "scored", "all"] = "scored",
    batch_size: int = 16,
) -> int:
    """Fit a temperature of the probabilities and conformal regions around the modes; measure both.

    Example: python tools/calibrate.py --checkpoint best.ckpt --store STORE --out calibrated.ckpt

    Args:
        checkpoint: path of a trained model, or the name of weights that ship.
        store: folder written by tools/prepare.py.
        out: the checkpoint with what was fitted; all tools then use it.
        split: scenarios that the model was not trained on: half are fitted on, half measured on.
        coverage: share of the true positions that the regions promise to hold.
        group: whom to fit to.
        batch_size: scenarios at once.
    """
    from trajpred.evaluation.calibrate import calibrate as fit
    from trajpred.scenario import OBJECT_TYPES
    from trajpred.store import ScenarioStore

    rows = ScenarioStore(ensure_store(store), split)
    found = fit(checkpoint, rows, out, coverage, group, batch_size)
    print(f"temperature {found.temperature:.3f}, fitted on {found.agents[0]} {group} agents")
    print(f"on {found.agents[1]} others, before and after:")
    for name, values in (("expected calibration error", found.ece), ("negative log-likelihood", found.nll)):
        print(f"  {name}: {values[0]:.4f}, {values[1]:.4f}")
    print(f"regions that promise {coverage:.0%} hold, after")
    for second, held in zip(found.regions.horizons_s, found.covered, strict=True):
        print(f"  {second:g} s: {held:.1%}")
    radius = found.regions.radius
    for kind in [i for i, n in enumerate(found.regions.count[:, -1]) if n]:
        print(f"  {OBJECT_TYPES[kind]}: radius " + ", ".join(f"{r:.1f}" for r in radius[kind]) + " m")
    print(f"written: {out}")
    return 0


def predict(
    checkpoint: str = "constant_velocity",
    out: Path = Path("predictions.parquet"),
    store: Path = SAMPLE_STORE,
    split: str = "val",
    agents: Literal["focal", "scored"] = "focal",
    joint: bool = False,
    mirror: bool = False,
    ensemble: list[str] | str | None = None,
    batch_size: int = 16,
    limit: int | None = None,
) -> int:
    """Write the futures of a split's scenarios to a file of the Argoverse 2 challenges (parquet).

    Example: python tools/predict.py --checkpoint best.ckpt --store /data/av2-store --split test

    Args:
        checkpoint: path of a checkpoint, name of weights that ship, or of a baseline.
        out: the file, .parquet.
        store: folder written by tools/prepare.py.
        split: train, val or test; scenarios without a labelled future are predicted too.
        agents: focal (single-agent challenge), or scored (multi-agent challenge), which needs --joint.
        joint: mode k of all agents of a scenario is one possible world; for models with joint modes.
        mirror: also ask every model about the mirrored scenes, and merge what it says.
        ensemble: more checkpoints, whose modes are merged with those of the first.
        batch_size: scenarios at once.
        limit: only the first so many scenarios.
    """
    from trajpred.predictors.predict import predict as write
    from trajpred.predictors.predictor import load_ensemble

    predictor = load_ensemble([checkpoint, *as_list(ensemble)], joint, mirror)
    written = write(predictor, out, store, split, agents, joint, batch_size, limit)
    print(f"{out}: {written.tracks} tracks of {written.scenarios} scenarios")
    words = ["--checkpoint", out, "--store", store, "--split", split]
    print(f"Score it: python tools/evaluate.py {shlex.join(map(str, words))}")
    return 0


def ship(
    checkpoint: Path,
    name: str,
    store: Path,
    split: str = "val",
    note: str = "",
    half: bool = True,
    tolerance_m: float = 0.02,
) -> int:
    """Turn a checkpoint into weights that ship with the package (trajpred/weights), with their model card.

    Example: python tools/ship.py --checkpoint best.ckpt --name argoverse1-small --store runs/argoverse1-store

    Args:
        checkpoint: path of a trained model.
        name: what users will call it.
        store: scenarios that the card's table is made from, and on which half precision is tried.
        split: of the store.
        note: a sentence that opens the card.
        half: keep half precision.
        tolerance_m: by how many metres that may move any point of 99 % of the predictions.
    """
    from trajpred.export.pretrained import ship as make
    from trajpred.store import ScenarioStore

    rows = ScenarioStore(ensure_store(store), split)
    print(make(checkpoint, name, rows, note=note, half=half, tolerance_m=tolerance_m))
    return 0
