"""Pictures to files: whole or not at all, in true time, and one sentence where that cannot be."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence
from trajpred.viz.film_files import write_film

from trajpred.errors import DataError
from trajpred.viz import film_files


def pictures(number: int, size: tuple[int, int] = (40, 60)) -> list[np.ndarray]:
    """A square that moves over grey."""
    film = [np.full((*size, 3), 200, np.uint8) for _ in range(number)]
    for i, picture in enumerate(film):
        picture[10:20, i : i + 10] = (213, 94, 0)
    return film


def test_gif_holds_every_picture_at_its_time(tmp_path: Path) -> None:
    film = [*pictures(20), *pictures(20)[-1:] * 5]
    write_film(tmp_path / "deep" / "a.gif", film, fps=12.0)
    with Image.open(tmp_path / "deep" / "a.gif") as gif:
        frames = [(frame.convert("RGB"), frame.info["duration"]) for frame in ImageSequence.Iterator(gif)]
        assert gif.info["loop"] == 0
    assert len(frames) == 20, "pictures that are alike are one"
    assert all((np.asarray(frame) == one).all() for (frame, _), one in zip(frames, film, strict=False))
    # GIFs count hundredths: 1/12 s is none, the sum is true nevertheless.
    assert abs(sum(duration for _, duration in frames) - 25 / 12 * 1000) <= 10


def test_mp4_holds_every_picture_at_its_time(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    write_film(tmp_path / "a.mp4", pictures(30, (41, 61)), fps=10.0)
    assert ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4")) == (30, pytest.approx(3.0))
    reader = ffmpeg.read_frames(str(tmp_path / "a.mp4"))
    assert next(reader)["size"] == (62, 42), "H.264 wants even sides"
    first = np.frombuffer(next(reader), np.uint8).reshape(42, 62, 3).astype(int)
    reader.close()
    assert np.abs(first[30, 40] - 200).max() < 8 and np.abs(first[15, 5] - [213, 94, 0]).max() < 60


def test_without_an_encoder_one_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setattr(film_files.shutil, "which", lambda name: None)
    with pytest.raises(DataError, match=r'pip install "trajpred\[film\]"'):
        write_film(tmp_path / "a.mp4", pictures(2), fps=10.0)
    monkeypatch.setattr(film_files.shutil, "which", lambda name: f"/bin/{name}")
    assert film_files.encoder() == "/bin/ffmpeg"
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="the encoder that fails is a shell script")
def test_an_encoder_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no such codec >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(film_files, "encoder", lambda: str(broken))
    with pytest.raises(DataError, match="no such codec"):
        write_film(tmp_path / "a.mp4", pictures(400, (200, 300)), fps=10.0)
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


class Breaks(Sequence[np.ndarray]):
    """Pictures of which the last one cannot be drawn."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> np.ndarray:
        if index == 9:
            raise DataError("no tenth one")
        return pictures(10)[index]


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_half_a_film_is_none(tmp_path: Path, suffix: str) -> None:
    if suffix == "mp4":
        pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / f"a.{suffix}"
    path.write_text("the one before")
    with pytest.raises(DataError, match="no tenth one"):
        write_film(path, Breaks(), fps=10.0)
    assert path.read_text() == "the one before" and list(tmp_path.iterdir()) == [path]


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\.gif or \.mp4"):
        write_film(tmp_path / "a.webm", pictures(2), fps=10.0)
