"""The command that draws scenarios: pictures, films, web pages, recordings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from trajpred.cli.info import load_map
from trajpred.cli.scenarios import (
    EVERY_S,
    UPDATES,
    Choice,
    Positive,
    SourceOptions,
    choose,
    read_all,
    report_skipped,
    store_or_raw,
)
from trajpred.data.files import require_writable
from trajpred.data.splits import Half
from trajpred.errors import DataError, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trajpred.data.scenario import Scenario
    from trajpred.predictors import Predictor

#: A width of pictures, at least ``MIN_WIDTH_MM`` of ``trajpred.viz.scene``, which loads matplotlib.
Millimetres = Annotated[float, Parameter(validator=validators.Number(gte=20))]
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
    plain: bool,
    width_mm: float | None,
    **look: Any,
) -> bool:
    """Save the picture or film of one scenario; report a failure and return False, so that others follow."""
    from trajpred.predictors.checkpoint import attention_of
    from trajpred.predictors.perturbations import road_users
    from trajpred.predictors.perturbations import without as remove_tracks
    from trajpred.viz import WhatIf, draw_scene
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
            from trajpred.integrations.mcap import save_mcap

            save_mcap(scenario, forecast, path)
        else:
            if predictor is not None and attention:
                [look["attention"]] = attention_of(predictor, [scenario])
            if predictor is not None and without:
                removed = road_users(scenario, without)
                [changed] = predictor([remove_tracks(scenario, removed)])
                look["what_if"] = WhatIf(tuple(removed), changed)
            save_picture(partial(draw_scene, scenario, forecast, **look), path, dpi, plain, width_mm)
    except OSError:  # a full disk is not the scenario's fault
        raise
    except Exception as error:
        report_skipped(choice.name, error)
        return False
    print(path)
    return True


def save_picture(
    make: Callable[..., Figure], path: Path, dpi: int, plain: bool, width_mm: float | None
) -> None:
    """Save the picture that ``make`` draws; of a plain one also its legend, beside it."""
    from trajpred.viz import legend_alone, save_scene

    save_scene(make(plain=plain, width_mm=width_mm), path, dpi=dpi)
    if plain:
        beside = path.with_name(f"{path.stem}-legend{path.suffix}")
        save_scene(legend_alone(make()), beside, dpi=dpi)


def draw_map(
    map: Path, path: Path, dpi: int, plain: bool = False, width_mm: float | None = None, **look: Any
) -> int:
    from trajpred.viz import draw_lane_map

    file = load_map(map)
    title = f"{map.name} · {file.format} · {len(file.lanes)} lane segments"
    save_picture(partial(draw_lane_map, file.lanes, title=title, **look), path, dpi, plain, width_mm)
    print(path)
    return 0


def draw_page(
    path: Path,
    choices: list[Choice],
    models: list[str],
    *,
    without: list[str],
    streaming: bool,
) -> int:
    """Write the page of the scenarios that can be read."""
    from trajpred.predictors import load_predictor
    from trajpred.predictors.derived import StreamedPredictor
    from trajpred.viz.page import write_page

    predictors: list[Predictor] = []
    for model in models:
        predictor = load_predictor(model)
        require_again(predictor, without)
        if streaming:
            predictor = StreamedPredictor(predictor, EVERY_S, UPDATES)
        predictors.append(predictor)
    scenarios = read_all(choices)
    skipped: list[str] = []

    def skip(scenario: Scenario, error: Exception) -> None:
        skipped.append(scenario.scenario_id)
        report_skipped(scenario.scenario_id, error)

    write_page(path, scenarios, predictors, without=without, on_error=skip)
    print(path)
    complete = len(scenarios) == len(choices) and not skipped
    return int(not complete)


#: Options that apply to some formats only: the formats, and their description.
FORMATS = {
    "against": (PAGE, "the web page: --format html"),
    "view": (PICTURES + FILMS, "pictures and films: the web page zooms"),
    "theme": (PICTURES + FILMS, "pictures and films: the web page has both"),
    "dpi": (("png",), "png"),
    "plain": (PICTURES, "pictures (png, pdf or svg)"),
    "width_mm": (PICTURES, "pictures (png, pdf or svg)"),
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
    view: list[float] | None = None,
    plain: bool = False,
    width_mm: Millimetres | None = None,
    theme: Literal["light", "dark"] = "light",
    dpi: Positive | None = None,
    world: int | None = None,
    against: str | None = None,
    without: list[str] | None = None,
    attention: bool = False,
    streaming: bool = False,
    raw: Path | None = None,
    source: str | None = None,
    map: Path | None = None,
    worst: Path | None = None,
    by: str | None = None,
    options: SourceOptions = None,
) -> int:
    """Draw scenarios from above, with the predictions of a checkpoint or a baseline.

    Example: trajpred visualize --checkpoint argoverse-nano --format gif --limit 2 --out films

    Args:
        store: Folder written by prepare; by default the sample's.
        scenario: Ids, or unambiguous starts of them, from any split; by default the first of --split.
        checkpoint: Path of a checkpoint, run, bundle or predictions file (.parquet, .h5), or name of shipped
            weights or of a baseline; without one the scenarios are drawn alone.
        split: Split to take scenarios from if none is named.
        half: Take only scenarios of this half of the split (docs/how-to/evaluate.md).
        out: Folder for the pictures, one per scenario; or the file of one scenario or of the web page, with
            the suffix of its format.
        limit: Maximum number of scenarios if none is named.
        format: png, pdf or svg; gif or mp4 for a film in real time; html for one self-contained web page;
            mcap for Foxglove. By default as --out ends, else png.
        view: Half the side of the picture in metres, by default the focal agent's futures fit; of a map also
            x and y of the middle, before it.
        plain: Without caption and legend, for papers; the legend becomes a file beside the picture.
        width_mm: Width of the picture, such as 85 for a column; text keeps its size in points.
        theme: light, or dark for screens; the web page has both.
        dpi: Pixels per inch of a png, by default 150: 1080 by 1236 pixels.
        world: Draw only this joint mode, 0 the most probable, of a forecast that has joint modes.
        against: In the web page, another checkpoint or baseline, side by side with the first.
        without: Also predict without these tracks, by id, or without the nearest road user (nearest).
        streaming: In the web page, also show what was predicted at earlier times, and plot how it changes.
        attention: Also draw the lanes and agents that the model attends to for the focal agent.
        raw: Take scenarios from raw data instead: folder in the official layout, or one scenario.
        source: Data set of the raw data, as for prepare; by default argoverse2. Its options can be given,
            but --map has the meaning below.
        map: Draw a map alone: a file of Lanelet2, OpenDRIVE, CommonRoad or Argoverse 2.
        worst: Results written by evaluate --out; draw the scenarios with the worst predictions.
        by: Metric that ranks them, by default minFDE6.
    """
    center, radius_m = _middle_and_radius(view, is_map=map is not None)
    require(worst is None or not scenario, "worst", "cannot be combined with --scenario")
    require(worst is not None or by is None, "by", "needs --worst")
    named = scenario is not None or worst is not None or raw is not None
    require(half is None or not named, "half", "cannot be combined with --scenario, --worst and --raw")
    folder, source = store_or_raw(store, raw, source)
    is_used = {
        "against": against is not None,
        "view": view is not None,
        "plain": plain,
        "width_mm": width_mm is not None,
        "world": world is not None,
        "without": without is not None,
        "dpi": dpi is not None,
        "theme": theme != "light",
        "attention": attention,
        "streaming": streaming,
    }
    used = [name for name, is_given in is_used.items() if is_given]
    kind, is_file = _kind_of(out, format)
    _check_options(kind, checkpoint, used)
    require_writable(out, folder=not is_file)
    if map is not None:
        alone = all(option is None for option in (store, scenario, checkpoint, raw, worst))
        require(alone, "map", "is drawn alone, without scenarios or predictions")
        require(kind in PICTURES, "map", f"is drawn as a picture ({', '.join(PICTURES)}), not as {kind}")
        path = out if is_file else out / f"{map.stem}.{kind}"
        sizes: dict[str, Any] = {"dpi": dpi or 150, "plain": plain, "width_mm": width_mm}
        return draw_map(map, path, radius_m=radius_m, center=center, theme=theme, **sizes)
    if worst is not None:
        scenario, split, sentence = worst_scenarios(worst, by or "minFDE6", limit, checkpoint)
        print(sentence)
    choices = choose(folder, source, split, scenario or [], limit, half, options)
    if kind == "html":
        return draw_page(
            out if is_file else out / "page.html",
            choices,
            [name for name in (checkpoint, against) if name is not None],
            without=without or [],
            streaming=streaming,
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
            plain=plain,
            width_mm=width_mm,
            radius_m=radius_m,
            theme=theme,
            world=world,
        )
    return int(not complete)


def _middle_and_radius(
    view: list[float] | None, is_map: bool
) -> tuple[tuple[float, float] | None, float | None]:
    """Return the middle (x, y) and half the side of the picture, where given. Raises: DataError."""
    if view is None:
        return None, None
    *middle, radius_m = view
    require(len(middle) in (0, 2), "view", "must be a radius, or x, y and a radius")
    require(is_map or not middle, "view", "must be a radius alone: only a map has another middle")
    finite = all(math.isfinite(value) for value in view)
    require(finite and radius_m > 0, "view", "must be finite, and the radius positive")
    if not middle:
        return None, radius_m
    x, y = middle
    return (x, y), radius_m


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
        from trajpred.viz.film import find_encoder

        find_encoder()
    if format == "mcap":
        from trajpred.integrations.recorded_drive import require_bags

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
