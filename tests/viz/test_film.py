"""Films play at true speed, no frame shows anything before its time, and files are complete or absent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image, ImageSequence

from tests.conftest import rejects
from tests.viz.scenes import BARE, FUTURE, OBSERVED, make_forecast, make_scenario
from trajpred.data.geometry import unit_vector
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.viz import film as film_file
from trajpred.viz.film import END_S, GROW_S, HOLD_S, Film, Frame, save_film, timeline, write_film
from trajpred.viz.style import LIGHT, Role

NOW = OBSERVED - 1


@pytest.fixture(scope="module")
def scene() -> Scenario:
    return make_scenario(map=BARE)


@pytest.fixture(scope="module")
def film(scene: Scenario) -> Film:
    return Film(scene, radius_m=40.0)


def picture(film: Film, step: int) -> np.ndarray:
    """The last picture of ``step``."""
    steps = [frame.step for frame in film.frames]
    last = np.flatnonzero(np.array(steps) == step)[-1]
    return film[int(last)]


def inside(film: Film, frame: Frame) -> np.ndarray:
    """The scene ``[S, S, 3]`` without caption and legend."""
    pixels = film._draw(frame)
    box = film.axes.get_window_extent()
    height = pixels.shape[0]
    rows = slice(round(height - box.y1) + 2, round(height - box.y0) - 2)
    columns = slice(round(box.x0) + 2, round(box.x1) - 2)
    return pixels[rows, columns]


def has_color(film: Film, step: int, position: np.ndarray, role: Role) -> bool:
    """Whether the picture of ``step`` has the colour of ``role`` at a city ``position`` ``[2]``."""
    x, y = film.axes.transData.transform(position)
    pixels = picture(film, step)
    color = pixels[round(pixels.shape[0] - y), round(x)] / 255
    return bool(np.abs(color - to_rgb(LIGHT.role[role])).max() < 0.05)


def test_films_play_at_true_speed(real_scene: Scenario) -> None:
    frames = np.array(timeline(real_scene, 60, fps=10.0))
    step = frames[:, 0]
    horizon = frames[:, 1]
    assert step[:50].tolist() == list(range(50))
    assert (step[-15:] == 109).all()
    assert len(frames) == 110 + 10 * (GROW_S + HOLD_S + END_S)
    paused = horizon[step == 49][1:]
    assert paused[0] == 6
    assert (np.diff(paused) >= 0).all()
    assert (paused[-10:] == 60).all()
    assert (horizon[step < 49] == 0).all()
    assert (horizon[step > 49] == 60).all()
    assert timeline(make_scenario(OBSERVED), 30, 10.0)[-1] == Frame(NOW, 30), "without a future"


@pytest.mark.parametrize(("fps", "stride"), [(5.0, 2), (2.5, 4), (20.0, 0.5)])
def test_films_play_at_true_speed_at_any_rate(scene: Scenario, fps: float, stride: float) -> None:
    frames = timeline(scene, 0, fps)
    played = [step for step, _ in frames[: -round(END_S * fps)]]
    assert played[0] == 1, "no direction is known at the first of bare positions"
    assert played[-1] == OBSERVED + FUTURE - 1
    assert NOW in played
    assert np.mean(np.diff(played)) == pytest.approx(stride, rel=0.15)
    for frame in frames:
        assert frame.horizon == 0, "nothing is predicted without a forecast"


def test_forecasts_are_not_visible_before_their_time_and_grow_step_by_step(scene: Scenario) -> None:
    forecast = make_forecast(scene)
    bent = forecast.trajectory.copy()
    bent[:, :, 6:] += 4.0
    film = Film(scene, forecast, radius_m=30.0)
    bent_film = Film(scene, replace(forecast, trajectory=bent), radius_m=30.0)
    for frame, same in (
        *((Frame(1, 0), True), (Frame(NOW - 1, 0), True)),
        *((Frame(NOW, 6), True), (Frame(NOW, 7), False), (Frame(NOW + 5, FUTURE), False)),
    ):
        assert np.array_equal(inside(film, frame), inside(bent_film, frame)) == same, frame


def test_futures_are_not_visible_before_their_time(scene: Scenario) -> None:
    tracks = scene.tracks
    step = NOW + 10
    later = np.arange(OBSERVED + FUTURE)[:, None] > step
    changed = replace(tracks, position=np.where(later, tracks.position + 4.0, tracks.position))
    film = Film(scene, radius_m=30.0)
    changed_film = Film(replace(scene, tracks=changed), radius_m=30.0)
    for shown, same in ((step, True), (step + 1, False)):
        frame = Frame(shown, 0)
        assert np.array_equal(inside(film, frame), inside(changed_film, frame)) == same


@pytest.mark.parametrize("step", [1, NOW, NOW + 12])
def test_agents_are_where_they_were_recorded(scene: Scenario, film: Film, step: int) -> None:
    for name, role in (("car", Role.FOCAL), ("AV", Role.EGO), ("bus", Role.OTHER)):
        row = scene.tracks.index(name)
        # Away from the heading mark at the centre and from the star at the end of the truth.
        heading = scene.tracks.heading[row, step]
        offset = 1.6 * unit_vector(heading) + 0.6 * unit_vector(heading + np.pi / 2)
        assert has_color(film, step, scene.tracks.position[row, step] - offset, role), name


def test_agents_appear_and_disappear(scene: Scenario, film: Film) -> None:
    # The cyclist is recorded until step 14, the walker from step 10.
    for name, role, present, absent in (("bike", Role.OTHER, 14, 15), ("walker", Role.SCORED, 10, 9)):
        position = scene.tracks.position[scene.tracks.index(name), present]
        assert has_color(film, present, position, role), name
        assert not has_color(film, absent, position, role), name


def test_predicted_agents_stay_where_they_were_last_seen(scene: Scenario) -> None:
    film = Film(scene, make_forecast(scene, ("car", "bike")), joint_mode=0)
    for step, text in ((NOW - 1, []), (NOW, ["0.5 s ago"]), (NOW + 10, ["1.5 s ago"])):
        added = film._added_by(film._draw_step, step)
        assert [artist.get_text() for artist in added if artist.get_gid() == "unseen"] == text
        for artist in added:
            artist.remove()


def test_rings_mark_the_predicted_places(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    forecast = make_forecast(scene)
    film = Film(scene, forecast)
    drawn: list[np.ndarray] = []

    def scatter(x: Any, y: Any, **look: Any) -> None:
        if look.get("gid") == "places":
            drawn.append(np.stack((x, y), -1))

    monkeypatch.setattr(film.axes, "scatter", scatter)
    for step in (NOW, OBSERVED + 11):
        film._draw_step(step)
    assert len(drawn) == 1
    assert np.array_equal(drawn[0], forecast.trajectory[0, :, 11])


def test_a_gif_is_the_film_and_does_not_flicker(tmp_path: Path, scene: Scenario) -> None:
    forecast = make_forecast(scene)
    save_film(scene, forecast, tmp_path / "a.gif", fps=0.5)
    film = Film(scene, forecast, fps=0.5)
    with Image.open(tmp_path / "a.gif") as gif:
        saved = [np.asarray(image.convert("RGB")).astype(int) for image in ImageSequence.Iterator(gif)]
    changes = [i for i in range(1, len(film)) if film.frames[i] != film.frames[i - 1]]
    drawn = [film[i] for i in (0, *changes)]
    assert len(saved) == len(drawn)
    for i in range(len(drawn) - 1):
        difference = np.abs(saved[i] - drawn[i])
        assert difference.mean() < 3.0
        assert (difference.max(axis=-1) > 24).mean() < 0.002
        still = (drawn[i] == drawn[i + 1]).all(axis=-1)
        assert (saved[i] == saved[i + 1])[still].all()


def make_pictures(number: int, size: tuple[int, int] = (40, 60)) -> list[np.ndarray]:
    """A square that moves over grey."""
    pictures = [np.full((*size, 3), 200, np.uint8) for _ in range(number)]
    for i, picture in enumerate(pictures):
        picture[10:20, i : i + 10] = (213, 94, 0)
    return pictures


def test_gif_contains_every_picture_at_its_time(tmp_path: Path) -> None:
    pictures = [*make_pictures(20), *make_pictures(20)[-1:] * 5]
    write_film(tmp_path / "deep" / "a.GIF", pictures, fps=12.0)
    with Image.open(tmp_path / "deep" / "a.GIF") as gif:
        frames = [(frame.convert("RGB"), frame.info["duration"]) for frame in ImageSequence.Iterator(gif)]
        assert gif.info["loop"] == 0
    assert len(frames) == 20, "equal pictures are merged"
    for (frame, _), one in zip(frames, pictures, strict=False):
        assert np.abs(np.asarray(frame).astype(int) - one).max() <= 4
    # GIFs count hundredths of a second; 1/12 s is no multiple, but the sum is true.
    assert abs(sum(duration for _, duration in frames) - 25 / 12 * 1000) <= 10


def test_mp4_contains_every_picture_at_its_time(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    write_film(tmp_path / "a.mp4", make_pictures(30, (41, 61)), fps=10.0)
    assert ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4")) == (30, pytest.approx(3.0))
    reader = ffmpeg.read_frames(str(tmp_path / "a.mp4"))
    assert next(reader)["size"] == (62, 42), "H.264 needs even sides"
    first = np.frombuffer(next(reader), np.uint8).reshape(42, 62, 3).astype(int)
    reader.close()
    assert np.abs(first[30, 40] - 200).max() < 8
    assert np.abs(first[15, 5] - [213, 94, 0]).max() < 60


def test_other_encoders_serve_and_other_formats_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setattr(film_file.shutil, "which", lambda name: f"/bin/{name}")
    assert film_file.find_encoder() == "/bin/ffmpeg"
    rejects(r"\.gif or \.mp4", lambda: write_film(Path("a.webm"), make_pictures(2), fps=10.0))


class Breaks(Sequence[np.ndarray]):
    """Pictures of which the last one cannot be drawn."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> np.ndarray:
        if index == 9:
            raise DataError("no tenth picture")
        return make_pictures(10)[index]


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_a_failure_leaves_the_old_film(tmp_path: Path, suffix: str) -> None:
    if suffix == "mp4":
        pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / f"a.{suffix}"
    path.write_text("the old film")
    rejects("no tenth picture", lambda: write_film(path, Breaks(), fps=10.0))
    assert path.read_text() == "the old film"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", [(21, 31), (90, 120)])
def test_what_ffmpeg_says_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    """Also if a part of the pictures is still in a buffer when it fails."""
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\nhead -c 100000 > /dev/null\necho no space >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    pictures = make_pictures(1, size) * 200
    rejects(r"ffmpeg could not write it \(no space\)", write_film, tmp_path / "a.mp4", pictures, fps=10.0)
    full = "Error writing trailer: No space left on device"
    program.write_text(program.read_text().replace("no space", full))
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.mp4'"):
        write_film(tmp_path / "a.mp4", pictures, fps=10.0)
