"""What TensorBoard shows of a run: its learning curves."""

from __future__ import annotations

from collections.abc import Mapping

from pytorch_lightning.loggers import TensorBoardLogger


class RunLogger(TensorBoardLogger):
    """Lightning's logger without its curve of the epoch: TensorBoard sorts by name and opens on train/loss.

    Args:
        save_dir: folder of all runs; that of this run is ``save_dir/name/version``.
        name: of the recipe.
        version: of the run; by default a new ``version_N``.
    """

    def __init__(
        self, save_dir: str = "runs", name: str = "forecaster", version: int | str | None = None
    ) -> None:
        super().__init__(save_dir, name, version, default_hp_metric=False)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        curves = {name: value for name, value in metrics.items() if name != "epoch"}
        super().log_metrics(curves, step)
