"""Write files atomically, follow long work with a progress bar."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from uuid import uuid4

from tqdm import tqdm

from trajpred.errors import DataError

#: An unfinished file not written to for this long belongs to a killed process.
ABANDONED_S = 24 * 3600
#: First bytes of a git-lfs pointer, which stands for a file stored elsewhere.
POINTER = b"version https://git-lfs.github.com/spec/"
#: Pointers are smaller than this.
MAX_POINTER_BYTES = 1024
#: Limit of file systems on the length of a name.
MAX_NAME_BYTES = 255


@contextmanager
def atomic_file(path: str | Path, flush: bool = True) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to, and rename it to ``path`` on success.

    An existing file keeps its mode. A symbolic link stays: its target is replaced. If the block raises or the
    process stops, an existing ``path`` is unchanged; with ``flush``, also if the machine stops. A ``path``
    that is not a regular file (``/dev/stdout``) is yielded itself. Success also removes files that killed
    writers of ``path`` left beside it more than :data:`ABANDONED_S` ago.

    Example:
        >>> with atomic_file("results.json") as unfinished:
        ...     unfinished.write_text("{}")

    Raises: OSError, which names ``path``, if the file cannot be written.
    """
    path = Path(path)
    if _is_stream(path):
        with naming_disk_errors(path):
            yield path
        return
    target = Path(os.path.realpath(path))
    mode = target.stat().st_mode if target.exists() else None
    name = os.fsencode(f".unfinished-{uuid4().hex[:8]}-{path.name}")[:MAX_NAME_BYTES]
    # A character may be cut.
    unfinished = target.with_name(name.decode(sys.getfilesystemencoding(), errors="ignore"))
    try:
        with naming_disk_errors(path, instead_of=unfinished):
            yield unfinished
            if flush:
                sync(unfinished)
            if mode is not None:
                with suppress(OSError):  # not every file system has modes
                    unfinished.chmod(stat.S_IMODE(mode))
            unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    for other in target.parent.glob(".unfinished-*"):
        with suppress(OSError):  # another process may remove it at the same time
            same_path = other.name[20:] == unfinished.name[20:]  # the names differ in eight random digits
            if same_path and time.time() - other.stat().st_mtime > ABANDONED_S:
                other.unlink()
    if flush:
        sync(target.parent)


def _is_stream(path: Path) -> bool:
    """Return whether writing to ``path`` goes to a device, a pipe or an open file (``/dev/fd/1``)."""
    folder = Path(os.path.realpath(path.parent))
    names_open_files = folder == Path("/dev") or folder.is_relative_to("/proc")
    return path.exists() and (names_open_files or not path.is_file())


@contextmanager
def naming_disk_errors(path: Path, instead_of: Path | None = None) -> Iterator[None]:
    """Add ``path`` to an OSError that names no file (a full disk), or names ``instead_of``."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(instead_of)):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


@contextmanager
def resumable(path: Path) -> Iterator[None]:
    """Raise DataError about the file that cannot be written, or ``path`` if the cause names none."""
    try:
        yield
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}); run the same command again to resume"
        raise DataError(problem, file=error.filename or path) from None


def require_writable(path: Path, folder: bool = False) -> None:
    """Check that an output can be written, before any work.

    The folder of a file is created; an output ``folder`` is not.

    Raises: DataError if it cannot be written.
    """
    home = path if folder else Path(os.path.realpath(path)).parent
    existing = next(place for place in (home, *home.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise DataError("is a file, a folder is needed", file=existing)
    try:
        if folder or not path.exists():
            TemporaryFile(dir=existing).close()
        if not folder:
            home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", file=path) from None
    if not folder and path.is_dir():
        raise DataError("is a folder, a file is needed", file=path)


def require_file(path: Path) -> None:
    """Check that reading ``path`` will end, and that it is not a stand-in for a file elsewhere.

    It must be a file, a folder or missing; not a pipe, a device, or a git-lfs pointer to a large file.

    Raises: DataError; OSError.
    """
    if not path.exists() or path.is_dir():
        return
    if not path.is_file():
        raise DataError("is a pipe or a device, a file is needed", file=path)
    is_small = path.stat().st_size < MAX_POINTER_BYTES
    if is_small and path.read_bytes().startswith(POINTER):
        raise DataError("is a pointer of git-lfs, not the file itself: fetch it by git lfs pull", file=path)


def sync(path: Path) -> None:
    """Flush a file, or a folder's entries, to disk; on Windows, folders are ignored."""
    if sys.platform == "win32" and path.is_dir():
        return
    mode = os.O_RDWR if sys.platform == "win32" else os.O_RDONLY
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


#: Seconds between progress lines without a terminal.
LINE_S = 60.0


@contextmanager
def stage(text: str, shown: bool = True) -> Iterator[None]:
    """Print ``text`` before lengthy work, and its duration afterwards."""
    if not shown:
        yield
        return
    print(f"{text} … ", end="", file=sys.stderr, flush=True)
    start = time.monotonic()
    duration = ""
    try:
        yield
        duration = f"{time.monotonic() - start:.1f} s"
    finally:
        print(duration, file=sys.stderr, flush=True)


def progress_bar(*args: Any, shown: bool = True, **options: Any) -> tqdm:
    """Return tqdm's bar for a terminal; in a file or a pipe, it prints lines at least every :data:`LINE_S`.

    Args:
        args, options: tqdm's.
        shown: whether to print anything.
    """
    if not sys.stderr.isatty():
        options |= {"file": _Lines(), "mininterval": LINE_S, "maxinterval": LINE_S}
    return tqdm(*args, disable=not shown, dynamic_ncols=True, **options)


class _Lines:
    """A stream that writes each state of a bar as a line."""

    def write(self, text: str) -> None:
        if text.strip():
            print(text.strip(), file=sys.stderr)

    def flush(self) -> None:
        sys.stderr.flush()
