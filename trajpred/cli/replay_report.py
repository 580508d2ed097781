"""What ``replay`` prints: a line per update, and a table at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

if TYPE_CHECKING:
    from trajpred.onboard.replay import Replay, Update

#: Characters of the bar that shows an update's latency; full: the time between two steps.
BAR = 24


class ReplayReport:
    """The progress of a replay: one line that is rewritten in a terminal, elsewhere one line per second."""

    def __init__(self, step_s: float, console: Console | None = None) -> None:
        self.step_s, self.console = step_s, console or Console(highlight=False, soft_wrap=True)
        self._live = Live(console=self.console, auto_refresh=False)

    def __enter__(self) -> ReplayReport:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()

    def add(self, update: Update) -> None:
        """Print the warnings of an update, and its line."""
        for warning in update.forecast.warnings:
            self.console.print(f"{update.seconds:6.1f} s  warning: {warning}", markup=False)
        line = f"{update.seconds:6.1f} s  {len(update.forecast.track_id):3d} agents predicted, "
        line += f"{len(update.forecast.not_predicted):3d} not  {update.latency_ms:7.1f} ms "
        if self.console.is_terminal:
            self._live.update(line + bar(update.latency_ms / 1e3 / self.step_s), refresh=True)
        elif update.step % max(1, round(1 / self.step_s)) == 0:
            self.console.print(line)


def bar(share: float) -> str:
    """Return a bar of :data:`BAR` characters, filled to ``share`` of 1, followed by ``!`` above 1."""
    filled = round(min(share, 1.0) * BAR)
    return "█" * filled + "░" * (BAR - filled) + ("!" if share > 1 else "")


def print_summary(result: Replay) -> None:
    """Print the table of a replay."""
    from trajpred.onboard.replay import resident_mb

    Console(highlight=False, soft_wrap=True).print(summary(result, resident_mb()))


def summary(result: Replay, memory_mb: float | None) -> Table:
    """Return the table printed after a replay; ``memory_mb``: of the process, None if unknown."""
    percentiles = ", ".join(f"{value:.1f}" for value in result.percentiles_ms().values())
    rows = {
        "updates": f"{len(result.latency_ms)}",
        "agents predicted per update": f"{min(result.agents)} to {max(result.agents)}",
        "latency p50, p95, p99": f"{percentiles} ms",
        "first update (map, surrounding lanes)": f"{result.cold_ms:.1f} ms",
        "lanes encoded": f"{result.encoded}",
    }
    if result.fallback:
        rows["predicted by the fallback"] = f"{result.fallback} of {sum(result.agents)}"
    rows |= {f"share of {part}": f"{share:.0%}" for part, share in result.shares().items()}
    if result.warnings:
        rows["warnings"] = f"{result.warnings.total()}"
    if memory_mb is not None:
        rows["memory of this process"] = f"{memory_mb:.0f} MB"
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows.items():
        table.add_row(name, value)
    return table
