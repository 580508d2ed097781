"""Pictures one after another -> a GIF or an MP4 file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.viz.palette import Palette

#: ``[H, W, 3]`` red, green and blue.
Picture = NDArray[np.uint8]
#: Pictures that the palette of a GIF is made from.
SAMPLES = 16
#: What to do where there is no encoder.
ADVICE = 'an MP4 needs ffmpeg: pip install "trajpred[film]", or install ffmpeg; a GIF needs nothing'


def write_film(path: Path, pictures: Sequence[Picture], fps: float) -> None:
    """Write ``pictures``, each shown 1/``fps`` seconds, as the suffix of ``path`` says; whole or not at all.

    Raises: DataError on another suffix than .gif or .mp4, and where there is no encoder for MP4.
    """
    write = film_writer(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".unfinished-{path.name}")
    try:
        write(unfinished, pictures, fps)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def film_writer(path: Path) -> Callable[[Path, Sequence[Picture], float], None]:
    """What writes a film of that suffix. Raises: DataError like :func:`write_film`, before any is made."""
    writers = {".gif": write_gif, ".mp4": write_mp4}
    require(path.suffix in writers, "path", f"must end in {' or '.join(writers)}, is {path.name!r}")
    if path.suffix == ".mp4":
        encoder()
    return writers[path.suffix]


def write_gif(path: Path, pictures: Sequence[Picture], fps: float) -> None:
    """A GIF that starts again at its end. Its clock counts hundredths of a second."""
    # The same colours for all pictures, and no dithering: what does not move must not flicker.
    palette = Palette([pictures[i] for i in np.linspace(0, len(pictures) - 1, SAMPLES).astype(int)])
    first, *rest = (palette.apply(one) for one in pictures)
    # Each picture's own duration, so that the rounded ones sum to the true time.
    ends = np.rint(np.arange(len(pictures) + 1) * 100 / fps) * 10
    durations = np.diff(ends).astype(int).tolist()
    # Optimised, a picture keeps only what is not as before.
    first.save(path, "GIF", save_all=True, append_images=rest, duration=durations, loop=0, optimize=True)


def encoder() -> str:
    """The ffmpeg program: that of imageio-ffmpeg, else the system's. Raises: DataError if there is none."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        program: str = get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        program = shutil.which("ffmpeg") or ""
    require(bool(program), "format", ADVICE)
    return program


def write_mp4(path: Path, pictures: Sequence[Picture], fps: float) -> None:
    """H.264 that browsers and slides play. Raises: DataError with what the encoder says if it fails."""
    height, width = pictures[0].shape[:2]
    given = ["-f", "rawvideo", "-pixel_format", "rgb24", "-video_size", f"{width}x{height}"]
    # The colours are halved in size, so width and height must be even.
    made = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20"]
    made += ["-preset", "medium", "-movflags", "+faststart", "-f", "mp4", "-y", str(path)]
    command = [encoder(), "-loglevel", "error", *given, "-framerate", f"{fps}", "-i", "-", *made]
    with TemporaryFile() as said, Popen(command, stdin=PIPE, stderr=said) as process:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has given up, and said why
            for one in pictures:
                process.stdin.write(one.tobytes())
            process.stdin.close()
        failed = process.wait()
        said.seek(0)
        told = said.read().decode(errors="replace").strip()
    require(not failed, "format", f"ffmpeg could not write it ({told})")
