"""What a replay says in a terminal while it runs, and the table at its end."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trajpred.onboard.replay import Replay, Update

#: Characters of the bar, which is full where a step of the scenario is over before the answer comes.
BAR = 24


class ReplayReport:
    """One line that changes with every update in a terminal; elsewhere a line for every second.

    Args:
        step_s: the time there is for an update.
        console: where to write.
    """

    def __init__(self, step_s: float, console: Console | None = None) -> None:
        self.step_s, self.console = step_s, console or Console(highlight=False, soft_wrap=True)
        self._live = Live(console=self.console, auto_refresh=False)

    def __enter__(self) -> ReplayReport:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()

    def tell(self, update: Update) -> None:
        """Warnings stay, the line goes on."""
        for warning in update.forecast.warnings:
            self.console.print(f"{update.seconds:6.1f} s  warning: {warning}", markup=False)
        if self.console.is_terminal:
            self._live.update(self._line(update), refresh=True)
        elif update.step % max(1, round(1 / self.step_s)) == 0:
            self.console.print(self._line(update))

    def _line(self, update: Update) -> Text:
        told = update.forecast
        line = f"{update.seconds:6.1f} s  {len(told.track_id):3d} agents predicted, "
        line += f"{len(told.not_predicted):3d} not  {update.latency_ms:7.1f} ms "
        return Text(line + (bar(update.latency_ms / 1e3 / self.step_s) if self.console.is_terminal else ""))


def bar(share: float) -> str:
    """A bar of :data:`BAR` characters, filled to ``share`` of 1, and ``!`` beyond."""
    filled = round(min(share, 1.0) * BAR)
    return "█" * filled + "░" * (BAR - filled) + ("!" if share > 1 else "")


def summary(result: Replay, memory_mb: float | None) -> Table:
    """The table at the end; ``memory_mb``: of the process, None if unknown."""
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    warm = result.percentiles_ms()
    fewest, most = min(result.agents), max(result.agents)
    rows = {
        "updates": f"{len(result.latency_ms)}",
        "agents predicted at each": f"{fewest} to {most}",
        "latency p50, p95, p99": f"{', '.join(f'{value:.1f}' for value in warm.values())} ms",
        "first update (map, lanes around)": f"{result.cold_ms:.1f} ms",
        "lanes encoded": f"{result.encoded}",
    }
    rows |= {f"share of {part}": f"{share:.0%}" for part, share in result.shares().items()}
    if result.warnings:
        rows["warnings"] = f"{result.warnings.total()}"
    rows |= {} if memory_mb is None else {"memory of this process": f"{memory_mb:.0f} MB"}
    for name, value in rows.items():
        table.add_row(name, value)
    return table
