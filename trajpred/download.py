"""Fetch a data set from a public S3 bucket: in parallel, resumable, every file verified.

A file appears under its name only after all its bytes have arrived and agree with the bucket's listing, so
whatever stops a run, the next one continues from the files that are there.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from trajpred.errors import DataError, require

SPLITS = ("train", "val", "test")
#: Where Argoverse 2 is published; anyone may read it, without an account.
ENDPOINT, BUCKET = "https://s3.us-east-1.amazonaws.com", "argoverse"
PREFIX = "datasets/av2/motion-forecasting"

_PAGE = 1000  # objects per listing request, the most that S3 gives
_BLOCK = 4096  # bytes; a file occupies whole blocks of the disk
_LONGEST_PAUSE_S = 30.0
_IN_A_ROW = 50  # so many files failing one after the other: it is the connection, not the files


class RemoteFile(NamedTuple):
    """One object of the bucket.

    Attributes:
        path: relative to the data set: split/scenario/name.
        size: in bytes.
        md5: of the content, in hexadecimal; None where the bucket does not state it.
    """

    path: str
    size: int
    md5: str | None


@dataclass
class Summary:
    """What :func:`download` did.

    Attributes:
        fetched, fetched_bytes: files that this run brought.
        kept: files that were there already.
        failed: ``{path: what was wrong}`` for those that could not be had.
    """

    fetched: int = 0
    fetched_bytes: int = 0
    kept: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def download(
    out: str | Path,
    *,
    splits: Sequence[str] = SPLITS,
    limit: int | None = None,
    workers: int = 16,
    endpoint: str = ENDPOINT,
    bucket: str = BUCKET,
    prefix: str = PREFIX,
    attempts: int = 6,
    pause_s: float = 0.5,
    progress: bool = True,
) -> Summary:
    """Fetch ``{prefix}/{split}/{scenario}/*`` into ``out/{split}/{scenario}/*``.

    Files already there with the listed size and checksum are kept. Memory: about 300 bytes per file.

    Args:
        out: target folder.
        splits: folders below ``prefix``.
        limit: the first so many scenarios of each split; None for all.
        workers: files fetched at once.
        endpoint: URL of the S3 service.
        bucket: its name there.
        prefix: the data set's folder in it.
        attempts: tries per request before it counts as failed.
        pause_s: seconds before the second try; twice as many before each further one, at most 30.
        progress: show progress bars.

    Raises:
        DataError: the bucket cannot be listed or holds no such split, the disk is too small or cannot be
            written, obstore is not installed, or no file can be fetched any more. All that was fetched stays.
    """
    out = Path(out)
    require(bool(splits), "splits", "must name at least one split")
    require(limit is None or limit > 0, "limit", "must be positive")
    require(workers > 0, "workers", "must be positive")
    require(attempts > 0, "attempts", "must be positive")
    remote = _Remote(endpoint, bucket, prefix, _Patience(attempts, pause_s))
    listed = (file for split in dict.fromkeys(splits) for file in remote.files(split, limit))
    files = list(tqdm(listed, desc="listing", unit=" files", disable=not progress))
    _check_space(out, files)
    return _fetch_all(remote, files, out, workers, progress)


class _Patience:
    """How often to try again and how long to wait before; :meth:`end` ends every wait at once."""

    def __init__(self, attempts: int, pause_s: float) -> None:
        self.attempts, self.pause_s, self._ended = attempts, pause_s, threading.Event()

    def wait(self, failures: int) -> bool:
        """Whether to try again after so many failures in succession; returns when it is time to."""
        if failures >= self.attempts or self._ended.is_set():
            return False
        pause = min(self.pause_s * 2.0 ** (failures - 1), _LONGEST_PAUSE_S)
        # Spread out: workers cut off together must not all come back together.
        return not self._ended.wait(pause * random.uniform(0.5, 1.0))

    def end(self) -> None:
        self._ended.set()


class _Remote:
    """The data set in its bucket, read anonymously; the only place that knows the S3 client."""

    def __init__(self, endpoint: str, bucket: str, prefix: str, patience: _Patience) -> None:
        try:
            from obstore import exceptions
            from obstore.store import S3Store
        except ImportError:
            raise DataError("downloading needs obstore: pip install 'trajpred[download]'") from None
        self.where, self.prefix, self.patience = f"{endpoint}/{bucket}", prefix.strip("/"), patience
        self.error = exceptions.BaseError
        self.final = (exceptions.NotFoundError, exceptions.PermissionDeniedError, exceptions.InvalidPathError)
        try:
            # The endpoint, region and addressing are stated, lest AWS_* variables redirect the request.
            self.store: Any = S3Store(
                bucket,
                endpoint=endpoint,
                region="us-east-1",
                skip_signature=True,
                virtual_hosted_style_request=False,
                client_options={"allow_http": endpoint.startswith("http://"), "timeout": timedelta(minutes=1)},
                retry_config={"max_retries": 0},  # tries are counted here, together with failed checks
            )
        except (self.error, ValueError) as error:
            raise DataError(f"cannot be used ({_brief(error)})", field="endpoint") from None

    def files(self, split: str, limit: int | None) -> Iterator[RemoteFile]:
        """The files of the first ``limit`` scenarios, page by page."""
        scenarios: set[str] = set()
        start, page = f"{self.prefix}/".lstrip("/"), _PAGE if limit is None else min(_PAGE, 2 * limit + 2)
        for item in self._objects(f"{start}{split}", page):
            file = _remote_file(item, start)
            folders = file.path.split("/")[1:-1]
            if not folders:
                continue  # neither markers of folders nor files beside the scenarios belong to the set
            # S3 lists in the order of the keys, so a scenario's files come together.
            if limit is not None and len(scenarios) == limit and folders[0] not in scenarios:
                return
            scenarios.add(folders[0])
            yield file
        if not scenarios:
            raise DataError(f"{self.where} holds no scenario below {start}{split}/", field="prefix")

    def _objects(self, folder: str, page: int) -> Iterator[dict[str, Any]]:
        """Every object below ``folder``; after an error the listing goes on behind the last one."""
        last, failures = None, 0
        while True:
            try:
                for chunk in self.store.list(folder, offset=last, chunk_size=page):
                    for item in chunk:
                        yield item
                    last, failures = chunk[-1]["path"], 0
                return
            except self.final as error:
                raise DataError(f"{self.where} cannot be listed ({_brief(error)})", field="bucket") from None
            except self.error as error:
                failures += 1
                if not self.patience.wait(failures):
                    problem = f"{self.where} cannot be listed after {failures} tries ({_brief(error)})"
                    raise DataError(problem, field="endpoint") from None

    def read(self, file: RemoteFile) -> bytes:
        """The content, complete and verified. Raises: :class:`DataError` if it cannot be had."""
        key, failures = f"{self.prefix}/{file.path}".lstrip("/"), 0
        while True:
            try:
                content = bytes(self.store.get(key).bytes())
                problem = _mismatch(file, content)
                if problem is None:
                    return content
            except self.final as error:
                raise DataError(_brief(error), file=file.path) from None
            except self.error as error:
                problem = _brief(error)
            failures += 1
            if not self.patience.wait(failures):
                raise DataError(f"{problem} ({failures} tries)", file=file.path)


def _remote_file(item: dict[str, Any], start: str) -> RemoteFile:
    """An object of the listing. Raises: :class:`DataError` if its key would lead out of the target folder."""
    path = item["path"][len(start) :]
    if not item["path"].startswith(start) or re.search(r"(^|/)\.{0,2}(/|$)|[\\:\0]", path):
        raise DataError(f"the bucket lists {item['path']!r}, which is no usable file name", field="prefix")
    # The ETag of an object uploaded in one piece is its MD5; others carry a dash.
    tag = (item["e_tag"] or "").strip('"').lower()
    return RemoteFile(path, item["size"], tag if re.fullmatch("[0-9a-f]{32}", tag) else None)


def _mismatch(file: RemoteFile, content: bytes) -> str | None:
    """In what the content differs from the listing, if in anything."""
    if len(content) != file.size:
        return f"{len(content)} bytes came, {file.size} are listed"
    if file.md5 not in (None, hashlib.md5(content, usedforsecurity=False).hexdigest()):
        return "the checksum differs from the listed one"
    return None


def _brief(error: BaseException) -> str:
    """The first line of a message: clients append their own internals."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _check_space(out: Path, files: list[RemoteFile]) -> None:
    """Raise :class:`DataError` unless what is missing fits on the disk."""
    missing = [file.size for file in files if _size(out / file.path) != file.size]
    needed = sum(-(-size // _BLOCK) * _BLOCK for size in missing)
    folder = next(path for path in (out.absolute(), *out.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(folder).free
    if needed > free:
        problem = f"{len(missing)} files of {needed / 1e9:.2f} GB are missing, {free / 1e9:.2f} GB are free"
        raise DataError(f"not enough disk space: {problem}", file=out)


def _size(path: Path) -> int | None:
    """Of a regular file in bytes; None if there is none."""
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def _fetch_all(remote: _Remote, files: list[RemoteFile], out: Path, workers: int, progress: bool) -> Summary:
    summary, in_a_row = Summary(), 0
    pool = ThreadPoolExecutor(workers)
    bar = tqdm(total=sum(file.size for file in files), unit="B", unit_scale=True, disable=not progress)
    try:
        for file, result in _unordered(pool, remote, files, out, 4 * workers):
            bar.update(file.size)
            try:
                fetched = result.result()
            except DataError as error:
                summary.failed[file.path] = error.message
                in_a_row += 1
                problem = f"{in_a_row} files in a row could not be fetched, the last: {error.message}"
                require(in_a_row < _IN_A_ROW, "endpoint", f"{problem}; the same command continues")
                continue
            in_a_row = 0 if fetched else in_a_row
            summary.fetched += fetched
            summary.fetched_bytes += file.size * fetched
            summary.kept += not fetched
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}); the same command continues"
        raise DataError(problem, file=error.filename or out) from None
    finally:
        remote.patience.end()
        pool.shutdown(cancel_futures=True)
        bar.close()
    return summary


def _unordered(
    pool: ThreadPoolExecutor, remote: _Remote, files: Iterable[RemoteFile], out: Path, window: int
) -> Iterator[tuple[RemoteFile, Future[bool]]]:
    """Files as they are finished, never more than ``window`` of them begun."""
    begun: dict[Future[bool], RemoteFile] = {}
    waiting = iter(files)
    while True:
        for file in islice(waiting, window - len(begun)):
            begun[pool.submit(_fetch, remote, file, out / file.path)] = file
        if not begun:
            return
        # The timeout lets Ctrl-C through on Windows, where a wait without one cannot be interrupted.
        for future in wait(begun, timeout=1, return_when=FIRST_COMPLETED).done:
            yield begun.pop(future), future


def _fetch(remote: _Remote, file: RemoteFile, target: Path) -> bool:
    """Bring one file unless it is there; whether it was brought."""
    if _size(target) == file.size and (file.md5 is None or _mismatch(file, target.read_bytes()) is None):
        return False
    content = remote.read(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(target)
    except FileNotFoundError:
        if _size(target) != file.size:  # else a second run on this folder was faster, and tidied up
            raise
    finally:
        # Also what killed runs have left.
        for rest in target.parent.glob(f"{target.name}.*.partial"):
            with suppress(OSError):
                rest.unlink()
    return True
