"""Seeing: visualize. torch waits until something predicts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tqdm import tqdm

from trajpred.cli import choose
from trajpred.cli.arguments import as_list
from trajpred.cli.choose import Choice
from trajpred.errors import DataError, require
from trajpred.scenario import Scenario
from trajpred.store.sample import SAMPLE_STORE, ensure_store

if TYPE_CHECKING:
    from trajpred.forecast import Attention
    from trajpred.predictors.predictor import Predictor
    from trajpred.viz.what_if import WhatIf

PICTURES, FILMS, PAGE = ("png", "pdf", "svg"), ("gif", "mp4"), ("html",)
#: Options that only some formats serve, and how that is told.
ONLY = {
    "against": (PAGE, "the web page: --format html"),
    "radius_m": (PICTURES + FILMS, "pictures and films: the web page zooms"),
    "theme": (PICTURES + FILMS, "pictures and films: the web page has both"),
    "dpi": (("png",), "png"),
    "world": (PICTURES + FILMS, "pictures and films"),
    "without": (PICTURES + PAGE, "pictures (png, pdf or svg) and the web page"),
    "attention": (PICTURES, "pictures (png, pdf or svg): the web page has it as a layer"),
}
#: Options about what is predicted.
FORESEEN = ("against", "world", "without", "attention")


def visualize(
    store: Path = SAMPLE_STORE,
    scenario: list[str] | str | None = None,
    checkpoint: str | None = None,
    split: str = "val",
    out: Path = Path("pictures"),
    limit: int = 10,
    format: Literal["png", "pdf", "svg", "gif", "mp4", "html"] = "png",
    radius_m: float | None = None,
    theme: Literal["light", "dark"] = "light",
    dpi: int | None = None,
    world: int | None = None,
    against: str | None = None,
    without: list[str] | str | None = None,
    attention: bool = False,
    raw: Path | None = None,
    source: str = "argoverse2",
    worst: Path | None = None,
    by: str = "minFDE6",
) -> int:
    """Draw scenarios from above, with the futures that a checkpoint or a baseline predicts.

    Example: python tools/visualize.py --checkpoint argoverse2-demo --format gif --limit 2 --out films

    Args:
        store: folder written by tools/prepare.py.
        scenario: id, or "[id, id]"; from the split, or else any other. By default the first of the split.
        checkpoint: path of a checkpoint or of a predictions file (.parquet), or the name of a baseline or of
            weights that ship; none draws the scenario alone.
        split: where to take scenarios from if none is named.
        out: folder for the pictures, one per scenario; or the web page itself, if it ends in .html.
        limit: at most so many if no scenario is named.
        format: png, pdf or svg; gif or mp4: a film at true speed; or html: one web page of all scenarios that
            needs nothing else.
        radius_m: half the side of the picture in metres; by default what holds the focal agent's futures.
        theme: light, or dark for screens; the web page has both.
        dpi: pixels per inch of a png, by default 150: 1080 by 1236 pixels.
        world: draw this joint future alone, 0 the likeliest, of a forecast that has them.
        against: in the web page, another checkpoint or baseline, side by side with the first.
        without: also predict without these tracks, by id, or without the nearest road user (nearest).
        attention: also draw from which lanes and agents the model takes what it knows of the focal agent; the
            web page has this as a layer anyway.
        raw: take scenarios from raw data, not from a store: folder in the official layout, or one scenario.
        source: how to read raw data (as in tools/prepare.py).
        worst: results of tools/evaluate.py --json; draw the scenarios that were predicted worst.
        by: the metric that says which are.
    """
    require(limit > 0, "limit", "must be positive")
    require(dpi is None or dpi > 0, "dpi", "must be positive")
    require(worst is None or not scenario, "worst", "chooses the scenarios: name none")
    optional = {"against": against, "radius_m": radius_m, "world": world, "without": without}
    optional |= {"theme": None if theme == "light" else theme, "attention": attention or None, "dpi": dpi}
    _require_sense(format, checkpoint, [name for name, value in optional.items() if value is not None])
    names, first = as_list(scenario), split
    if worst is not None:
        found = choose.worst(worst, by, limit, checkpoint)
        names, first = found.names, found.split
        print(found.told)
    if raw is not None:
        chosen = choose.from_raw(raw, source, first, names, limit)
    else:
        chosen = choose.from_store(ensure_store(store), first, names, limit)
    if format == "html":
        models = [name for name in (checkpoint, against) if name is not None]
        return _page(out, chosen, models, as_list(without))
    predictor = _predictor(checkpoint, as_list(without), joint=world is not None)
    out.mkdir(parents=True, exist_ok=True)
    look: dict[str, Any] = {"radius_m": radius_m, "theme": theme, "world": world}
    still = partial(_picture, without=as_list(without), attention=attention, dpi=dpi or 150, **look)
    draw = partial(_film, **look) if format in FILMS else still
    stems = choose.file_stems([choice.name for choice in chosen])
    paths = [out / f"{stem}.{format}" for stem in stems]
    each = [_drawn(choice, predictor, path, draw) for choice, path in zip(chosen, paths, strict=True)]
    return int(not all(each))


def _require_sense(format: str, checkpoint: str | None, asked: list[str]) -> None:
    """Raise DataError about options that do nothing together, before anything is made."""
    for name in asked:
        formats, told = ONLY[name]
        require(format in formats, name, f"is for {told}")
        require(name not in FORESEEN or checkpoint is not None, name, "needs --checkpoint")
    for name in ("attention", "world"):
        both = name in asked and "without" in asked
        require(not both, name, "is not drawn together with --without")
    if format == "mp4":
        from trajpred.viz.film_files import encoder

        encoder()


def _predictor(checkpoint: str | None, without: list[str], joint: bool) -> Predictor | None:
    if checkpoint is None:
        return None
    from trajpred.predictors import load_predictor
    from trajpred.predictors.predictions_file import predictions_files

    predictor = load_predictor(checkpoint, joint and Path(checkpoint).suffix != ".parquet")
    fixed = "is for what sees the scenarios, not for predictions files"
    require(not (without and predictions_files(predictor)), "without", fixed)
    return predictor


def _drawn(
    choice: Choice,
    predictor: Predictor | None,
    path: Path,
    draw: Callable[[Scenario, Predictor | None, Path], None],
) -> bool:
    """Read and draw one scenario; whether that went well. One that cannot be drawn stops no others."""
    try:
        draw(choice.read(), predictor, path)
    except OSError:  # a full disk is not the scenario's fault
        raise
    except Exception as error:
        _report(choice.name, error)
        return False
    print(path)
    return True


def _report(name: str, error: Exception) -> None:
    kind = "" if isinstance(error, DataError) else f"{type(error).__name__}: "
    tqdm.write(f"{name}: skipped: {kind}{error}", file=sys.stderr)  # print would tear a progress bar


def _film(scenario: Scenario, predictor: Predictor | None, path: Path, **look: Any) -> None:
    from trajpred.viz.animation import save_film

    save_film(scenario, predictor([scenario])[0] if predictor else None, path, **look)


def _picture(
    scenario: Scenario,
    predictor: Predictor | None,
    path: Path,
    without: list[str],
    attention: bool,
    dpi: int,
    **look: Any,
) -> None:
    from trajpred.viz import draw_scene, save_scene

    forecast = predictor([scenario])[0] if predictor else None
    what_if = _what_if(scenario, predictor, without) if predictor and without else None
    heard = _attention(scenario, predictor) if predictor and attention else None
    figure = draw_scene(scenario, forecast, what_if=what_if, attention=heard, **look)
    save_scene(figure, path, dpi=dpi)


def _attention(scenario: Scenario, predictor: Predictor) -> Attention:
    from trajpred.predictors.checkpoint import attention_of

    return attention_of(predictor, [scenario])[0]


def _what_if(scenario: Scenario, predictor: Predictor, names: list[str]) -> WhatIf:
    from trajpred.predictors.perturbed import road_users, without
    from trajpred.viz.what_if import WhatIf

    removed = road_users(scenario, names)
    return WhatIf(tuple(removed), predictor([without(scenario, removed)])[0])


def _page(out: Path, chosen: list[Choice], models: list[str], names: list[str]) -> int:
    from trajpred.viz.page import save_page

    scenarios, skipped = [], []

    def skip(name: str, error: Exception) -> None:
        skipped.append(name)
        _report(name, error)

    for choice in chosen:
        try:
            scenarios.append(choice.read())
        except DataError as error:
            skip(choice.name, error)
    print(save_page(out, scenarios, models, names, lambda scenario, error: skip(scenario.scenario_id, error)))
    return int(bool(skipped))
