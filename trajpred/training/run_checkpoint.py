"""Lightning's checkpoint callback, for runs that may be moved or named from elsewhere before they go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytorch_lightning.callbacks import ModelCheckpoint


class RunCheckpoint(ModelCheckpoint):
    """Remembers which checkpoint is the best one, and how good, by its name in the folder of the run.

    Lightning goes by paths, and forgets both where a path is spelled otherwise: then the next checkpoint
    would be the best one, however bad.
    """

    @property
    def state_key(self) -> str:
        """As Lightning's own callback calls itself: checkpoints do not depend on this class."""
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        paths = {name: self._here(x) for name, x in state_dict.items() if name.endswith("_model_path")}
        best = {self._here(path): score for path, score in state_dict["best_k_models"].items()}
        if all(Path(path).is_file() for path in best):
            state_dict = {**state_dict, **paths, "best_k_models": best, "dirpath": self.dirpath}
        super().load_state_dict(state_dict)
        if not Path(self.best_model_path).is_file():
            self.best_model_path = ""

    def _here(self, path: str) -> str:
        return str(Path(self.dirpath or "") / Path(path).name) if path else path
