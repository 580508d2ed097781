"""The subcommands of ``tools/benchmark.py``, as :mod:`trajpred.tools` holds the other tools."""

from __future__ import annotations

from pathlib import Path

from trajpred.store.sample import SAMPLE_RAW


def data(raw: Path = SAMPLE_RAW, repeats: int = 10) -> int:
    """Reading, preparing and feeding beside av2's loaders and a training step, one thread, CPU ms.

    Args:
        raw: scenarios in Argoverse 2's layout.
        repeats: the median of so many is reported.
    """
    from trajpred.benchmark.data import data_figures

    return _print_figures(data_figures(raw, repeats))


def memory(scenarios: list[int] | int | None = None, keep: Path | None = None) -> int:
    """Peak memory of preparing and feeding synthetic data sets of several sizes (20,000 take 10 minutes).

    Args:
        scenarios: sizes, by default 1000 20000.
        keep: a folder to keep them in for the next time.
    """
    from trajpred.benchmark.memory import memory_figures

    sizes = [scenarios] if isinstance(scenarios, int) else scenarios or [1_000, 20_000]
    return _print_figures(memory_figures(sizes, keep))


def step() -> int:
    """Peak memory of a training step at several sizes of scenes, and what --data.memory_gb takes it for."""
    from trajpred.benchmark.step import step_figures

    return _print_figures(step_figures())


def core(nodes: int = 130, neighbors: int = 32, repeats: int = 10) -> int:
    """The default attention beside PyG's TransformerConv and plain dense attention, one thread.

    Args:
        nodes: per scene.
        neighbors: edges into each node.
        repeats: the median of so many is reported.
    """
    from trajpred.benchmark.core import core as core_figures

    return _print_figures(core_figures(nodes, neighbors, repeats=repeats))


def model(
    scenario: Path = SAMPLE_RAW / "val" / "0a1e6f0a-1817-4a98-b02e-db8c9327d151",
    model: Path | None = None,
    repeats: int = 10,
    threads: int = 1,
    compiled: bool = False,
) -> int:
    """Forward pass and training step on one real scenario, all agents predicted.

    Args:
        scenario: folder of an Argoverse 2 scenario.
        model: a YAML of configs/model; by default the default model.
        repeats: the median of so many is reported.
        threads: of the CPU; with several of them look at wall times.
        compiled: measure torch.compile too; compiling takes minutes.
    """
    from trajpred.benchmark.model import forecasting

    return _print_figures(forecasting(scenario, model, repeats=repeats, threads=threads, compiled=compiled))


def metrics(forecasts: int = 10_000, repeats: int = 3) -> int:
    """The official metrics on synthetic forecasts beside av2's functions one by one, one thread, CPU ms.

    Args:
        forecasts: how many, of six modes and 60 steps.
        repeats: the median of so many is reported; av2's run once.
    """
    from trajpred.benchmark.metrics import metrics_figures

    return _print_figures(metrics_figures(forecasts, repeats))


def onboard(
    bundle: Path = Path("bundle"),
    checkpoint: str = "argoverse2-demo",
    repeats: int = 50,
    threads: int = 2,
    updates: int = 10_000,
) -> int:
    """An onboard bundle beside PyTorch eager, batch 1, all agents; its size, start-up and memory.

    Args:
        bundle: made by tools/export.py.
        checkpoint: of which it was made.
        repeats: forecasts of each kind.
        threads: of both.
        updates: memory is compared between a tenth of so many streamed updates and all of them.
    """
    from trajpred.benchmark.onboard import onboard_figures

    return _print_figures(onboard_figures(bundle, checkpoint, repeats, threads, updates))


def _print_figures(figures: dict[str, float]) -> int:
    for name, value in figures.items():
        print(f"{name:64s} {value:10.2f}")
    return 0
