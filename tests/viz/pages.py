"""Web pages that are written and read."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.viz.scenes import make_forecast
from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.predictors import Predictor
from trajpred.viz.page import write_page


class Page:
    """What a browser finds in the file: data blocks, code, and references to other files."""

    def __init__(self, path: Path) -> None:
        self.source = path.read_text(encoding="utf-8")
        scripts = re.findall(r"<script([^>]*)>(.*?)</script>", self.source, re.DOTALL)
        self.code = [text for kind, text in scripts if not kind]
        self.blocks = {kind.split('"')[3]: text for kind, text in scripts if kind}
        tags = re.findall(r"<[a-z][^>]*>", re.sub(r"(?s)<(script|style).*?</\1>", "", self.source))
        self.references = re.findall(r'\b(?:src|href|action|data)="([^"]*)"', "".join(tags))
        assert len(re.findall("<script", self.source)) == len(scripts) == self.source.count("</script")

    @property
    def index(self) -> Any:
        return json.loads(self.blocks["index"])

    def scene(self, number: int) -> Any:
        return json.loads(gzip.decompress(base64.b64decode(json.loads(self.blocks[f"scene-{number}"]))))


class FixedPredictor(Predictor):
    """Predicts the same modes for every scenario."""

    def __init__(self, name: str = "fixed", walker: str = "walker", **changes: Any) -> None:
        self.name, self.tracks, self.changes = name, ("car", walker), changes

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return [replace(make_forecast(one, self.tracks), **self.changes) for one in scenarios]


def write(path: Path, scenes: list[Scenario], *predictors: Any, **options: Any) -> Page:
    return Page(write_page(path, scenes, predictors, **options))


def points(packed: dict[str, Any]) -> np.ndarray:
    """Coordinates ``[..., P, 2]`` in centimetres."""
    return np.stack([np.cumsum(packed[axis], axis=-1) for axis in "xy"], axis=-1)
