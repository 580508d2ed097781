"""A checkpoint is data: whatever it contains, it is read or rejected, and nothing in it is imported."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import rejects
from tests.model.small import checkpoint_of, small_config, small_model
from trajpred.errors import DataError
from trajpred.model import Forecaster
from trajpred.model.checkpoint import CALIBRATION, CONFIG, TRAINING, read_checkpoint
from trajpred.training.lit_forecaster import LitForecaster

#: Spellings that a parser of configs takes for a class to import.
SPELLINGS: list[dict[str, Any]] = [
    {"encoder": "evilmod.Encoder"},
    {"encoder": "{class_path: evilmod.Encoder}"},
    {"encoder": {"class_path": "evilmod.Encoder"}},
    {"encoder.class_path": "evilmod.Encoder"},
    {"encoder": {"class_path": "trajpred.model.SceneEncoder", "init_args.class_path": "evilmod.Encoder"}},
    {"encoder": {"class_path": "trajpred.model.TokenEncoder", "init_args": {"agent": "evilmod.Encoder"}}},
    {"scene": {"class_path": "evilmod.Encoder"}},
    {"scene": {"features": "evilmod.json"}},
    {"encoder": {"class_path": "trajpred.model.pretrained.SceneEncoder"}},
    {"encoder": {"class_path": "torch.nn.Linear", "init_args": {"in_features": 1, "out_features": 1}}},
]


def doubled(times: int) -> list[Any]:
    """A few small lists that print as 2**times values."""
    result: list[Any] = [1]
    for _ in range(times):
        result = [result, result]
    return result


ITSELF: dict[str, Any] = {}
ITSELF["encoder"] = ITSELF
ENCODER = (CONFIG, "encoder", "init_args")
WEIGHT = ("state_dict", "forecaster.decoder.mode.weight")
with warnings.catch_warnings():  # torch will drop quantized tensors
    warnings.simplefilter("ignore")
    QUANTIZED = torch.quantize_per_tensor(torch.zeros(6, 32), 1.0, 0, torch.qint8)
#: The place of a value in a checkpoint, and the value.
HOSTILE: dict[str, tuple[tuple[str | None, ...], Any]] = {
    "config is a tensor": ((CONFIG,), torch.zeros(0)),
    "record is a tensor": ((TRAINING,), torch.zeros(2)),
    "record with a tensor": ((TRAINING, "seed"), torch.zeros(2)),
    "doubled": ((TRAINING, "seed"), doubled(60)),
    "calibration": ((CALIBRATION,), {"temperature": float("nan"), "regions": ""}),
    "epoch as text": (("epoch",), "3"),
    "global_step": (("global_step",), 10**5_000),
    "contains itself": ((*ENCODER, "dim"), ITSELF),
    "layers": ((*ENCODER, "layers"), 2**62),
    "no heads": ((*ENCODER, "heads"), 0),
    "long integer": ((*ENCODER, "dim"), 10**5_000),
    "dropout": ((*ENCODER, "dropout"), float("nan")),
    "horizon": ((CONFIG, "decoder", "init_args", "horizon"), 10_000_000),
    "max_agents": ((CONFIG, "scene"), {"features": {"max_agents": 2**40}}),
    "radius": ((CONFIG, "scene"), {"graph": {"lane_radius_m": float("inf")}}),
    "weight without a name": (("state_dict", None), torch.zeros(1)),
    "nan weight": (WEIGHT, torch.full((6, 32), float("nan"))),
    "weight is a list": (WEIGHT, [1.0]),
    "quantized weight": (WEIGHT, QUANTIZED),
    "sparse weight": (WEIGHT, torch.zeros(6, 32).to_sparse()),
    "meta weight": (WEIGHT, torch.zeros(6, 32, device="meta")),
    "expanded weight": (WEIGHT, torch.zeros(1).expand(10**6, 10**6)),
    "weight of another shape": (WEIGHT, torch.zeros(7, 32)),
}


def content_of(folder: Path) -> dict[str, Any]:
    content = read_checkpoint(checkpoint_of(small_model(), folder / "good.ckpt"))
    return content | {TRAINING: {}, "epoch": 1, "global_step": 2}


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module in the working directory that leaves a file when it is imported."""
    marker = tmp_path / "imported"
    (tmp_path / "evilmod.py").write_text(f"open({str(marker)!r}, 'w')\nfrom trajpred.model import *\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return marker


@pytest.mark.parametrize("change", SPELLINGS, ids=str)
def test_no_spelling_of_a_class_imports_its_module(change: dict[str, Any], evil: Path) -> None:
    content = content_of(evil.parent)
    content[CONFIG] |= change
    torch.save(content, evil.parent / "bad.ckpt")
    try:
        Forecaster.load(evil.parent / "bad.ckpt")  # settings that loading does not need are ignored
    except DataError:
        pass
    else:
        assert set(change) == {"encoder.class_path"}
    rejects("", LitForecaster.build, content[CONFIG])
    assert not evil.exists()
    assert "evilmod" not in sys.modules


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_values_are_one_short_error(name: str, tmp_path: Path) -> None:
    content, path = content_of(tmp_path), tmp_path / "bad.ckpt"
    (*holders, key), value = HOSTILE[name]
    holder = content
    for part in holders:
        holder = holder[part]
    holder[key] = value
    torch.save(content, path)
    caught = rejects("", Forecaster.load, path)
    assert "bad.ckpt" in str(caught)
    assert len(str(caught)) < 1_500


@pytest.mark.skipif(sys.platform == "win32", reason="no such files")
def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.ckpt")
    (tmp_path / "device.ckpt").symlink_to("/dev/zero")
    (tmp_path / "circle.ckpt").symlink_to("circle.ckpt")
    for name in ("fifo", "device", "circle"):
        rejects(f"{name}.ckpt", read_checkpoint, tmp_path / f"{name}.ckpt")
    (tmp_path / "link.ckpt").symlink_to(checkpoint_of(small_model(), tmp_path / "good.ckpt"))
    assert Forecaster.load(tmp_path / "link.ckpt")


def test_own_classes_are_found_by_each_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its module has been imported; ``package.Own`` is re-exported from ``package.encoders``."""
    package = tmp_path / "package_of_a_user"
    package.mkdir()
    (package / "__init__.py").write_text("from package_of_a_user.encoders import Own\n")
    (package / "encoders.py").write_text(
        "from trajpred.model import SceneEncoder\n"
        "class Own(SceneEncoder):\n"
        "    def __init__(self, sizes, scale: 'Unknown' = 1, **rest):\n"
        "        super().__init__(layers=len(sizes), **rest)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = small_config()
    arguments = {"sizes": [1, 2], "dim": 32, "heads": 4}
    for path in ("package_of_a_user.Own", "package_of_a_user.encoders.Own"):
        config["encoder"] = {"class_path": path, "init_args": arguments}
        if path.count(".") == 1:
            rejects("give --import package_of_a_user", LitForecaster.build, config)
            __import__("package_of_a_user")
        model = LitForecaster.build(config)
        assert type(model.forecaster.encoder).__name__ == "Own"
        assert Forecaster.load(checkpoint_of(model, tmp_path / "own.ckpt"))
