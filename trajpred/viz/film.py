"""Films of scenarios and of replays, as GIF or MP4."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patheffects import withStroke
from PIL import Image

from trajpred.data.environment import install_command
from trajpred.data.files import atomic_file
from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.errors import require
from trajpred.viz.agent_layer import draw_agents, draw_histories, visible_agents
from trajpred.viz.forecast_layer import color_values, draw_modes, draw_truth
from trajpred.viz.scene import draw_scene, future_rows, open_scene, predicted_rows
from trajpred.viz.style import Layer

#: Seconds of history drawn behind each agent.
HISTORY_S = 2.0
#: Seconds of pause at the last observed step while the modes grow.
GROW_S = 1.0
#: Seconds for which the grown modes then stay.
HOLD_S = 1.0
#: Seconds for which the last frame stays.
END_S = 1.5
#: The ``gid`` of the lines of a caption.
CAPTION = ("title", "subtitle", "metrics")
#: A time of the usual number of digits.
WIDEST_CLOCK = "\N{MINUS SIGN}5.0 s"
#: Errors in ffmpeg's message that are the disk's fault, not the scenario's.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
#: Pixels per inch: 720 by 830 pixels.
DPI = 100


class Frame(NamedTuple):
    """What one frame of a film shows."""

    step: int
    horizon: int  # number of predicted steps drawn, 0 before the last observed step


def timeline(scenario: Scenario, horizon: int, fps: float) -> list[Frame]:
    """Return the frames of a film in real time, one every 1/``fps`` seconds.

    Args:
        horizon: F, number of predicted steps; 0 without a forecast: then there is no pause.
    """
    now = scenario.num_observed - 1
    steps_per_frame = 1 / (fps * scenario.step_s)
    # If motion is derived from positions, nothing has a direction at the first step.
    has_direction = scenario.tracks.velocity[:, 0].any()
    first = 0 if has_direction else min(1, now)
    frames = [Frame(step, 0) for step in _steps(first, now, steps_per_frame)]
    if horizon:
        growing = np.linspace(0, horizon, round(GROW_S * fps) + 1)[1:]
        frames += [Frame(now, max(1, round(steps))) for steps in growing.tolist()]
        frames += [Frame(now, horizon)] * round(HOLD_S * fps)
    future = _steps(now, scenario.num_steps - 1, steps_per_frame)
    frames += [Frame(step, horizon) for step in future[1:]]
    frames += frames[-1:] * round(END_S * fps)
    return frames


def _steps(first: int, last: int, steps_per_frame: float) -> list[int]:
    """Return the step of each frame from ``first`` to ``last``."""
    # Steps vary by fractions of a percent: without the tolerance, the last one could occur twice.
    times = np.append(np.arange(first, last - 0.01, steps_per_frame), last)
    return np.rint(times).astype(int).tolist()


class Film(Sequence[np.ndarray]):
    """The pictures of a film, ``[H, W, 3]`` uint8 each, drawn on demand over a background that is drawn once.

    Args:
        scenario, forecast, radius_m, joint_mode, theme: as for :func:`~trajpred.viz.draw_scene`.
        fps: frames per second; the scenario plays in real time at any rate.

    Raises: DataError like ``draw_scene``, and if ``fps`` is not positive.
    """

    def __init__(
        self,
        scenario: Scenario,
        forecast: Forecast | None = None,
        *,
        radius_m: float | None = None,
        joint_mode: int | None = None,
        theme: str = "light",
        fps: float = 10.0,
    ) -> None:
        require(fps > 0, "fps", f"must be above 0, is {fps}")
        self.scenario = scenario
        self.forecast: Forecast | None = None
        self.horizon = 0
        self.rows = future_rows(scenario)
        self.predicted = self.rows
        forecasts: list[Forecast] = []
        if forecast is not None:
            drawn = forecast
            if joint_mode is not None:
                drawn = forecast.joint_mode(joint_mode)
                self.predicted = predicted_rows(scenario, drawn)
            self.forecast = drawn
            self.horizon = drawn.trajectory.shape[2]
            forecasts.append(drawn)
        self.frames = timeline(scenario, self.horizon, fps)
        self.axes, self.view = open_scene(scenario, *forecasts, radius_m=radius_m, theme=theme)
        figure = draw_scene(
            scenario, forecast, radius_m=radius_m, joint_mode=joint_mode, theme=theme, axes=self.axes
        )
        figure.set_dpi(DPI)
        self.canvas = FigureCanvasAgg(figure)
        self._keep_background(_is_dynamic)
        self._horizon = 0
        self._modes: list[Artist] = []
        # Equal frames follow one another.
        self._draw_frame = lru_cache(maxsize=1)(self._draw)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> np.ndarray:  # type: ignore[override]
        return self._draw_frame(self.frames[index])

    def _keep_background(self, is_dynamic: Callable[[Artist], bool]) -> None:
        """Remove what changes between frames, and keep a picture of the rest."""
        for artist in self.axes.get_children():
            if is_dynamic(artist):
                artist.remove()
        self.canvas.draw()
        self.background = self.canvas.copy_from_bbox(self.canvas.figure.bbox)

    def _draw(self, frame: Frame) -> np.ndarray:
        """Return the picture of a frame ``[height, width, 3]``: the background with what moves."""
        if frame.horizon != self._horizon:
            for artist in self._modes:
                artist.remove()
            self._horizon = frame.horizon
            self._modes = self._added_by(self._draw_modes, frame.horizon)
        moving = self._added_by(self._draw_step, frame.step)
        self.canvas.restore_region(self.background)
        for artist in sorted((*self._modes, *moving), key=Artist.get_zorder):
            self.axes.draw_artist(artist)
        for artist in moving:
            artist.remove()
        return np.asarray(self.canvas.buffer_rgba())[..., :3].copy()

    def _added_by(self, draw: Callable[[int], None], steps: int) -> list[Artist]:
        """Return the artists that ``draw(steps)`` adds to the axes."""
        before = set(self.axes.get_children())
        draw(steps)
        return [artist for artist in self.axes.get_children() if artist not in before]

    def _draw_modes(self, steps: int) -> None:
        """Draw the first ``steps`` steps of the modes."""
        if self.forecast is None or steps == 0:
            return
        clock = self._draw_clock(WIDEST_CLOCK)  # labels avoid it
        draw_modes(
            self.axes,
            self.view,
            self.scenario,
            self.forecast,
            self.predicted,
            labels=steps == self.horizon,
            steps=steps,
        )
        clock.remove()

    def _draw_step(self, step: int) -> None:
        """Draw what changes at every step: agents, truth, places along the modes, the time."""
        with_future = None
        if self.forecast is not None and step >= self.scenario.num_observed - 1:
            with_future = np.union1d(self.rows, self.predicted)
        self._draw_agents(step, with_future)
        ended = step == self.scenario.num_steps - 1
        draw_truth(self.axes, self.view, until(self.scenario, step), self.rows, ends=ended)
        self._draw_places(step - self.scenario.num_observed)
        seconds = (step - self.scenario.num_observed + 1) * self.scenario.step_s
        clock = "now"
        if round(seconds, 1) != 0:
            clock = f"{seconds:+.1f} s".replace("-", "\N{MINUS SIGN}")
        self._draw_clock(clock)

    def _draw_agents(self, step: int, kept: np.ndarray | None) -> None:
        """Draw the agents visible at ``step``, and those ``kept``, with their recent histories."""
        earlier = replace(self.scenario, num_observed=step + 1)
        rows = visible_agents(earlier, self.view, kept)
        draw_histories(self.axes, self.view, earlier, rows, round(HISTORY_S / self.scenario.step_s))
        draw_agents(self.axes, self.view, earlier, rows)

    def _draw_places(self, future: int) -> None:
        """Draw a ring on each of the focal agent's modes at future step ``future``, counted from 0."""
        if self.forecast is None or not 0 <= future < self.horizon:
            return
        is_focal = self.forecast.track_id == self.scenario.focal_id
        colors = self.view.theme.mode_colors(color_values(self.forecast)[is_focal].ravel())
        x, y = self.forecast.trajectory[is_focal, :, future].reshape(-1, 2).T
        self.axes.scatter(
            x,
            y,
            s=30,
            edgecolors=list(colors),
            facecolors=self.view.theme.halo,
            linewidths=1.6,
            zorder=Layer.END,
            gid="places",
        )

    def _draw_clock(self, text: str) -> Artist:
        """Write the time at the upper right of the scene."""
        return self.axes.annotate(
            text,
            xy=(1, 1),
            xytext=(-9, -8),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=15,
            fontweight="bold",
            color=self.view.theme.ink,
            zorder=Layer.LABEL,
            gid="clock",
            path_effects=[withStroke(linewidth=3.0, foreground=self.view.theme.halo)],
        )


def _is_dynamic(artist: Artist) -> bool:
    """Return whether an artist changes in a film: agents, their paths, and labels of modes."""
    return Layer.MARK < artist.get_zorder() < Layer.LABEL or artist.get_gid() == "probability"


def until(scenario: Scenario, step: int) -> Scenario:
    """Return ``scenario`` as known at ``step``."""
    recorded = np.arange(scenario.num_steps) <= step
    tracks = replace(scenario.tracks, valid=scenario.tracks.valid & recorded)
    return replace(scenario, tracks=tracks)


def save_film(
    scenario: Scenario, forecast: Forecast | None, path: str | Path, *, fps: float = 10.0, **options: Any
) -> None:
    """Write a film of ``scenario``, a GIF or an MP4 by the suffix of ``path``.

    The scenario plays in real time. At the last observed step it pauses while the modes grow; then the true
    future continues, and a ring on each mode marks the predicted position at that time.

    Args: see :class:`Film`.

    Raises: DataError like :class:`Film`, for another suffix, and for MP4 if no encoder is installed.
    """
    write_film(Path(path), Film(scenario, forecast, fps=fps, **options), fps)


#: Colours of a GIF; one of 256 is reserved for unchanged pixels.
COLORS = 255
#: Number of frames from which the colours of a GIF are chosen.
SAMPLES = 16
#: Weight of a colour in the palette: its area to this power, so that thin lines count.
AREA_POWER = 0.5


def write_film(path: Path, pictures: Sequence[np.ndarray], fps: float) -> None:
    """Write ``pictures`` ``[H, W, 3]`` uint8, each lasting 1/``fps`` seconds, atomically.

    Raises: DataError for a suffix other than .gif and .mp4, and if no encoder for MP4 is installed.
    """
    write = film_writer(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as unfinished:
        write(unfinished, pictures, fps)


def film_writer(path: Path) -> Callable[[Path, Sequence[np.ndarray], float], None]:
    """Return the function that writes films with this suffix. Raises: DataError like :func:`write_film`."""
    writers = {".gif": _write_gif, ".mp4": _write_mp4}
    suffix = path.suffix.lower()
    require(suffix in writers, "path", f"must end in {' or '.join(writers)}, is {path.name!r}")
    if suffix == ".mp4":
        find_encoder()
    return writers[suffix]


def _write_gif(path: Path, pictures: Sequence[np.ndarray], fps: float) -> None:
    """Write a GIF that repeats; its clock counts hundredths of a second."""
    # One palette and no dithering: static parts do not flicker.
    samples = np.linspace(0, len(pictures) - 1, SAMPLES).astype(int)
    palette = _palette([pictures[number] for number in samples])
    # Pictures are drawn on demand; only the quantised ones stay in memory.
    look: dict[str, Any] = {"palette": palette, "dither": Image.Dither.NONE}
    frames = [Image.fromarray(picture).quantize(**look) for picture in pictures]
    # Durations are rounded cumulatively, so that they sum to the true time.
    ends = np.rint(np.arange(len(pictures) + 1) * 100 / fps) * 10
    durations = np.diff(ends).astype(int).tolist()
    frames[0].save(
        path,
        "GIF",
        save_all=True,
        append_images=frames[1:],
        duration=durations,
        loop=0,
        optimize=True,
    )


def _palette(pictures: Sequence[np.ndarray]) -> Image.Image:
    """Choose the :data:`COLORS` colours of a film; thin lines count beside large areas."""
    # One number per colour: np.unique is much slower on rows.
    weights = np.array([65536, 256, 1])
    codes = [picture.reshape(-1, 3) @ weights for picture in pictures]
    code, area = np.unique(np.concatenate(codes), return_counts=True)
    red = code >> 16
    green = code >> 8 & 255
    blue = code & 255
    colors = np.stack((red, green, blue), axis=-1).astype(np.uint8)
    weighted = np.repeat(colors, np.ceil(area**AREA_POWER).astype(int), axis=0)
    return Image.fromarray(weighted[None]).quantize(COLORS, Image.Quantize.FASTOCTREE)


def find_encoder() -> str:
    """Return the ffmpeg of imageio-ffmpeg, or else the system's. Raises: DataError if there is none."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        program: str = get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        program = shutil.which("ffmpeg") or ""
    advice = f"an MP4 needs ffmpeg: {install_command('film')}, or install ffmpeg; a GIF needs nothing"
    require(bool(program), "out", advice)
    return program


def _write_mp4(path: Path, pictures: Sequence[np.ndarray], fps: float) -> None:
    """Write H.264 that browsers and slides can play.

    Raises: OSError if the disk is full or fails; DataError with ffmpeg's message if that fails otherwise.
    """
    height, width = pictures[0].shape[:2]
    command = [find_encoder(), "-loglevel", "error"]
    command += ["-f", "rawvideo", "-pixel_format", "rgb24"]
    command += ["-video_size", f"{width}x{height}", "-framerate", f"{fps}", "-i", "-"]
    # Colours are subsampled by 2, so width and height must be even.
    command += ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
    command += ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20", "-preset", "medium"]
    command += ["-movflags", "+faststart", "-f", "mp4", "-y", str(path)]
    with TemporaryFile() as log, Popen(command, stdin=PIPE, stderr=log) as process:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # ffmpeg has failed and written why
            for picture in pictures:
                process.stdin.write(picture.tobytes())
        with suppress(BrokenPipeError):  # the rest of the buffer
            process.stdin.close()
        failed = process.wait()
        log.seek(0)
        message = log.read().decode(errors="replace").strip()
    for code in DISK_ERRORS:
        if failed and os.strerror(code) in message:
            raise OSError(code, os.strerror(code), str(path))
    require(not failed, "out", f"ffmpeg could not write it ({message})")
