"""Readers that need torch: checkpoints and configs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn

from tests.fuzz.mutate import spoil_bytes, spoil_json, stacked, value
from tests.fuzz.reader import Reader, of_file
from tests.fuzz.result_readers import regions, spoil_zip
from tests.model.small import small_config
from trajpred.errors import DataError
from trajpred.model.checkpoint import (
    CALIBRATION,
    CONFIG,
    TRAINING,
    load_matching,
    load_weights,
    read_checkpoint,
    training_facts,
    weights_below,
)
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.training.lit_forecaster import LitForecaster


def _saved(content: Any) -> bytes:
    sink = io.BytesIO()
    torch.save(content, sink)
    return sink.getvalue()


def _content(state: dict[str, torch.Tensor], config: dict[str, Any]) -> dict[str, Any]:
    fitted = regions(Path()).seeds[0].decode()
    return {
        CONFIG: config,
        "state_dict": state,
        TRAINING: {"recipe": "small", "seed": 1},
        CALIBRATION: {"temperature": 1.5, "regions": fitted, "store": {"source": "x"}},
        "epoch": 3,
        "global_step": 9,
    }


def checkpoint(folder: Path) -> Reader:
    """A checkpoint of a model of two weights."""
    path, seed = folder / "best.ckpt", _saved(_content(nn.Linear(2, 3).state_dict(), {"dim": 3}))

    def read() -> None:
        content = read_checkpoint(path)
        training_facts(content)
        weights_below(content["state_dict"], "w")
        refused = []
        for load in (load_weights, load_matching):
            try:
                load(nn.Linear(2, 3), content["state_dict"], path)
            except DataError as error:
                refused.append(error)
        if refused:
            raise refused[0]

    return Reader((seed,), stacked(spoil_zip, _spoil_content, spoil_bytes), of_file(path, read))


def _spoil_content(random: Random, data: bytes) -> bytes:
    """Change one of the things that a checkpoint holds, and save it again."""
    try:
        content = torch.load(io.BytesIO(data), weights_only=True)
        if not isinstance(content, dict) or not content:
            return spoil_bytes(random, data)
    except Exception:  # what spoilt bytes may raise is not what is tested here
        return spoil_bytes(random, data)
    holder = random.choice((content, *(one for one in content.values() if isinstance(one, dict) and one)))
    key = random.choice(list(holder))
    match random.randrange(5):
        case 0:
            del holder[key]
        case 1:
            holder[key] = value(random)
        case 2:
            holder[key] = random.choice(
                (torch.zeros(0), torch.ones(2, 2), torch.zeros(1).expand(10**6, 10**6))
            )
        case 3:
            holder[random.choice((1, None, "", "x", ("a",)))] = value(random)
        case _:
            holder[key] = holder[random.choice(list(holder))]
    try:
        return _saved(content)
    except Exception:  # torch cannot write everything
        return spoil_bytes(random, data)


def trained_model(folder: Path) -> Reader:
    """A small forecaster's checkpoint, made a predictor of: its config is spoilt."""
    config = small_config()
    for part in config.values():
        part["init_args"] |= {"dim": 8, "heads": 2}
    model = LitForecaster.build(config)
    path, weights = folder / "best.ckpt", model.state_dict()

    def spoil(random: Random, data: bytes) -> bytes:
        return spoil_json(random, data) if random.random() < 0.95 else spoil_bytes(random, data)

    def read(content: bytes) -> None:
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            return
        path.write_bytes(_saved(_content(weights, found)))
        CheckpointPredictor(path)

    return Reader((json.dumps(config).encode(),), stacked(spoil), read, rate=0.02)


READERS = {"checkpoint (zip, pickle)": checkpoint, "model config (in a checkpoint)": trained_model}
