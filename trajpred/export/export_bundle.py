"""Checkpoint -> bundle: the trained model's graphs as ONNX files, checked, and what it takes to use them."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn

from trajpred.errors import DataError, require
from trajpred.evaluation.provenance import environment
from trajpred.export.check import Check, check, example_arrays, hold_equal, window
from trajpred.export.graphs import Decoder, Encoder, WholeForecaster
from trajpred.export.interface import interface_page
from trajpred.export.precision import PRECISIONS, Precision
from trajpred.export.trace import join, load, to_onnx, to_torch
from trajpred.graph.channels import LANE_KINDS
from trajpred.graph.config import SceneConfig
from trajpred.lane_map import MARK_TYPES
from trajpred.model import Forecaster, ModeDecoder, SceneEncoder
from trajpred.model.checkpoint import CONFIG, read_checkpoint
from trajpred.onboard.bundle import (
    COMPILED,
    EXAMPLE,
    FORMAT,
    FUSED,
    INTERFACE,
    MANIFEST,
    SIGNATURES,
    VERSION,
    is_bundle,
    resolved,
    scene_values,
)
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.scenario import OBJECT_TYPES, Scenario

#: The oldest operator set that the graphs fit in, and the newest that was tried.
OPSETS = (20, 23)
#: What the numbers in inputs stand for, counted from 0.
INDICES = {"object_type": OBJECT_TYPES, "kind": LANE_KINDS, "marks": MARK_TYPES}


def export_bundle(
    checkpoint: str | Path,
    out: str | Path,
    scenarios: Sequence[Scenario],
    *,
    sizes: tuple[int, int] | None = None,
    precision: Precision = "fp32",
    fused: bool = False,
    compiled: bool = False,
    opset: int = OPSETS[0],
    tolerance_m: float | None = None,
) -> Check:
    """Write the bundle ``out`` (a folder, or a file that ends in .zip) and check it.

    Args:
        checkpoint: path of a trained model, or the name of weights that ship.
        scenarios: to check it on, and to take its example from.
        sizes: fixed numbers of agents and of lanes; by default any number up to the model's limits.
        precision: of the trained matrices, see :mod:`trajpred.export.precision`.
        fused: also write all graphs as one, ``forecaster.onnx``.
        compiled: also compile them as one for PyTorch, ``forecaster.pt2``; in float32 alone.
        opset: of ONNX.
        tolerance_m: how far the farthest points of 99 % of the agents may lie from PyTorch's, by default that
            of the precision. In fp32 none may lie more than ten times as far (0.01 m at least), and no
            probability may differ by more than 0.001.

    Raises:
        DataError: the model is of another kind, the bundle does not do what the model does, or ``out`` is
            something else than an older bundle. Nothing is written then, and what was there before stays.
    """
    require(OPSETS[0] <= opset <= OPSETS[1], "opset", f"must be {OPSETS[0]} to {OPSETS[1]}, is {opset}")
    require(sizes is None or min(sizes) > 0, "sizes", "must be positive")
    told = f"is {precision}, and what is compiled for PyTorch is fp32: make two bundles"
    require(not compiled or precision == "fp32", "precision", told)
    target = Path(out).resolve()
    if target.exists() and not is_bundle(target):
        raise DataError("is there already and is no bundle: not overwritten", file=out)
    predictor = CheckpointPredictor(checkpoint)
    predictor.device = torch.device("cpu")
    model, rule = predictor.model.to(predictor.device), PRECISIONS[precision]
    windows = [window(one, model.history, model.horizon) for one in scenarios]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        folder = Path(scratch) / "bundle"
        folder.mkdir()
        modules, letters = _modules(predictor, checkpoint), _letters(model)
        known = letters | ({} if sizes is None else {"A": sizes[0], "B": sizes[0], "L": sizes[1]})
        exact = {name: to_onnx(module, name, known, opset) for name, module in modules.items()}
        exact |= {FUSED: join(exact, FUSED)} if fused else {}
        graphs = {name: rule.convert(graph) for name, graph in exact.items()}
        for name, graph in graphs.items():
            (folder / f"{name}.onnx").write_bytes(graph.SerializeToString())
        config = read_checkpoint(checkpoint)[CONFIG]
        manifest = _manifest(predictor, config, sizes, precision, opset, graphs)
        write_manifest(folder, manifest)
        found = check(folder, predictor, windows, rule, tolerance_m, fused)
        arrays = example_arrays(OnboardForecaster(folder), windows[0])
        if compiled:
            to_torch(WholeForecaster(*modules.values()), FUSED, known, folder / COMPILED)
            hold_equal(load(folder / COMPILED), arrays, COMPILED)
        kept = (*graphs, FUSED) if compiled else tuple(graphs)
        example: dict[str, Any] = {n: x for n, x in arrays.items() if n.partition("/")[0] in kept}
        np.savez_compressed(folder / EXAMPLE, **example)
        manifest["check"] = found.to_json()
        (folder / INTERFACE).write_text(interface_page(manifest), encoding="utf-8")
        write_manifest(folder, manifest)
        _put(folder, target)
    return found


def _modules(predictor: CheckpointPredictor, checkpoint: str | Path) -> dict[str, nn.Module]:
    """What becomes the graphs, in the order in which they run. Raises: DataError."""
    model = predictor.model
    encoder, decoder = model.encoder, model.decoder
    if not isinstance(encoder, SceneEncoder) or not isinstance(decoder, ModeDecoder):
        found = f"{type(encoder).__name__} with {type(decoder).__name__}"
        raise DataError(f"only SceneEncoder with ModeDecoder exports, this is {found}", file=checkpoint)
    heard, told = Encoder(encoder, model.scene.graph), Decoder(decoder, predictor.temperature)
    return {"lane_encoder": encoder.lane, "encoder": heard, "decoder": told}


def _letters(model: Forecaster) -> dict[str, int]:
    """Numbers of the model for the letters of the signatures."""
    decoder = model.decoder
    return {
        "T": model.history,
        "P": model.scene.features.lane_points,
        "D": model.encoder.dim,
        "K": decoder.modes,
        "F": decoder.horizon,
    }


def _manifest(
    predictor: CheckpointPredictor,
    config: dict[str, Any],
    sizes: tuple[int, int] | None,
    precision: str,
    opset: int,
    graphs: dict[str, onnx.ModelProto],
) -> dict[str, Any]:
    model = predictor.model
    letters = _letters(model)
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": predictor.name,
        "model": {
            "history": letters["T"],
            "horizon": letters["F"],
            "modes": letters["K"],
            "dim": letters["D"],
            "step_s": model.step_s,
            "temperature": predictor.temperature,
            "config": config,
            "training": predictor.training,
        },
        "scene": scene_values(_limited(model.scene, sizes)),
        "sizes": None if sizes is None else {"A": sizes[0], "L": sizes[1]},
        "indices": INDICES,
        "precision": precision,
        "opset": opset,
        "graphs": {
            name: {
                side: [
                    {**port._asdict(), "shape": resolved(port, letters)}
                    for port in getattr(SIGNATURES[name], side)
                ]
                for side in ("inputs", "outputs")
            }
            | {"operators": dict(sorted(Counter(node.op_type for node in graph.graph.node).items()))}
            for name, graph in graphs.items()
        },
        "made_with": {
            **environment(),
            "onnx": onnx.__version__,
            "onnxruntime": onnxruntime.__version__,
        },
    }


def _limited(scene: SceneConfig, sizes: tuple[int, int] | None) -> SceneConfig:
    """With fixed sizes, those are the limits: the nearest agents and lanes are kept."""
    if sizes is None:
        return scene
    return replace(scene, features=replace(scene.features, max_agents=sizes[0], max_lanes=sizes[1]))


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """``bundle.json``, with size and SHA-256 of every other file."""
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        for file in sorted(folder.iterdir())
        if file.name != MANIFEST
    }
    text = json.dumps({**manifest, "files": files}, indent=1, default=str, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def _put(folder: Path, target: Path) -> None:
    """Bring ``folder`` to ``target`` in one step, as a zip file if that is what it is called."""
    if target.suffix == ".zip":
        made = shutil.make_archive(str(folder), "zip", folder)
        Path(made).replace(target)
        return
    if target.exists():
        old = folder.parent / "old"
        target.rename(old)
    folder.rename(target)
