"""The page in a bundle that tells people what ``bundle.json`` tells programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: How NVIDIA TensorRT 10 takes the operators that these graphs are made of, from its ONNX parser's list;
#: nothing here was run on TensorRT.
TENSORRT = {
    "TopK": "supported; K at most 3,840",
    "Range": "supported; float or integers of 32 and 64 bits",
    "Gelu": "supported from opset 20",
    "IsNaN": "supported",
    "Erf": "supported",
    "Mod": "supported",
    "DynamicQuantizeLinear": "not supported: use TensorRT's own quantisation instead of int8 bundles",
    "MatMulInteger": "not supported: use TensorRT's own quantisation instead of int8 bundles",
}
SUPPORTED = "supported"


def interface_page(manifest: dict[str, Any]) -> str:
    """Markdown, from the content of ``bundle.json``."""
    model, sizes = manifest["model"], manifest["sizes"]
    limits = manifest["scene"]["features"]
    fixed = (
        f"Fixed sizes: A = B = {sizes['A']} agents, L = {sizes['L']} lane segments and crossings; rows "
        "beyond those of the scene are padding (zeros, `valid` False; `target` 0)."
        if sizes
        else "Any number of agents A, lane segments and crossings L, and agents to predict B, each at least "
        f"1 (a padding row serves where there is none); made for up to {limits['max_agents']} and "
        f"{limits['max_lanes']}."
    )
    parts = [
        f"# {manifest['name']}: onboard bundle\n",
        f"{model['modes']} futures of {model['horizon']} steps from {model['history']} observed ones, a step "
        f"of {model['step_s']:g} s. Precision {manifest['precision']}, ONNX opset {manifest['opset']}, "
        "standard operators only.\n",
        fixed + "\n",
        "Run in this order: `lane_encoder` on lanes that are new (a token depends on one lane alone: keep "
        "it), `encoder`, `decoder`. Frames: an agent's own frame is where it was last seen, x ahead, y left; "
        "a lane's is its midpoint and direction; the scene's is the map's, moved so that the origin is near "
        "(subtract in float64). Any origin gives the same futures.\n",
        *(_graph(name, graph) for name, graph in manifest["graphs"].items()),
        _indices(manifest["indices"]),
        _checked(manifest["check"]),
        _operators(manifest["graphs"]),
    ]
    return "\n".join(parts)


def _graph(name: str, graph: dict[str, Any]) -> str:
    rows = [
        f"| {side} | `{port['name']}` | {port['dtype']} | {_shape(port['shape'])} | {port['meaning']} |"
        for side, ports in (("in", graph["inputs"]), ("out", graph["outputs"]))
        for port in ports
    ]
    return "\n".join((f"## {name}.onnx\n", "| | name | type | shape | |", "|---|---|---|---|---|", *rows, ""))


def _shape(shape: list[str | int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _indices(indices: dict[str, Sequence[str]]) -> str:
    rows = [f"- `{port}`: {', '.join(names)}" for port, names in indices.items()]
    return "\n".join(("## What indices stand for, from 0\n", *rows, ""))


def _checked(check: dict[str, Any]) -> str:
    rows = [
        f"| {case['name']} | {case['agents']} | {case['lanes']} | {case['largest_m']:.2g} | "
        f"{case['probability']:.1g} |"
        for case in check["cases"]
    ]
    told = (
        f"99 % of the agents within {check['usual_m']:.2g} m of PyTorch (allowed {check['tolerance_m']:g}), "
        f"the farthest {check['largest_m']:.2g} m."
    )
    if check["min_fde"] is not None:
        before, after = check["min_fde"]
        told += f" Focal minFDE of {check['scored']} agents: {before:.4f} m in PyTorch, {after:.4f} m here."
    head = ("| scene | agents | lanes | farthest point, m | probability |", "|---|---|---|---|---|")
    return "\n".join(("## Checked\n", f"{told}\n", *head, *rows, ""))


def _operators(graphs: dict[str, Any]) -> str:
    names = sorted({name for graph in graphs.values() for name in graph["operators"]})
    plain = [f"`{name}`" for name in names if name not in TENSORRT]
    special = [f"- `{name}`: {TENSORRT[name]}" for name in names if name in TENSORRT]
    return "\n".join(
        (
            "## Operators\n",
            f"{', '.join(plain)}: in TensorRT 10's list of supported operators. To be read with a note:\n",
            *special,
            "\nNone of it was run on TensorRT.\n",
        )
    )
