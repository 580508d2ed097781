"""Fine-tuning: settings that a run takes over from the weights it starts from.

Their model's settings are the defaults of the new one. The user's settings take precedence as long as all
weights are used; the time step is always the weights', since data can be resampled.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
import yaml

from trajpred.data.resample import same_step
from trajpred.errors import DataError
from trajpred.model.checkpoint import (
    CONFIG,
    load_matching,
    matching,
    read_checkpoint,
    require_fitting,
    training_facts,
)
from trajpred.model.forecaster import SETTINGS
from trajpred.model.pretrained import licence_of
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.training.settings import ABSENT, differences

#: Defaults of the trainer: few epochs, since the model is trained already.
TRAINER = {"max_epochs": 20, "check_val_every_n_epoch": 5}
#: Default peak learning rate, a tenth of a small model's when trained from scratch.
LEARNING_RATE = 2e-4
#: Number of settings listed in a message.
MAX_LISTED = 4


@dataclass(frozen=True)
class Start:
    """The weights that a run starts from.

    Attributes:
        weights: path of a checkpoint or run, or name of shipped weights.
        config: their model's config.
        state: the weights by name.
        step_s: seconds between their model's steps.
        licence: their licence, see :func:`~trajpred.model.pretrained.licence_of`.
    """

    weights: str
    config: dict[str, Any]
    state: dict[str, torch.Tensor]
    step_s: float
    licence: str

    @classmethod
    def read(cls, weights: str) -> Start:
        """Read the weights.

        Raises: DataError, also if imported classes cannot build their model, or it lacks one of the weights;
            weights that only the model has are initialised.
        """
        content = read_checkpoint(weights)
        config = content[CONFIG]
        try:
            model = LitForecaster.build(config)  # the parser would import any class
        except DataError as error:
            raise error.located(weights) from None
        require_fitting(model, content["state_dict"], weights, complete=False)
        config["history"] = model.forecaster.history
        config["decoder"].setdefault("init_args", {})["horizon"] = model.forecaster.horizon
        licence = licence_of(weights, training_facts(content))
        return cls(weights, config, content["state_dict"], model.forecaster.step_s, licence)

    @property
    def settings(self) -> str:
        """Return the settings of a run unless the user changes them, as YAML."""
        model = deepcopy(self.config)
        model["future"] = model["decoder"]["init_args"].pop("horizon")
        model["optimizer"] = model.get("optimizer", {}) | {"learning_rate": LEARNING_RATE}
        return yaml.safe_dump({"model": model, "trainer": TRAINER})

    def load_into(self, model: LitForecaster) -> list[str]:
        """Load the weights, and return lines that describe differences.

        Raises: DataError naming the settings that contradict the weights: another time step, or settings that
            leave weights unused. Another horizon may replace weights whose shape depends on it.
        """
        step_s = model.forecaster.step_s
        if not same_step(step_s, self.step_s):
            problem = f"model.step_s is {step_s:g}, theirs {self.step_s:g}"
            raise DataError(f"{problem}: leave it out, the data are resampled", file=self.weights)
        changed: list[str] = []
        for name, (theirs, ours) in differences(self.config, model.config, "model").items():
            if name.split(".")[1] in SETTINGS and ABSENT not in (theirs, ours):
                setting = "model.future" if name == "model.decoder.horizon" else name
                changed.append(f"{setting} is {ours}, theirs {theirs}")
        new, unused = load_matching(model, self.state, self.weights)
        if unused:
            usable = matching(self._with_horizon(model.forecaster.horizon), self.state)
            unused = [name for name in unused if name in usable]
        if unused:
            lost = f"{len(unused)} of its {len(self.state)} weights would not be used"
            reason = "; ".join(changed[:MAX_LISTED]) or "the model's code has changed"
            advice = "leave these settings to the weights, or train without --weights"
            raise DataError(f"{lost} ({reason}): {advice}", file=self.weights)
        parts = ", ".join(name.removeprefix("forecaster.") for name in new)
        lines = [f"Fine-tunes {self.weights}; newly initialised: {parts or 'none'}"]
        if changed:
            lines.append(f"Settings that differ from those of these weights: {'; '.join(changed)}")
        return lines

    def _with_horizon(self, steps: int) -> LitForecaster:
        """Build the weights' model with another horizon, without changing random numbers."""
        config = deepcopy(self.config)
        config["decoder"]["init_args"]["horizon"] = steps
        with torch.random.fork_rng(devices=[]):
            return LitForecaster.build(config)
