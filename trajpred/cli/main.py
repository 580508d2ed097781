"""Command lines: ``tools/NAME.py`` and ``trajpred NAME`` are the same."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from jsonargparse import auto_cli

from trajpred.cli import benchmark, data, models, onboard, scores, visualize
from trajpred.doctor import main as doctor
from trajpred.errors import DataError

#: A tool, or its subcommands; the first of them is the one meant if none is named.
TOOLS: dict[str, Any] = {
    "download": data.download,
    "prepare": data.prepare,
    "synthesize": data.synthesize,
    "evaluate": scores.evaluate,
    "predict": models.predict,
    "calibrate": models.calibrate,
    "compare": scores.compare,
    "visualize": visualize.visualize,
    "export": onboard.export,
    "replay": onboard.replay,
    "ship": models.ship,
    "benchmark": {
        "model": benchmark.model,
        "core": benchmark.core,
        "data": benchmark.data,
        "memory": benchmark.memory,
        "step": benchmark.step,
        "metrics": benchmark.metrics,
        "onboard": benchmark.onboard,
    },
}


def train(args: Sequence[str] | None) -> int:
    """Train a forecaster (``--help`` lists every setting)."""
    from trajpred.training.train import train as run

    run(args)
    return 0


def main(tool: str | None = None, args: Sequence[str] | None = None) -> None:
    """Run one tool; ``trajpred TOOL …`` names it as the first argument."""
    given = list(sys.argv[1:] if args is None else args)
    known = ["train", *TOOLS, "doctor"]
    if tool is None:
        if not given or given[0] not in known:
            print(f"usage: trajpred {{{','.join(known)}}} ...   (trajpred TOOL --help explains one)")
            sys.exit(0 if given[:1] in ([], ["--help"], ["-h"]) else 2)
        tool, given = given[0], given[1:]
    try:
        if tool == "train":
            sys.exit(train(given))
        if tool == "doctor":
            sys.exit(doctor(given))
        component = TOOLS[tool]
        if isinstance(component, dict) and (not given or given[0] not in (*component, "--help", "-h")):
            given = [next(iter(component)), *given]
        if isinstance(component, dict):
            given = [given[0], *_spell_out(component.get(given[0]), given[1:])]
        else:
            given = _spell_out(component, given)
        sys.exit(auto_cli(component, args=given, as_positional=False, prog=f"tools/{tool}.py"))
    except ModuleNotFoundError as error:
        print(f"error: {error}; what to install: trajpred doctor", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # whoever read has seen enough: `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to say at the exit
        sys.exit(1)
    except (DataError, OSError, UnicodeDecodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _spell_out(tool: Callable[..., int] | None, given: list[str]) -> list[str]:
    """``--max_agents`` from ``--max-agents``, ``--flag true`` from ``--flag``, ``[a,b]`` from ``a b``."""
    parameters = inspect.signature(tool).parameters.values() if tool else ()
    dashed = {f"--{p.name}".replace("_", "-"): f"--{p.name}" for p in parameters}
    given = ["=".join((dashed.get(name, name), *value)) for name, *value in (x.split("=", 1) for x in given)]
    lists = {f"--{p.name}" for p in parameters if str(p.annotation).startswith("list[")}
    texts = {f"--{p.name}" for p in parameters if str(p.annotation).startswith("list[str")}
    starts = [i for i, word in enumerate(given) if i == 0 or word.startswith("--")]
    options = [given[i:j] for i, j in zip(starts, [*starts, len(given)][1:], strict=True)]
    joined = [[o, _list(v, o in texts)] if o in lists and len(v) > 1 else [o, *v] for o, *v in options]
    given = [word for option in joined for word in option]
    flags = {f"--{p.name}" for p in parameters if isinstance(p.default, bool)}
    spelled = []
    for word, following in zip(given, [*given, ""][1:], strict=True):
        spelled += [word, "true"] if word in flags and following not in ("true", "false") else [word]
    return spelled


def _list(values: list[str], texts: bool) -> str:
    """A YAML list; ids made of digits stay texts."""
    return f"[{','.join(map(json.dumps, values) if texts else values)}]"
