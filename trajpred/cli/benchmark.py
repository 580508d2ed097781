"""Subcommands of benchmark: speed and memory of every stage."""

from __future__ import annotations

from pathlib import Path

from trajpred.cli.scenarios import Positive


def model(
    *,
    scenario: Path | None = None,
    model: Path | None = None,
    repeats: Positive = 10,
    threads: Positive = 1,
) -> int:
    """Measure the forward pass and a training step on one real scenario, all agents predicted.

    Args:
        scenario: Folder of an Argoverse 2 scenario; by default one of the sample.
        model: A YAML file of configs/model; by default the default model.
        repeats: Number of runs; their median is reported.
        threads: CPU threads; with several of them compare wall times.
    """
    from trajpred.benchmark.model import model_figures

    return _print_figures(model_figures(scenario, model, repeats=repeats, threads=threads))


def core(*, repeats: Positive = 10) -> int:
    """Compare the default attention with PyG's TransformerConv and plain dense attention: one thread, CPU ms.

    Args:
        repeats: Number of runs; their median is reported.
    """
    from trajpred.benchmark.model import core_figures

    return _print_figures(core_figures(repeats))


def data(*, raw: Path | None = None, repeats: Positive = 10) -> int:
    """Compare reading, preparing and loading with av2's loaders and a training step: one thread, CPU ms.

    Args:
        raw: Scenarios in Argoverse 2's layout; by default the sample.
        repeats: Number of runs; their median is reported.
    """
    from trajpred.benchmark.data import data_figures

    return _print_figures(data_figures(raw, repeats))


def onboard(
    *,
    bundle: Path = Path("bundle"),
    checkpoint: str = "argoverse-nano",
    repeats: Positive = 50,
    threads: Positive = 2,
) -> int:
    """Compare an onboard bundle with PyTorch, one scene at a time; measure its size, start-up and memory.

    Args:
        bundle: Bundle written by export.
        checkpoint: The checkpoint that was exported.
        repeats: Timed forecasts of each runtime.
        threads: CPU threads of both runtimes.
    """
    from trajpred.benchmark.onboard import onboard_figures

    return _print_figures(onboard_figures(bundle, checkpoint, repeats, threads))


def _print_figures(figures: dict[str, float]) -> int:
    for name, value in figures.items():
        print(f"{name:64s} {value:10.2f}")
    return 0
