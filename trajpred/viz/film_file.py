"""Writing pictures to a GIF or MP4 file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryFile

import numpy as np
from PIL import Image

from trajpred.environment import install_command
from trajpred.errors import require
from trajpred.files import atomic_file

#: Colours of a GIF; one of 256 is reserved for unchanged pixels.
COLORS = 255
#: Number of frames from which the colours of a GIF are chosen.
SAMPLES = 16
#: Weight of a colour in the palette: its area to this power, so that thin lines count beside large areas.
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
    """Return the function that writes films with that suffix. Raises: DataError like :func:`write_film`."""
    writers = {".gif": _write_gif, ".mp4": _write_mp4}
    suffix = path.suffix.lower()
    require(suffix in writers, "path", f"must end in {' or '.join(writers)}, is {path.name!r}")
    if suffix == ".mp4":
        find_encoder()
    return writers[suffix]


def _write_gif(path: Path, pictures: Sequence[np.ndarray], fps: float) -> None:
    """Write a GIF that repeats; its clock counts hundredths of a second."""
    # One palette and no dithering: what does not move does not flicker.
    samples = np.linspace(0, len(pictures) - 1, SAMPLES).astype(int)
    palette = _palette([pictures[number] for number in samples])
    # Pictures are drawn on demand; only the quantised ones stay in memory.
    frames = [_quantized(picture, palette) for picture in pictures]
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


def _quantized(picture: np.ndarray, palette: Image.Image) -> Image.Image:
    return Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE)


def _palette(pictures: Sequence[np.ndarray]) -> Image.Image:
    """Choose the :data:`COLORS` colours of a film; thin lines count beside large areas."""
    # One number per colour: np.unique is much slower on rows.
    codes = np.concatenate([_color_codes(picture) for picture in pictures])
    code, area = np.unique(codes, return_counts=True)
    red = code >> 16
    green = code >> 8 & 255
    blue = code & 255
    colors = np.stack((red, green, blue), axis=-1).astype(np.uint8)
    weighted = np.repeat(colors, np.ceil(area**AREA_POWER).astype(int), axis=0)
    return Image.fromarray(weighted[None]).quantize(COLORS, Image.Quantize.FASTOCTREE)


def _color_codes(picture: np.ndarray) -> np.ndarray:
    """Return red, green and blue of each pixel as one number."""
    pixels = picture.reshape(-1, 3).astype(np.uint32)
    return pixels @ [65536, 256, 1]


def find_encoder() -> str:
    """Return the ffmpeg program of imageio-ffmpeg, else of the system. Raises: DataError if there is none."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        program: str = get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        program = shutil.which("ffmpeg") or ""
    advice = f"an MP4 needs ffmpeg: {install_command('film')}, or install ffmpeg; a GIF needs nothing"
    require(bool(program), "format", advice)
    return program


def _write_mp4(path: Path, pictures: Sequence[np.ndarray], fps: float) -> None:
    """Write H.264 that browsers and slides can play. Raises: DataError with ffmpeg's message if it fails."""
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
    require(not failed, "format", f"ffmpeg could not write it ({message})")
