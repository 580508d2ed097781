"""Pictures, films, pages and recordings of the scenarios that the visualize command chose."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajpred.cli.map_files import load_map
from trajpred.cli.scenarios import Choice
from trajpred.errors import DataError, require

if TYPE_CHECKING:
    from trajpred.predictors import Predictor
    from trajpred.scenario import Scenario

#: Formats of pictures.
PICTURES = ("png", "pdf", "svg")
#: Formats of films.
FILMS = ("gif", "mp4")
#: Format of the web page.
PAGE = ("html",)
#: Format of recordings for viewers.
RECORDING = ("mcap",)
#: Bytes of a file name that leave room for a number and a suffix.
MAX_NAME = 180


def file_stems(names: Sequence[str]) -> list[str]:
    """Return a file name without suffix for each of ``names``, distinct also where case is ignored."""
    stems: dict[str, str] = {}  # by their case-folded form, because many file systems ignore case
    for name in names:
        allowed = re.sub(r"[^\w.-]", "_", name)
        shortened = allowed.encode()[:MAX_NAME].decode(errors="ignore")
        first = shortened.strip(".") or "_"
        stem = first
        count = 1
        while stem.casefold() in stems:
            count += 1
            stem = f"{first}-{count}"
        stems[stem.casefold()] = stem
    return list(stems.values())


def load(checkpoint: str | None, without: list[str], joint: bool, attention: bool) -> Predictor | None:
    if checkpoint is None:
        return None
    from trajpred.predictors import load_predictor
    from trajpred.predictors.checkpoint import attention_of

    predictor = load_predictor(checkpoint, joint)
    require_again(predictor, without)
    if attention:
        attention_of(predictor, [])  # raises for predictors without
    return predictor


def require_again(predictor: Predictor, without: list[str]) -> None:
    """Raise DataError if a predictor that cannot predict again is to predict ``without`` road users."""
    from trajpred.predictors.predictions_file import predictions_files

    fixed = "needs a model or a baseline: a predictions file cannot predict again"
    require(not (without and predictions_files(predictor)), "without", fixed)


def draw(
    choice: Choice,
    predictor: Predictor | None,
    path: Path,
    *,
    without: list[str],
    attention: bool,
    dpi: int,
    **look: Any,
) -> bool:
    """Save the picture or film of one scenario; report a failure and return False, so that others follow."""
    from trajpred.predictors.checkpoint import attention_of
    from trajpred.predictors.perturbations import road_users
    from trajpred.predictors.perturbations import without as remove_tracks
    from trajpred.viz import WhatIf, draw_scene, save_scene
    from trajpred.viz.film import save_film

    try:
        scenario = choice.read()
        forecast = None
        if predictor is not None:
            [forecast] = predictor([scenario])
        format = path.suffix[1:].lower()
        if format in FILMS:
            save_film(scenario, forecast, path, **look)
        elif format in RECORDING:
            from trajpred.viz.viewer import save_mcap

            save_mcap(scenario, forecast, path)
        else:
            if predictor is not None and attention:
                [look["attention"]] = attention_of(predictor, [scenario])
            if predictor is not None and without:
                removed = road_users(scenario, without)
                [changed] = predictor([remove_tracks(scenario, removed)])
                look["what_if"] = WhatIf(tuple(removed), changed)
            save_scene(draw_scene(scenario, forecast, **look), path, dpi=dpi)
    except OSError:  # a full disk is not the scenario's fault
        raise
    except Exception as error:
        _report_skipped(choice.name, error)
        return False
    print(path)
    return True


def draw_map(map: Path, path: Path, dpi: int, **look: Any) -> int:
    from trajpred.viz import draw_lane_map, save_scene

    file = load_map(map)
    title = f"{map.name} · {file.format} · {len(file.lanes)} lane segments"
    save_scene(draw_lane_map(file.lanes, title=title, **look), path, dpi=dpi)
    print(path)
    return 0


def _report_skipped(name: str, error: Exception) -> None:
    from tqdm import tqdm

    reason = str(error)
    if not isinstance(error, DataError):
        reason = f"{type(error).__name__}: {error}"
    tqdm.write(f"{name}: skipped: {reason}", file=sys.stderr)  # keeps a progress bar whole


def draw_page(
    path: Path,
    choices: list[Choice],
    models: list[str],
    *,
    without: list[str],
    stream: tuple[float, int] | None,
) -> int:
    """Write the page of the scenarios that can be read.

    Args:
        stream: seconds between the updates of a stream, and their number; None without a stream.
    """
    from trajpred.predictors import load_predictor
    from trajpred.predictors.derived import StreamedPredictor
    from trajpred.viz.page import write_page

    predictors: list[Predictor] = []
    for model in models:
        predictor = load_predictor(model)
        require_again(predictor, without)
        if stream is not None:
            every_s, updates = stream
            predictor = StreamedPredictor(predictor, every_s, updates)
        predictors.append(predictor)
    scenarios: list[Scenario] = []
    skipped: list[str] = []

    def skip(scenario: Scenario, error: Exception) -> None:
        skipped.append(scenario.scenario_id)
        _report_skipped(scenario.scenario_id, error)

    for choice in choices:
        try:
            scenarios.append(choice.read())
        except DataError as error:
            skipped.append(choice.name)
            _report_skipped(choice.name, error)
    write_page(path, scenarios, predictors, without=without, on_error=skip)
    print(path)
    return int(bool(skipped))
