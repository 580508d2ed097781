"""The page ``INTERFACE.md`` of a bundle: ``bundle.json`` as tables for human readers."""

from __future__ import annotations

from typing import Any

#: Notes on operators of these graphs in the list of NVIDIA TensorRT 10's ONNX parser; not run on TensorRT.
TENSORRT = {
    "TopK": "supported; K at most 3,840",
    "CumSum": "listed for floating point with a constant axis; these graphs sum int32",
    "Range": "supported; float or integers of 32 and 64 bits",
    "Gelu": "supported from opset 20",
    "IsNaN": "supported",
    "Erf": "supported",
    "Mod": "supported",
    "DynamicQuantizeLinear": "not supported: use TensorRT's own quantisation instead of int8 bundles",
    "MatMulInteger": "not supported: use TensorRT's own quantisation instead of int8 bundles",
}

#: Operators in that list without a restriction that matters here; the others were not looked up.
IN_LIST = (
    "Add", "And", "Atan", "Cast", "Clip", "Concat", "Conv", "Cos", "Div", "Equal", "Exp", "Expand",
    "Gather", "Gemm", "Greater", "GreaterOrEqual", "InstanceNormalization", "LayerNormalization", "Less",
    "LessOrEqual", "Log", "MatMul", "Max", "Mul", "Neg", "Not", "Or", "Pad", "Pow", "ReduceL2",
    "ReduceMax", "ReduceSum", "Reshape", "Shape", "Sin", "Slice", "Softmax", "Split", "Sqrt", "Squeeze",
    "Sub", "Tanh", "Transpose", "Unsqueeze", "Where",
)  # fmt: skip


def interface_page(manifest: dict[str, Any]) -> str:
    """Return the Markdown page for the content of a ``bundle.json``."""
    model = manifest["model"]
    what = f"Encoder without decoder: tokens of {model['dim']} channels"
    if "decoder" in manifest["graphs"]:
        what = f"{model['modes']} futures of {model['horizon']} steps"
    parts = [
        f"# {manifest['name']}: onboard bundle\n",
        f"{what} from {model['history']} observed steps of {model['step_s']:g} s. "
        f"Precision {manifest['precision']}, ONNX opset {manifest['opset']}, "
        "standard operators only.\n",
        _sizes(manifest) + "\n",
        "Order of execution: `lane_encoder` for new lanes (a token depends on one lane only, so keep it), "
        "`encoder`, then `decoder` if there is one. Frames: an agent's own frame is its last observed pose, "
        "x ahead, y left; a lane's is its midpoint and direction; the scene's is the map frame moved to an "
        f"origin nearby (subtract in float64). {_origin(manifest['graphs'])}\n",
        *(_graph(name, graph) for name, graph in manifest["graphs"].items()),
        "## Indices, from 0\n",
        *(f"- `{port}`: {', '.join(names)}" for port, names in manifest["indices"].items()),
        "",
        _check(manifest["check"]),
        _operators(manifest["graphs"]),
    ]
    return "\n".join(parts)


def _origin(graphs: dict[str, Any]) -> str:
    inputs = {port["name"] for graph in graphs.values() for port in graph["inputs"]}
    if "scene_heading" in inputs:
        return "The origin is the focal agent's or the ego's position: the model uses poses in its frame."
    return "Every origin gives the same result."


def _sizes(manifest: dict[str, Any]) -> str:
    sizes, limits = manifest["sizes"], manifest["scene"]["features"]
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


def _graph(name: str, graph: dict[str, Any]) -> str:
    rows = [
        f"| {side} | `{port['name']}` | {port['dtype']} | [{', '.join(map(str, port['shape']))}] | "
        f"{port['meaning']} |"
        for side, ports in (("in", graph["inputs"]), ("out", graph["outputs"]))
        for port in ports
    ]
    return "\n".join((f"## {name}.onnx\n", "| | name | type | shape | |", "|---|---|---|---|---|", *rows, ""))


def _check(check: dict[str, Any]) -> str:
    rows = [
        f"| {case['name']} | {case['agents']} | {case['lanes']} | {case['largest']:.2g} |"
        + ("" if case["probability"] is None else f" {case['probability']:.1g} |")
        for case in check["cases"]
    ]
    head = ["| scene | agents | lanes | largest relative difference |", "|---|---|---|---|"]
    summary = f"Largest relative difference of a token: {check['largest']:.1g} (limit {check['limit']:g})."
    if check["unit"] == "m":
        head = ["| scene | agents | lanes | largest distance, m | probability |", "|---|---|---|---|---|"]
        summary = f"99 % of the agents are within {check['usual']:.2g} m of PyTorch (limit "
        summary += f"{check['limit']:g} m), all within {check['largest']:.2g} m."
    if check["min_fde"] is not None:
        pytorch, bundle = check["min_fde"]
        summary += f" Focal minFDE of {check['scored']} agents: {pytorch:.4f} m in PyTorch, "
        summary += f"{bundle:.4f} m in the bundle."
    return "\n".join(("## Check against PyTorch\n", f"{summary}\n", *head, *rows, ""))


def _operators(graphs: dict[str, Any]) -> str:
    names = sorted({name for graph in graphs.values() for name in graph["operators"]})
    supported = ", ".join(f"`{name}`" for name in names if name in IN_LIST)
    notes = [f"- `{name}`: {TENSORRT.get(name, 'not checked')}" for name in names if name not in IN_LIST]
    heading = f"{supported}: in TensorRT 10's list of supported operators. With a note:\n"
    return "\n".join(("## Operators\n", heading, *notes, "\nNone of this was run on TensorRT.\n"))
