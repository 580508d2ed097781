"""Films: true speed, no future before its time, and everyone where they were."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image
from trajpred.viz.animation import END_S, GROW_S, REST_S, Film, Moment, save_film, timeline

from tests.viz.test_scene import BARE, FUTURE, OBSERVED, forecast, scenario
from trajpred.errors import DataError
from trajpred.forecast import Forecast
from trajpred.geometry import unit_vector
from trajpred.scenario import Scenario
from trajpred.viz.style import LIGHT, Role

NOW = OBSERVED - 1


def index(film: Film, step: int) -> int:
    """Of the last picture of ``step``."""
    return max(i for i, moment in enumerate(film.moments) if moment.step == step)


def inside(film: Film, step: int) -> np.ndarray:
    """The scene at ``step`` ``[S, S, 3]``, without what is around it."""
    box = film.axes.get_window_extent()
    picture = film[index(film, step)]
    rows = slice(round(picture.shape[0] - box.y1) + 2, round(picture.shape[0] - box.y0) - 2)
    return picture[rows, round(box.x0) + 2 : round(box.x1) - 2]


def is_drawn(film: Film, step: int, position: np.ndarray, role: Role) -> bool:
    """Whether the picture of ``step`` has the colour of ``role`` at a ``position`` ``[2]`` in the city."""
    x, y = film.axes.transData.transform(position)
    picture = film[index(film, step)]
    color = picture[round(picture.shape[0] - y), round(x)] / 255
    return bool(np.abs(color - to_rgb(LIGHT.role[role])).max() < 0.05)


def test_the_scenario_runs_at_true_speed(sample_scenarios: list[Scenario]) -> None:
    whole = next(one for one in sample_scenarios if one.has_future)
    moments = timeline(whole, 60, fps=10.0)
    steps = [step for step, _ in moments]
    assert steps[:50] == list(range(50)) and steps[-15:] == [109] * 15
    assert len(moments) == 110 + 10 * (GROW_S + REST_S + END_S)
    held = [told for step, told in moments if step == 49][1:]
    assert held == sorted(held) and held[0] == 6 and held[-10:] == [60] * 10
    assert {told for step, told in moments if step < 49} == {0}
    assert {told for step, told in moments if step > 49} == {60}


@pytest.mark.parametrize(("fps", "ahead"), [(5.0, 2), (2.5, 4), (20.0, 0.5)])
def test_at_any_number_of_pictures(fps: float, ahead: float) -> None:
    moments = timeline(scenario(), 0, fps)
    played = [step for step, _ in moments[: -round(END_S * fps)]]
    assert played[0] == 0 and played[-1] == OBSERVED + FUTURE - 1 and NOW in played
    assert np.mean(np.diff(played)) == pytest.approx(ahead, rel=0.15)
    assert all(told == 0 for _, told in moments), "nothing is told without a forecast"


def test_a_scenario_without_a_future_ends_with_what_is_told() -> None:
    assert timeline(scenario(OBSERVED), 30, 10.0)[-1] == Moment(NOW, 30)
    assert len(Film(scenario(OBSERVED), forecast(scenario(OBSERVED)))) > OBSERVED


def test_nothing_is_seen_before_its_time() -> None:
    scene = scenario(map=BARE)
    told = forecast(scene)
    other = replace(told, trajectory=told.trajectory + 3.0)
    films = [Film(scene, one, radius_m=30.0) for one in (told, other)]
    same = [(inside(films[0], step) == inside(films[1], step)).all() for step in (0, NOW - 1, NOW, NOW + 5)]
    assert same == [True, True, False, False]
    tracks, step = scene.tracks, NOW + 10
    position = np.where(np.arange(OBSERVED + FUTURE)[:, None] > step, tracks.position + 4.0, tracks.position)
    changed = replace(scene, tracks=replace(tracks, position=position))
    films = [Film(one, radius_m=30.0) for one in (scene, changed)]
    assert (inside(films[0], step) == inside(films[1], step)).all()
    assert (inside(films[0], step + 1) != inside(films[1], step + 1)).any()


@pytest.mark.parametrize("step", [0, 7, NOW, NOW + 12, OBSERVED + FUTURE - 1])
def test_everyone_is_where_they_were(step: int) -> None:
    scene = scenario(map=BARE)
    film = Film(scene, radius_m=40.0)
    for name, role in (("car", Role.FOCAL), ("AV", Role.EGO), ("bus", Role.OTHER)):
        row = scene.tracks.index(name)
        # Beside the middle, where the nose is, and behind it, where the star at the end of the truth is not.
        behind = 1.6 * unit_vector(scene.tracks.heading[row, step])
        aside = 0.6 * unit_vector(scene.tracks.heading[row, step] + np.pi / 2)
        assert is_drawn(film, step, scene.tracks.position[row, step] - behind - aside, role), name


def test_who_is_lost_goes_and_who_comes_late_comes() -> None:
    scene = scenario()
    film = Film(scene, radius_m=40.0)
    # The cyclist is seen until step 14, the walker from step 10.
    for name, role, seen, unseen in (("bike", Role.OTHER, 14, 15), ("walker", Role.SCORED, 10, 9)):
        place = scene.tracks.position[scene.tracks.index(name), seen]
        assert is_drawn(film, seen, place, role) and not is_drawn(film, unseen, place, role), name


def test_rings_are_where_each_mode_is_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scenario()
    told = forecast(scene)
    film = Film(scene, told)
    drawn: list[np.ndarray] = []
    monkeypatch.setattr(film.axes, "scatter", lambda x, y, **look: drawn.append(np.stack((x, y), -1)))
    film._draw_places(11)
    assert np.array_equal(drawn[0], told.trajectory[0, :, 11])
    film._draw_places(-1)
    film._draw_places(FUTURE)
    assert len(drawn) == 1


def test_a_gif_is_the_film_and_what_stands_still_does_not_flicker(tmp_path: Path) -> None:
    scene = scenario(map=BARE)
    save_film(scene, forecast(scene), tmp_path / "a.gif", fps=2.0)
    film = Film(scene, forecast(scene), fps=2.0)
    with Image.open(tmp_path / "a.gif") as gif:
        frames = [np.asarray(one.convert("RGB")).astype(int) for one in _frames(gif)]
    pictures = [film[i] for i, moment in enumerate(film.moments) if i == 0 or moment != film.moments[i - 1]]
    assert len(frames) == len(pictures)
    for (a, b), (before, after) in zip(pairwise(frames), pairwise(pictures), strict=True):
        assert np.abs(a - before).mean() < 1.0
        assert (a == b)[(before == after).all(axis=-1)].all()


def _frames(gif: Image.Image) -> list[Image.Image]:
    frames = []
    for i in range(gif.n_frames):
        gif.seek(i)
        frames.append(gif.copy())
    return frames


def test_what_a_picture_cannot_show_a_film_cannot(tmp_path: Path) -> None:
    scene = scenario()
    foreign: Forecast = replace(forecast(scene), scenario_id="another")
    with pytest.raises(DataError, match="is not of scenario"):
        save_film(scene, foreign, tmp_path / "a.gif")
    with pytest.raises(DataError, match="fps"):
        Film(scene, fps=0.0)
    with pytest.raises(DataError, match="theme"):
        Film(scene, theme="pink")
    assert not list(tmp_path.iterdir())
