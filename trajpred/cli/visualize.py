"""The command that draws scenarios: by id, the worst scored, or the first."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from trajpred.cli import Positive
from trajpred.cli.pictures import (
    FILMS,
    PAGE,
    PICTURES,
    RECORDING,
    draw,
    draw_map,
    draw_page,
    file_stems,
    load,
)
from trajpred.cli.scenarios import EVERY_S, UPDATES, choose, require_streaming
from trajpred.errors import DataError, require
from trajpred.files import require_writable
from trajpred.splits import Half

#: Options that apply to some formats only: the formats, and their description.
FORMATS = {
    "against": (PAGE, "the web page: --format html"),
    "radius_m": (PICTURES + FILMS, "pictures and films: the web page zooms"),
    "theme": (PICTURES + FILMS, "pictures and films: the web page has both"),
    "dpi": (("png",), "png"),
    "world": (PICTURES + FILMS, "pictures and films"),
    "without": (PICTURES + PAGE, "pictures (png, pdf or svg) and the web page"),
    "attention": (PICTURES, "pictures (png, pdf or svg): the web page has it as a layer"),
    "streaming": (PAGE, "the web page: --format html"),
}
#: Options that need a predictor.
NEED_PREDICTOR = ("against", "world", "without", "attention", "streaming")


def visualize(
    *,
    store: Path | None = None,
    scenario: list[str] | None = None,
    checkpoint: str | None = None,
    split: str = "val",
    half: Half | None = None,
    out: Path = Path("pictures"),
    limit: Positive = 10,
    format: Literal["png", "pdf", "svg", "gif", "mp4", "html", "mcap"] | None = None,
    radius_m: float | None = None,
    theme: Literal["light", "dark"] = "light",
    dpi: Positive | None = None,
    world: int | None = None,
    against: str | None = None,
    without: list[str] | None = None,
    attention: bool = False,
    streaming: bool = False,
    every_s: float = EVERY_S,
    updates: int = UPDATES,
    raw: Path | None = None,
    source: str | None = None,
    map: Path | None = None,
    center: tuple[float, float] | None = None,
    worst: Path | None = None,
    by: str | None = None,
) -> int:
    """Draw scenarios from above, with the predictions of a checkpoint or a baseline.

    Example: trajpred visualize --checkpoint argoverse-nano --format gif --limit 2 --out films

    Args:
        store: Folder written by prepare; by default the sample's.
        scenario: Ids, or unambiguous starts of them, from any split; by default the first of --split.
        checkpoint: Path of a checkpoint, run, bundle or predictions file (.parquet), or name of shipped
            weights or of a baseline; without one the scenarios are drawn alone.
        split: Split to take scenarios from if none is named.
        half: Take only scenarios of this half of the split (docs/how-to/evaluate.md).
        out: Folder for the pictures, one per scenario; or the file of one scenario or of the web page, with
            the suffix of its format.
        limit: Maximum number of scenarios if none is named.
        format: png, pdf or svg; gif or mp4 for a film in real time; html for one self-contained web page;
            mcap for Foxglove. By default as --out ends, else png.
        radius_m: Half the side of the picture in metres; by default the focal agent's futures fit.
        theme: light, or dark for screens; the web page has both.
        dpi: Pixels per inch of a png, by default 150: 1080 by 1236 pixels.
        world: Draw only this joint future, 0 the most probable, of a forecast that has joint futures.
        against: In the web page, another checkpoint or baseline, side by side with the first.
        without: Also predict without these tracks, by id, or without the nearest road user (nearest).
        streaming: In the web page, also show what was predicted at earlier times, and plot how it changes.
        every_s: With --streaming, seconds between updates.
        updates: With --streaming, number of updates; the last one is at the last observed step.
        attention: Also draw the lanes and agents that the model attends to for the focal agent.
        raw: Take scenarios from raw data instead: folder in the official layout, or one scenario.
        source: Data set of the raw data, as for prepare; by default argoverse2.
        map: Draw a map alone: a file of Lanelet2, OpenDRIVE, CommonRoad or Argoverse 2.
        center: With --map and --radius-m, x and y (metres) of the middle of the picture.
        worst: Results written by evaluate --json; draw the scenarios with the worst predictions.
        by: Metric that ranks them, by default minFDE6.
    """
    require(radius_m is None or 0 < radius_m < math.inf, "radius_m", "must be positive and finite")
    require(worst is None or not scenario, "worst", "cannot be combined with --scenario")
    require(worst is not None or by is None, "by", "needs --worst")
    enlarged = map is not None and radius_m is not None
    require(center is None or enlarged, "center", "needs --map and --radius-m")
    named = scenario is not None or worst is not None or raw is not None
    require(half is None or not named, "half", "cannot be combined with --scenario, --worst and --raw")
    require(raw is None or store is None, "store", "cannot be combined with --raw")
    require(raw is not None or source is None, "source", "needs --raw")
    require_streaming(streaming, every_s, updates)
    is_used = {
        "against": against is not None,
        "radius_m": radius_m is not None,
        "world": world is not None,
        "without": without is not None,
        "dpi": dpi is not None,
        "theme": theme != "light",
        "attention": attention,
        "streaming": streaming,
    }
    options = [name for name, used in is_used.items() if used]
    kind, is_file = _kind_of(out, format)
    _check_options(kind, checkpoint, options)
    require_writable(out, folder=not is_file)
    if map is not None:
        alone = all(option is None for option in (store, scenario, checkpoint, raw, worst))
        require(alone, "map", "is drawn alone, without scenarios or predictions")
        require(kind in PICTURES, "map", f"is drawn as a picture ({', '.join(PICTURES)}), not as {kind}")
        path = out if is_file else out / f"{map.stem}.{kind}"
        return draw_map(map, path, radius_m=radius_m, center=center, theme=theme, dpi=dpi or 150)
    if worst is not None:
        scenario, split, sentence = worst_scenarios(worst, by or "minFDE6", limit, checkpoint)
        print(sentence)
    if raw is not None:
        source = source or "argoverse2"
    choices = choose(raw or store, source, split, scenario or [], limit, half)
    if kind == "html":
        return draw_page(
            out if is_file else out / "page.html",
            choices,
            [name for name in (checkpoint, against) if name is not None],
            without=without or [],
            stream=(every_s, updates) if streaming else None,
        )
    several = f"is one file, but {len(choices)} scenarios are drawn: give a folder or choose one scenario"
    require(not is_file or len(choices) == 1, "out", several)
    predictor = load(checkpoint, without or [], joint=world is not None, attention=attention)
    complete = True
    for choice, stem in zip(choices, file_stems([choice.name for choice in choices]), strict=True):
        path = out if is_file else out / f"{stem}.{kind}"
        complete &= draw(
            choice,
            predictor,
            path,
            without=without or [],
            attention=attention,
            dpi=dpi or 150,
            radius_m=radius_m,
            theme=theme,
            world=world,
        )
    return int(not complete)


def _kind_of(out: Path, format: str | None) -> tuple[str, bool]:
    """Return the format to draw, and whether ``out`` is one file. Raises: DataError if they differ."""
    suffix = out.suffix[1:].lower()
    if suffix not in PICTURES + FILMS + PAGE + RECORDING:
        return format or "png", False
    require(format in (None, suffix), "out", f"ends in .{suffix}, but --format is {format}")
    return suffix, True


def _check_options(format: str, checkpoint: str | None, options: list[str]) -> None:
    """Raise DataError about options that contradict each other, before anything is made."""
    for name in options:
        formats, description = FORMATS[name]
        require(format in formats, name, f"works only with {description}")
        require(name not in NEED_PREDICTOR or checkpoint is not None, name, "needs --checkpoint")
    if "without" in options:
        require("attention" not in options, "attention", "cannot be combined with --without")
        require("world" not in options, "world", "cannot be combined with --without")
    if format == "mp4":
        from trajpred.viz.film_file import find_encoder

        find_encoder()
    if format == "mcap":
        from trajpred.sources.recorded_drive import require_bags

        require_bags()


def worst_scenarios(results: Path, by: str, limit: int, checkpoint: str | None) -> tuple[list[str], str, str]:
    """Find the ids of the worst scenarios by a metric, their split, and a caption.

    Of several evaluations in ``results``, that of ``checkpoint`` is taken, else the first.

    Raises: DataError if the file lacks the metric.
    """
    from trajpred.evaluation.results import read_results
    from trajpred.predictors.checkpoint import display_name

    evaluations = read_results(results)
    if not evaluations:
        raise DataError("holds no evaluation", file=results)
    evaluation = evaluations[0]
    if checkpoint is not None:
        predictor = display_name(checkpoint)
        matching = [candidate for candidate in evaluations if candidate.predictor == predictor]
        evaluation = (matching or evaluations)[0]
    try:
        values = evaluation.worst(by, limit)
    except DataError as error:
        raise error.located(results) from None
    names = list(values)
    if not names:
        raise DataError(f"has no {by} of any scenario", file=results)
    bounds = f"{values[names[0]]:.2f}"
    least = f"{values[names[-1]]:.2f}"
    if least != bounds:
        bounds += f" to {least}"
    sentence = f"the {len(names)} worst of {evaluation.predictor} ({evaluation.split}) by {by}: {bounds}"
    return names, evaluation.split, sentence
