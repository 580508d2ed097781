"""Generated recordings in the format of inD, for tests: traffic at a crossing, 25 Hz."""

from __future__ import annotations

from pathlib import Path

import numpy as np

RATE = 25
TRACKS = "recordingId,trackId,frame,trackLifetime,xCenter,yCenter,heading,width,length,xVelocity,yVelocity"
META = "recordingId,trackId,initialFrame,finalFrame,numFrames,width,length,class"
#: Class, speed in m/s, length and width in metres.
KINDS = (
    ("car", 12.0, 4.6, 1.9),
    ("truck_bus", 9.0, 10.0, 2.5),
    ("bicycle", 5.0, 1.8, 0.6),
    ("pedestrian", 1.4, 0.0, 0.0),
    ("car", 0.0, 4.4, 1.8),
)


def write_ind(folder: Path, number: int = 0, seconds: float = 40.0, tracks: int = 20) -> Path:
    """Write the three files of a recording, which begins at x = 100 m, y = -50 m; return that of the tracks.

    Road users enter one after the other, drive straight on for 40 m and then turn on an arc of 20 m.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(number)
    frames = round(seconds * RATE)
    rows: list[str] = []
    meta: list[str] = []
    for track in range(tracks):
        kind, speed, length, width = KINDS[track % len(KINDS)]
        first = 0 if speed == 0 or track < 5 else int(rng.integers(0, frames // 2))
        frame = np.arange(first, min(frames, first + 20 * RATE) if speed > 8 else frames)
        x, y, heading = path(rng.uniform(0.8, 1.1) * speed * (frame - first) / RATE, turn=(-1) ** track)
        side = rng.integers(0, 4) * np.pi / 2
        c, s = np.cos(side), np.sin(side)
        x, y, yaw = 100 + c * x - s * y + 4 * track, -50 + s * x + c * y, heading + side
        vx, vy = np.gradient(x, 1 / RATE), np.gradient(y, 1 / RATE)
        for i, n in enumerate(frame):
            state = f"{x[i]:.5f},{y[i]:.5f},{np.degrees(yaw[i]) % 360:.5f},{width},{length}"
            rows.append(f"{number},{track},{n},{i},{state},{vx[i]:.5f},{vy[i]:.5f}")
        span = f"{frame[0]},{frame[-1]},{len(frame)}"
        meta.append(f"{number},{track},{span},{width},{length},{kind}")
    name = f"{number:02d}"
    (folder / f"{name}_tracksMeta.csv").write_text("\n".join([META, *meta]) + "\n")
    (folder / f"{name}_recordingMeta.csv").write_text(
        f"recordingId,locationId,frameRate,xUtmOrigin,yUtmOrigin\n{number},1,{RATE},0,0\n"
    )
    file = folder / f"{name}_tracks.csv"
    file.write_text("\n".join([TRACKS, *rows]) + "\n")
    return file


def path(distance: np.ndarray, turn: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, y and heading after a distance ``[N]``: 40 m straight, a quarter of a circle, straight on."""
    angle = np.clip((distance - 40) / 20, 0, np.pi / 2)
    beyond = np.maximum(distance - 40 - 10 * np.pi, 0)
    x = np.minimum(distance, 40) + 20 * np.sin(angle)
    y = turn * (20 * (1 - np.cos(angle)) + beyond)
    return x, y, turn * angle
