"""The inputs and outputs of the exported graphs: names, shapes and selections."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol, TypeVar

from trajpred.onboard.bundle import LICENCE


class Named(Protocol):
    """A port of a signature, or a value of an ONNX graph."""

    @property
    def name(self) -> str:
        """The name of the port."""
        ...


NamedPort = TypeVar("NamedPort", bound=Named)


def port_names(ports: Iterable[Named]) -> list[str]:
    """Return the name of each port."""
    return [port.name for port in ports]


def ports_among(ports: Iterable[NamedPort], names: Collection[str]) -> list[NamedPort]:
    """Return the ports whose names are among ``names``."""
    return [port for port in ports if port.name in names]


#: The page's note for models that use poses in the scene's frame.
FOCAL_ORIGIN = "The origin is the focal agent's or the ego's position: the model uses poses in its frame."


def interface_page(manifest: dict[str, Any]) -> str:
    """Return the Markdown page for the content of a ``bundle.json``."""
    model = manifest["model"]
    operators: set[str] = set()
    graphs: list[str] = []
    for name, graph in manifest["graphs"].items():
        operators.update(graph["operators"])
        graphs.append(_graph(name, graph))
    indices = [f"- `{port}`: {', '.join(names)}" for port, names in manifest["indices"].items()]
    output = f"Encoder without decoder: tokens of {model['dim']} channels"
    if "decoder" in manifest["graphs"]:
        output = f"{model['modes']} futures of {model['horizon']} steps"
    parts = [
        f"# {manifest['name']}: onboard bundle\n",
        f"{output} from {model['history']} observed steps of {model['step_s']:g} s. "
        f"Precision {manifest['precision']}, ONNX opset {manifest['opset']}, "
        "standard operators only.\n",
        _sizes(manifest) + "\n",
        _licence(manifest),
        "Order of execution: `lane_encoder` for new lanes (a token depends on one lane only, so keep it), "
        "`encoder`, then `decoder` if there is one. Frames: an agent's own frame is its last observed pose, "
        "x ahead, y left; a lane's is its midpoint and direction; the scene's is the map frame moved to an "
        f"origin nearby (subtract in float64). {_origin(manifest['graphs'])}\n",
        *graphs,
        "## Indices, from 0\n",
        *indices,
        "",
        _check(manifest["check"]),
        "## Operators\n",
        f"`{'`, `'.join(sorted(operators))}`\n",
    ]
    return "\n".join(parts)


def _origin(graphs: dict[str, Any]) -> str:
    for graph in graphs.values():
        for port in graph["inputs"]:
            if port["name"] == "scene_heading":
                return FOCAL_ORIGIN
    return "Every origin gives the same result."


def _sizes(manifest: dict[str, Any]) -> str:
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


def _licence(manifest: dict[str, Any]) -> str:
    licence = manifest["licence"]
    return f"Licence of the weights: {licence}; see `{LICENCE}`.\n" if licence else ""


def _graph(name: str, graph: dict[str, Any]) -> str:
    rows = [_row("in", port) for port in graph["inputs"]]
    rows += [_row("out", port) for port in graph["outputs"]]
    return "\n".join((f"## {name}.onnx\n", "| | name | type | shape | |", "|---|---|---|---|---|", *rows, ""))


def _row(side: str, port: dict[str, Any]) -> str:
    shape = ", ".join(str(size) for size in port["shape"])
    return f"| {side} | `{port['name']}` | {port['dtype']} | [{shape}] | {port['meaning']} |"


def _check(check: dict[str, Any]) -> str:
    rows: list[str] = []
    for case in check["cases"]:
        largest = f"{case['largest']:.2g} {check['unit']}"
        rows.append(f"| {case['name']} | {case['agents']} | {case['lanes']} | {largest} |")
    head = "| scene | agents | lanes | largest difference |\n|---|---|---|---|"
    return "\n".join(("## Check against PyTorch\n", f"Result: {check['summary']}.\n", head, *rows, ""))
