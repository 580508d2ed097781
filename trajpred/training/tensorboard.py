"""What TensorBoard shows of a run: its learning curves."""

from __future__ import annotations

from collections.abc import Mapping

from pytorch_lightning.loggers import TensorBoardLogger


class RunLogger(TensorBoardLogger):
    """Lightning's logger without its curve of the epoch: TensorBoard sorts by name and opens on train/loss.

    Args:
        save_dir, name, version: the run's folder is ``save_dir/name/version``, by default a new
            ``runs/forecaster/version_N``.
    """

    def __init__(
        self, save_dir: str = "runs", name: str = "forecaster", version: int | str | None = None
    ) -> None:
        super().__init__(save_dir, name, version, default_hp_metric=False)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        super().log_metrics({name: x for name, x in metrics.items() if name != "epoch"}, step)
