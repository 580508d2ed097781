"""Commands that show scenarios: pictures, films, web pages, recordings; and a page for editing them."""

from __future__ import annotations

import math
import re
import sys
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Parameter, validators

from trajpred.cli.info import is_map, load_map
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

#: Width of pictures, at least ``MIN_WIDTH_MM`` of ``trajpred.viz.scene``, which loads matplotlib.
Millimetres = Annotated[float, Parameter(validator=validators.Number(gte=20))]
#: What to draw in addition to scenarios and forecasts.
Overlay = Literal["attention", "joint", "updates"]
#: Formats of pictures.
PICTURES = ("png", "pdf", "svg")
#: Formats of films.
FILMS = ("gif", "mp4")
#: All formats, with the web page and recordings for viewers.
FORMATS = (*PICTURES, *FILMS, "html", "mcap")
#: Options that apply to some formats only: the formats, and their description.
ONLY = {
    "against": (("html",), "the web page: --out page.html"),
    "view": (PICTURES + FILMS, "pictures and films: the web page zooms"),
    "theme": (PICTURES + FILMS, "pictures and films: the web page has both"),
    "paper_mm": (PICTURES, "pictures (png, pdf or svg)"),
    "without": ((*PICTURES, "html"), "pictures (png, pdf or svg) and the web page"),
    "attention": (PICTURES, "pictures (png, pdf or svg): the web page has it as a layer"),
    "joint": (PICTURES + FILMS, "pictures and films"),
    "updates": (("html",), "the web page: --out page.html"),
}
#: Options that need a predictor.
NEED_PREDICTOR = ("against", "without", "attention", "joint", "updates")
#: The metric that ranks the worst scenarios.
WORST_BY = "minFDE6"
#: Bytes of a file name that leave room for a number and a suffix.
MAX_NAME = 180


def visualize(
    *,
    store: Path | None = None,
    scenario: list[str] | None = None,
    checkpoint: str | None = None,
    against: str | None = None,
    split: str = "val",
    half: Half | None = None,
    limit: Positive = 10,
    out: Path = Path("pictures"),
    show: list[Overlay] | None = None,
    without: list[str] | None = None,
    view: list[float] | None = None,
    theme: Literal["light", "dark"] = "light",
    paper_mm: Millimetres | None = None,
    raw: Path | None = None,
    source: str | None = None,
    options: SourceOptions = None,
) -> int:
    """Draw scenarios from above, with the predictions of a checkpoint or a baseline.

    Example: trajpred visualize --checkpoint argoverse-nano --limit 2 --out films.gif

    Args:
        store: Folder written by prepare; by default the sample's.
        scenario: Ids, or unambiguous prefixes, from any split; or a .json file written by evaluate, for the
            scenarios with the largest minFDE6. By default the first of --split.
        checkpoint: Path of a checkpoint, run, bundle or predictions file (.parquet, .h5), or name of shipped
            weights or a baseline; by default scenarios are drawn without predictions.
        against: In the web page, another checkpoint or baseline, side by side with the first.
        split: Split to take scenarios from if no id is given.
        half: Take them from this half of the split.
        limit: Maximum number of scenarios if no id is given.
        out: Folder for a png of each scenario; or a file, whose suffix is the format: .png, .pdf or .svg;
            .gif or .mp4 for a film in real time; .html for one self-contained web page; .mcap for Foxglove.
            The files of several scenarios go to a folder of that name without the suffix.
        show: Also draw what the model attends to for the focal agent (attention); draw only the most probable
            joint mode (joint); or show, in the web page, earlier predictions and plot how they change
            (updates).
        without: Also predict without these tracks (ids), or without the nearest road user (nearest).
        view: Half the side of the picture in metres; by default it fits the focal agent's futures. For a map,
            give x and y of the centre before it.
        theme: light, or dark for screens; the web page has both.
        paper_mm: Draw for papers at this printed width, such as 85 for a column: without a caption, and with
            the legend in a separate file. Text keeps its size in points.
        raw: Take scenarios from raw data instead: a folder in the official layout, or one scenario; or a
            Lanelet2, OpenDRIVE, CommonRoad or Argoverse 2 map, drawn alone.
        source: Source of the raw data, as for prepare, with its options; by default argoverse2.
    """
    is_file = out.suffix != "" and not out.is_dir()
    format = out.suffix[1:].lower() if is_file else "png"
    require(format in FORMATS, "out", f"must be a folder or end in .{', .'.join(FORMATS)}, is {out}")
    optional = {
        "against": against,
        "view": view,
        "theme": theme != "light",
        "paper_mm": paper_mm,
        "without": without,
    }
    shown = show or []
    used = [name for name, value in optional.items() if value]
    _check_options(format, checkpoint, used + list(shown))
    folder, source_name = store_or_raw(store, raw, source)
    look: dict[str, Any] = {"theme": theme}
    center, look["radius_m"] = _middle_and_radius(view)
    if raw is not None and source is None and is_map(raw):
        require(not scenario and checkpoint is None, "raw", "is a map: it is drawn alone")
        require(half is None, "half", "selects from a split of a store: a map has none")
        require(format in PICTURES, "out", f"must be a picture for a map (.{', .'.join(PICTURES)})")
        path = out if is_file else out / f"{raw.stem}.png"
        require_writable(path)
        return draw_map(raw, path, paper_mm, center=center, **look)
    require(center is None, "view", "must be a single radius: only a map can be centred elsewhere")
    if scenario is not None and len(scenario) == 1 and scenario[0].endswith(".json"):
        scenario, split, sentence = worst_scenarios(Path(scenario[0]), limit, checkpoint)
        print(sentence)
    choices = choose(folder, source_name, split, scenario or [], limit, options, half)
    models = [name for name in (checkpoint, against) if name is not None]
    removed = without or []
    if format == "html":
        require_writable(out)
        return draw_page(out, choices, load(models, removed, shown), removed)
    paths = _picture_paths(out, is_file, format, choices)
    predictors = load(models, removed, shown)
    predictor = predictors[0] if predictors else None  # --against is only for the web page
    attention = "attention" in shown
    if "joint" in shown:
        look["joint_mode"] = 0
    complete = True
    for choice, path in zip(choices, paths, strict=True):
        complete &= draw(choice, predictor, path, paper_mm, without=removed, attention=attention, **look)
    return int(not complete)


def _picture_paths(out: Path, is_file: bool, format: str, choices: Sequence[Choice]) -> list[Path]:
    """Return the file for each scenario. Raises: DataError if it cannot be written."""
    if is_file and len(choices) == 1:
        require_writable(out)
        return [out]
    folder = out.with_suffix("") if is_file else out
    require_writable(folder, folder=True)
    stems = file_stems([choice.name for choice in choices])
    return [folder / f"{stem}.{format}" for stem in stems]


def _check_options(format: str, checkpoint: str | None, options: list[str]) -> None:
    """Raise DataError about contradictory options, before any work."""
    for name in options:
        option = name
        words = ""
        if name in get_args(Overlay):
            option = "show"
            words = f"{name} "
        formats, description = ONLY[name]
        require(format in formats, option, f"{words}works only with {description}")
        require(name not in NEED_PREDICTOR or checkpoint is not None, option, f"{words}needs --checkpoint")
    if "without" in options:
        for name in ("attention", "joint"):
            require(name not in options, "show", f"{name} cannot be combined with --without")
    if format == "mp4":
        from trajpred.viz.film import find_encoder

        find_encoder()
    if format == "mcap":
        from trajpred.integrations.recorded_drive import require_bags

        require_bags()


def _middle_and_radius(view: list[float] | None) -> tuple[tuple[float, float] | None, float | None]:
    """Return the centre (x, y) and half the side of the picture, if given. Raises: DataError."""
    if view is None:
        return None, None
    require(len(view) in (1, 3), "view", "must be a radius, or x, y and a radius")
    *middle, radius_m = view
    finite = all(math.isfinite(value) for value in view)
    require(finite and radius_m > 0, "view", "must be finite, and the radius positive")
    if not middle:
        return None, radius_m
    x, y = middle
    return (x, y), radius_m


def file_stems(names: Sequence[str]) -> list[str]:
    """Return a file name without suffix for each of ``names``, distinct even if case is ignored."""
    stems: dict[str, str] = {}  # by case-folded form, because many file systems ignore case
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


def load(models: Sequence[str], without: list[str], show: Sequence[str]) -> list[Predictor]:
    """Load predictors. Raises: DataError if one cannot provide what is to be shown."""
    if not models:
        return []
    from trajpred.predictors import load_predictor
    from trajpred.predictors.checkpoint import attention_of
    from trajpred.predictors.derived import StreamedPredictor
    from trajpred.predictors.predictions_file import predictions_files

    predictors: list[Predictor] = []
    for model in models:
        predictor = load_predictor(model, "joint" in show)
        fixed = "needs a model or a baseline: a predictions file cannot predict again"
        require(not (without and predictions_files(predictor)), "without", fixed)
        if "attention" in show:
            attention_of(predictor, [])  # raises for predictors without
        if "updates" in show:
            predictor = StreamedPredictor(predictor, EVERY_S, UPDATES)
        predictors.append(predictor)
    return predictors


def draw(
    choice: Choice,
    predictor: Predictor | None,
    path: Path,
    paper_mm: float | None,
    *,
    without: list[str],
    attention: bool,
    **look: Any,
) -> bool:
    """Save the picture or film of one scenario; on failure, report it and return False."""
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
        elif format == "mcap":
            from trajpred.integrations.mcap import save_mcap

            save_mcap(scenario, forecast, path)
        else:
            if predictor is not None and attention:
                [look["attention"]] = attention_of(predictor, [scenario])
            if predictor is not None and without:
                removed = road_users(scenario, without)
                [changed] = predictor([remove_tracks(scenario, removed)])
                look["what_if"] = WhatIf(tuple(removed), changed)
            save_picture(partial(draw_scene, scenario, forecast, **look), path, paper_mm)
    except OSError:  # a full disk is not the scenario's fault
        raise
    except Exception as error:
        report_skipped(choice.name, error)
        return False
    print(path)
    return True


def save_picture(make: Callable[..., Figure], path: Path, paper_mm: float | None) -> None:
    """Save the picture drawn by ``make``; for papers, save its legend beside it."""
    from trajpred.viz import legend_alone, save_scene

    if paper_mm is None:
        save_scene(make(), path)
        return
    save_scene(make(plain=True, width_mm=paper_mm), path)
    beside = path.with_name(f"{path.stem}-legend{path.suffix}")
    save_scene(legend_alone(make(), paper_mm), beside)


def draw_map(map: Path, path: Path, paper_mm: float | None, **look: Any) -> int:
    """Save the picture of a map file alone."""
    from trajpred.viz import draw_lane_map

    file = load_map(map)
    title = f"{map.name} · {file.format} · {len(file.lanes)} lane segments"
    [frame, *_] = file.frame.split(";")
    shown = partial(draw_lane_map, file.lanes, title=title, frame=f"frame: {frame}", **look)
    save_picture(shown, path, paper_mm)
    print(path)
    return 0


def draw_page(path: Path, choices: list[Choice], predictors: list[Predictor], without: list[str]) -> int:
    """Write the page of all readable scenarios."""
    from trajpred.viz.page import write_page

    scenarios = read_all(choices)
    skipped: list[str] = []

    def skip(scenario: Scenario, error: Exception) -> None:
        skipped.append(scenario.scenario_id)
        report_skipped(scenario.scenario_id, error)

    write_page(path, scenarios, predictors, without=without, on_error=skip)
    print(path)
    complete = len(scenarios) == len(choices) and not skipped
    return int(not complete)


def worst_scenarios(results: Path, limit: int, checkpoint: str | None) -> tuple[list[str], str, str]:
    """Find the ids of the worst scenarios, their split, and a caption.

    If ``results`` has several evaluations, use the one of ``checkpoint``, else the first.

    Raises: DataError if the file lacks the metric.
    """
    from trajpred.evaluation.results import read_results
    from trajpred.predictors.checkpoint import display_name

    evaluations = read_results(results)
    if not evaluations:
        raise DataError("contains no evaluation", file=results)
    evaluation = evaluations[0]
    if checkpoint is not None:
        predictor = display_name(checkpoint)
        matching = [candidate for candidate in evaluations if candidate.predictor == predictor]
        evaluation = (matching or evaluations)[0]
    try:
        values = evaluation.worst(WORST_BY, limit)
    except DataError as error:
        raise error.located(results) from None
    names = list(values)
    if not names:
        raise DataError(f"has no {WORST_BY} of any scenario", file=results)
    worst = f"{values[names[0]]:.2f}"
    least = f"{values[names[-1]]:.2f}"
    bounds = worst if worst == least else f"{worst} to {least}"
    described = f"{evaluation.predictor} ({evaluation.split})"
    return names, evaluation.split, f"the {len(names)} worst of {described} by {WORST_BY}: {bounds}"


def explore(
    *,
    store: Path | None = None,
    scenario: list[str] | None = None,
    checkpoint: str = "argoverse-nano",
    against: str | None = None,
    split: str = "val",
    half: Half | None = None,
    limit: Positive = 10,
    raw: Path | None = None,
    source: str | None = None,
    options: SourceOptions = None,
) -> int:
    """Edit scenarios in the browser: drag a road user, and see the new predictions at once.

    Prints a local address, opens it, and serves it until Ctrl-C. Nothing is written.

    Example: trajpred explore --against lane_following

    Args:
        store: Folder written by prepare; by default the sample's.
        scenario: Ids, or unambiguous prefixes, from any split; by default the first of --split.
        checkpoint: Path of a checkpoint, run or bundle, or name of shipped weights or a baseline.
        against: Another checkpoint or baseline, side by side with the first.
        split: Split to take scenarios from if no id is given.
        half: Take them from this half of the split.
        limit: Maximum number of scenarios if no id is given.
        raw: Take scenarios from raw data instead: a folder in the official layout, or one scenario; or a
            Lanelet2, OpenDRIVE, CommonRoad or Argoverse 2 map, explored with one car.
        source: Source of the raw data, as for prepare, with its options; by default argoverse2.
    """
    map = raw if raw is not None and source is None and is_map(raw) else None
    require(map is None or not scenario, "raw", "is a map: it is explored alone, without scenarios")
    require(map is None or half is None, "half", "selects from a split of a store: a map has none")
    folder, source = store_or_raw(store, raw, source)
    from trajpred.predictors import load_predictor
    from trajpred.predictors.predictions_file import predictions_files
    from trajpred.viz.explore import scenario_on
    from trajpred.viz.explore.server import Explorer, Server

    predictors = {model: load_predictor(model) for model in (checkpoint, against) if model is not None}
    for model, predictor in predictors.items():
        problem = f"must be a model or a baseline: the predictions file {model} cannot predict again"
        require(not predictions_files(predictor), "checkpoint", problem)
    if map is not None:
        scenarios = [scenario_on(load_map(map).lanes, map.stem)]
        imports = "from trajpred import read_map\nfrom trajpred.viz.explore import scenario_on"
        code = {map.stem: (imports, f"scenario_on(read_map({str(map)!r}), {map.stem!r})")}
    else:
        choices = choose(folder, source, split, scenario or [], limit, options, half)
        scenarios = read_all(choices)
        code = {choice.name: choice.code for choice in choices}

    def skip(scenario: Scenario, error: Exception) -> None:
        report_skipped(scenario.scenario_id, error)

    with Server(Explorer(scenarios, predictors, code.__getitem__, skip)) as server:
        print(f"{server.url}\nPress Ctrl-C to stop.", flush=True)
        if sys.stdout.isatty():
            webbrowser.open(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0
