"""Find the scenes of an Argoverse 1 pack that were cut from one drive -> ``<split>_drives.csv`` beside it.

``python tools/drives.py --help`` explains it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cyclopts
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.errors import DataError
from trajpred.sources.reading import readable

#: Scenes of one drive share at least this many positions, to the millimetre.
MIN_SHARED = 3
#: Positions in more rows of a pack do not count: recording vehicles of many drives stop there.
MAX_ROWS = 40


def drives(pack: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a pack's sorted scenes ``[N]``, and the largest scene number of each one's drive ``[N]``.

    Two scenes belong to one drive if they share :data:`MIN_SHARED` positions, or are linked by a chain of
    such scenes.

    Raises: DataError if the pack cannot be read.
    """
    with readable(pack, "pack"):
        rows = pq.read_table(pack, columns=["seq_id", "x_dmm", "y_dmm", "CITY_NAME"])
        scenes, scene = np.unique(rows["seq_id"].to_numpy(), return_inverse=True)
        _, city = np.unique(rows["CITY_NAME"].cast("string").to_numpy(), return_inverse=True)
        xy_mm = np.round(np.stack((rows["x_dmm"].to_numpy(), rows["y_dmm"].to_numpy())) / 10).astype(np.int64)
    # City coordinates are below 2^28 mm: a position and its city fit into one number.
    code = ((xy_mm[0] + 2**29) << 32) + ((xy_mm[1] + 2**29) << 1) + city
    _, place, count = np.unique(code, return_inverse=True, return_counts=True)
    counted = count[place] <= MAX_ROWS
    visits = np.unique(place[counted] * len(scenes) + scene[counted])
    first, second = _linked(visits // len(scenes), visits % len(scenes), len(scenes))
    drive = np.arange(len(scenes))
    while True:
        larger = drive.copy()
        np.maximum.at(larger, first, drive[second])
        np.maximum.at(larger, second, drive[first])
        if (larger == drive).all():
            return scenes.astype(np.int64), scenes[drive].astype(np.int64)
        drive = larger


def _linked(
    place: NDArray[np.int64], scene: NDArray[np.int64], num_scenes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of scenes ``[V]`` that share :data:`MIN_SHARED` of the sorted places ``[V]``."""
    pairs: list[NDArray[np.int64]] = []
    for later in range(1, MAX_ROWS):
        together = np.flatnonzero(place[later:] == place[:-later])
        pairs.append(scene[together] * num_scenes + scene[together + later])
    pair, shared = np.unique(np.concatenate(pairs), return_counts=True)
    pair = pair[shared >= MIN_SHARED]
    return pair // num_scenes, pair % num_scenes


def main(*packs: Path) -> None:
    """Write the drives of scenes in packs, only of scenes that share their drive with another.

    Example: python tools/drives.py datasets/argoverse1/train.parquet datasets/argoverse1/val.parquet

    Args:
        packs: Files <split>.parquet as described in datasets/argoverse1/README.md.
    """
    try:
        for pack in packs:
            scenes, drive = drives(pack)
            names, index, count = np.unique(drive, return_inverse=True, return_counts=True)
            together = np.flatnonzero(count[index] > 1)
            lines = ["seq_id,drive", *(f"{scenes[row]},{drive[row]}" for row in together)]
            out = pack.with_name(f"{pack.stem}_drives.csv")
            out.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
            print(f"{out}: {len(scenes):,} scenes of {len(names):,} drives")
    except (DataError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    cyclopts.run(main)
