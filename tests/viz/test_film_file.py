"""Film files are complete or absent, and last as long as the film."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

from trajpred.errors import DataError
from trajpred.viz import film as film_file
from trajpred.viz.film import write_film


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
    with pytest.raises(DataError, match=r"\.gif or \.mp4"):
        write_film(Path("a.webm"), make_pictures(2), fps=10.0)


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
    with pytest.raises(DataError, match="no tenth picture"):
        write_film(path, Breaks(), fps=10.0)
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
    with pytest.raises(DataError, match=r"ffmpeg could not write it \(no space\)"):
        write_film(tmp_path / "a.mp4", pictures, fps=10.0)
