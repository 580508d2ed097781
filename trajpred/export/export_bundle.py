"""Export a checkpoint to a bundle: trace the graphs, convert and check them, write the description."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
from torch import nn

from trajpred.data.files import atomic_file, naming_disk_errors, stage
from trajpred.data.lane_map import MARK_TYPES
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import DataError, require
from trajpred.evaluation.origin import environment
from trajpred.export.check import TOLERANCE_M, Check, check, check_encoder, example_arrays
from trajpred.export.graphs import decoder_chain, encoder_chain, port_names, ports_among
from trajpred.export.trace import join, to_onnx
from trajpred.features.config import LANE_KINDS
from trajpred.model import Forecaster
from trajpred.model.checkpoint import CONFIG, read_checkpoint
from trajpred.model.pretrained import LICENCE_FILE
from trajpred.onboard import bundle
from trajpred.onboard.encoder import OnboardEncoder
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.predictors.checkpoint import CheckpointPredictor

#: Oldest ONNX opset with all operators of the graphs, and the newest tested.
OPSETS = (20, 23)
#: Content of a bundle: the whole model, or the encoder without a decoder.
Part = Literal["all", "encoder"]
#: Meaning of indices in inputs, from 0.
INDICES = {"object_type": OBJECT_TYPES, "kind": LANE_KINDS, "marks": MARK_TYPES}


def export_bundle(
    checkpoint: str | Path,
    out: str | Path,
    scenarios: Sequence[Scenario],
    *,
    sizes: tuple[int, int] | None = None,
    fused: bool = False,
    opset: int = OPSETS[0],
    tolerance_m: float = TOLERANCE_M,
    part: Part = "all",
    progress: bool = True,
) -> Check:
    """Write the bundle ``out`` (a folder, or a file that ends in .zip) after checking it.

    Example:
        >>> export_bundle("argoverse-nano", "bundle", scenarios).summary()

    Args:
        checkpoint: path of a trained model, or name of pretrained weights.
        scenarios: scenarios for checking the bundle; the first is also its example.
        sizes: fixed numbers of agents and lanes; by default any number up to the model's limits.
        fused: also write all graphs as one, ``forecaster.onnx``.
        opset: ONNX opset.
        tolerance_m: limit on the distance from PyTorch's futures for 99 % of the agents, see
            :func:`~trajpred.export.check.require_limits`.
        part: ``encoder`` omits the decoder, for planners with their own head.
        progress: print each stage.

    Raises:
        DataError: the model cannot be traced, the bundle differs from it, or ``out`` is something other than
            a bundle. Nothing is written then.
    """
    require(OPSETS[0] <= opset <= OPSETS[1], "opset", f"must be {OPSETS[0]} to {OPSETS[1]}, is {opset}")
    require(sizes is None or min(sizes) > 0, "sizes", "must be positive")
    if part == "encoder":
        require(not fused, "fused", "cannot be combined with the encoder alone")
        require(tolerance_m == TOLERANCE_M, "tolerance_m", "cannot be combined with the encoder alone")
    target = Path(out).resolve()
    if target.exists() and not bundle.is_bundle(target):
        raise DataError("exists and is not a bundle: not overwritten", file=out)
    predictor = CheckpointPredictor(checkpoint).to("cpu")
    model = predictor.model
    scenes = predictor.on_model_steps(scenarios)
    modules = _modules(predictor, part, fixed=sizes is not None)
    fixed = _model_sizes(model)
    if sizes is not None:
        agents, lanes = sizes
        fixed |= {"A": agents, "B": agents, "L": lanes}
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        naming_disk_errors(target),
        tempfile.TemporaryDirectory(dir=target.parent, prefix=".unfinished-") as scratch,
    ):
        folder = Path(scratch) / "bundle"
        folder.mkdir()
        graphs: dict[str, onnx.ModelProto] = {}
        for name, module in modules.items():
            with stage(f"tracing {name}", progress):
                graphs[name] = to_onnx(module, name, fixed, opset)
        if fused:
            graphs[bundle.FUSED] = join(graphs, bundle.SIGNATURES[bundle.FUSED], bundle.FUSED)
        for name, graph in graphs.items():
            (folder / f"{name}.onnx").write_bytes(graph.SerializeToString())
        config = read_checkpoint(checkpoint)[CONFIG]
        manifest = _manifest(predictor, config, sizes, graphs) | {"precision": "fp32", "opset": opset}
        write_manifest(folder, manifest)
        if part == "encoder":
            result = check_encoder(folder, model, scenes, progress)
        else:
            result = check(folder, predictor, scenes, tolerance_m, fused, progress)
        runtime = OnboardEncoder(folder) if part == "encoder" else OnboardForecaster(folder)
        stored: dict[str, Any] = example_arrays(runtime, scenes[0])
        np.savez_compressed(folder / bundle.EXAMPLE, **stored)
        manifest["check"] = asdict(result) | {"summary": result.summary()}
        if predictor.licence:
            shutil.copyfile(LICENCE_FILE, folder / bundle.LICENCE)
        (folder / bundle.INTERFACE).write_text(interface_page(manifest), encoding="utf-8")
        write_manifest(folder, manifest)
        _publish(folder, target)
    return result


def _modules(predictor: CheckpointPredictor, part: Part, fixed: bool) -> dict[str, nn.Module]:
    """Return the module of each graph, in order of execution."""
    model = predictor.model
    graph = model.scene.graph
    modules: dict[str, nn.Module] = {"lane_encoder": model.encoder.lane}
    modules["encoder"] = encoder_chain(model.encoder, graph, fixed)
    if part == "all":
        modules["decoder"] = decoder_chain(model.decoder, graph, predictor.temperature, fixed)
    return modules


def _model_sizes(model: Forecaster) -> dict[str, int]:
    """Return the values of signature letters fixed by the model."""
    return {
        "T": model.history,
        "P": model.scene.features.lane_points,
        "D": model.encoder.dim,
        "K": model.decoder.modes,
        "F": model.decoder.horizon,
        # Any number if the model has none: the ports are not used.
        "S": model.decoder.anchor_steps or model.decoder.horizon,
        "W": model.encoder.num_eigenvectors or 1,
    }


def _manifest(
    predictor: CheckpointPredictor,
    config: dict[str, Any],
    sizes: tuple[int, int] | None,
    graphs: Mapping[str, onnx.ModelProto],
) -> dict[str, Any]:
    """Return the content of ``bundle.json``, without the checks and the files."""
    model = predictor.model
    fixed = _model_sizes(model)
    scene = model.scene
    fixed_sizes = None
    if sizes is not None:  # they may lower the model's limits: the nearest agents and lanes are kept
        agents, lanes = sizes
        fixed_sizes = {"A": agents, "L": lanes}
        features = replace(
            scene.features,
            max_agents=min(agents, scene.features.max_agents),
            max_lanes=min(lanes, scene.features.max_lanes),
        )
        scene = replace(scene, features=features)
    facts: dict[str, Any] = {"history": fixed["T"]}
    if "decoder" in graphs:
        facts["horizon"] = fixed["F"]
        facts["modes"] = fixed["K"]
        facts["temperature"] = predictor.temperature
    facts["dim"] = fixed["D"]
    facts["step_s"] = model.step_s
    facts["config"] = config
    facts["training"] = predictor.training
    made_with = environment()
    made_with["onnx"] = onnx.__version__
    made_with["onnxruntime"] = onnxruntime.__version__
    return {
        "format": bundle.FORMAT,
        "version": bundle.VERSION,
        "name": predictor.name,
        "licence": predictor.licence,
        "model": facts,
        "scene": asdict(scene),
        "sizes": fixed_sizes,
        "indices": INDICES,
        "graphs": {name: _graph_facts(name, graph, fixed) for name, graph in graphs.items()},
        "made_with": made_with,
    }


def _graph_facts(name: str, graph: onnx.ModelProto, fixed: Mapping[str, int]) -> dict[str, Any]:
    """Return the inputs, outputs and operators of a graph."""
    names = port_names([*graph.graph.input, *graph.graph.output])
    signature = bundle.SIGNATURES[name]
    operators = Counter(node.op_type for node in graph.graph.node)
    return {
        "inputs": _ports_facts(ports_among(signature.inputs, names), fixed),
        "outputs": _ports_facts(ports_among(signature.outputs, names), fixed),
        "operators": dict(sorted(operators.items())),
    }


def _ports_facts(ports: list[bundle.Port], fixed: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the facts about each port, with the sizes fixed by the model in its shape."""
    return [port._asdict() | {"shape": bundle.resolved(port, fixed)} for port in ports]


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write ``bundle.json``, with size and SHA-256 of every other file."""
    files: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.iterdir()):
        if file.name == bundle.MANIFEST:
            continue
        content = file.read_bytes()
        files[file.name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    text = json.dumps(manifest | {"files": files}, indent=1, default=str, allow_nan=False)
    (folder / bundle.MANIFEST).write_text(text + "\n", encoding="utf-8")


def _publish(folder: Path, target: Path) -> None:
    """Move ``folder`` to ``target``, as a zip file if its name ends in .zip."""
    if target.suffix == ".zip":
        with atomic_file(target) as unfinished:
            Path(shutil.make_archive(str(folder), "zip", folder)).replace(unfinished)
        return
    replaced = folder.with_name("replaced")
    if target.exists():
        target.rename(replaced)
    try:
        folder.rename(target)
    except BaseException:
        if replaced.exists():
            replaced.rename(target)
        raise


# ------------------------------------------------------------------------------------- the bundle's page

#: The page's note for models that use poses in the scene's frame.
FOCAL_ORIGIN = "The origin is the focal agent's or the ego's position: the model uses poses in its frame."


def interface_page(manifest: dict[str, Any]) -> str:
    """Return the Markdown page for the content of a ``bundle.json``."""
    model = manifest["model"]
    operators: set[str] = set()
    graphs: list[str] = []
    for name, graph in manifest["graphs"].items():
        operators.update(graph["operators"])
        graphs.append(_graph_section(name, graph))
    indices = [f"- `{port}`: {', '.join(names)}" for port, names in manifest["indices"].items()]
    output = f"Encoder without decoder: tokens of {model['dim']} channels"
    if "decoder" in manifest["graphs"]:
        output = f"{model['modes']} futures of {model['horizon']} steps"
    parts = [
        f"# {manifest['name']}: onboard bundle\n",
        f"{output} from {model['history']} observed steps of {model['step_s']:g} s. "
        f"Precision {manifest['precision']}, ONNX opset {manifest['opset']}, "
        "standard operators only.\n",
        _sizes_note(manifest) + "\n",
        _licence_note(manifest),
        "Order of execution: `lane_encoder` for new lanes (a token depends on one lane only, so keep it), "
        "`encoder`, then `decoder` if there is one. Frames: an agent's own frame is its last observed pose, "
        "x ahead, y left; a lane's is its midpoint and direction; the scene's is the map frame moved to an "
        f"origin nearby (subtract in float64). {_origin_note(manifest['graphs'])}\n",
        *graphs,
        "## Indices, from 0\n",
        *indices,
        "",
        _check_section(manifest["check"]),
        "## Operators\n",
        f"`{'`, `'.join(sorted(operators))}`\n",
    ]
    return "\n".join(parts)


def _origin_note(graphs: dict[str, Any]) -> str:
    """Describe the origins of the scene's frame that give the same result."""
    for graph in graphs.values():
        for port in graph["inputs"]:
            if port["name"] == "scene_heading":
                return FOCAL_ORIGIN
    return "Every origin gives the same result."


def _sizes_note(manifest: dict[str, Any]) -> str:
    """Describe the numbers of agents and lanes that the graphs take."""
    sizes = manifest["sizes"]
    limits = manifest["scene"]["features"]
    if sizes:
        return (
            f"Fixed sizes: A = B = {sizes['A']} agents, L = {sizes['L']} lane segments and crossings. Pad "
            "smaller scenes with zeros, `valid` False and `target` 0."
        )
    return (
        "Dynamic sizes: agents A, lane segments and crossings L, agents to predict B, each at least 1 (pad "
        f"where there are none); designed for up to {limits['max_agents']} agents and "
        f"{limits['max_lanes']} lanes."
    )


def _licence_note(manifest: dict[str, Any]) -> str:
    licence = manifest["licence"]
    return f"Licence of the weights: {licence}; see `{bundle.LICENCE}`.\n" if licence else ""


def _graph_section(name: str, graph: dict[str, Any]) -> str:
    """Return the table of a graph's inputs and outputs."""
    rows = [_port_row("in", port) for port in graph["inputs"]]
    rows += [_port_row("out", port) for port in graph["outputs"]]
    return "\n".join((f"## {name}.onnx\n", "| | name | type | shape | |", "|---|---|---|---|---|", *rows, ""))


def _port_row(side: str, port: dict[str, Any]) -> str:
    shape = ", ".join(str(size) for size in port["shape"])
    return f"| {side} | `{port['name']}` | {port['dtype']} | [{shape}] | {port['meaning']} |"


def _check_section(check: dict[str, Any]) -> str:
    """Return the table of differences from PyTorch."""
    rows: list[str] = []
    for case in check["cases"]:
        largest = f"{case['largest']:.2g} {check['unit']}"
        rows.append(f"| {case['name']} | {case['agents']} | {case['lanes']} | {largest} |")
    head = "| scene | agents | lanes | largest difference |\n|---|---|---|---|"
    return "\n".join(("## Check against PyTorch\n", f"Result: {check['summary']}.\n", head, *rows, ""))
