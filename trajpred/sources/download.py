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
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from trajpred.errors import DataError, require
from trajpred.splits import SPLITS

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
    """What :func:`download` did: files it brought, found there already, and failed to get and why."""

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

    Files already there with the listed size and checksum are kept. Memory: about 350 bytes per file.

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
        DataError: no such bucket or split, no connection, a disk too small or not writable, or no obstore.
            What was fetched stays.
    """
    out = Path(out)
    require(re.match(r"https?://[^/\s]+", endpoint) is not None, "endpoint", "must be a URL: https://host")
    for name, value in (("limit", limit), ("workers", workers), ("attempts", attempts)):
        require(value is None or value > 0, name, "must be positive")
    remote = _Remote(endpoint, bucket, prefix, attempts, pause_s)
    listed = (file for split in dict.fromkeys(splits) for file in remote.files(split, limit))
    files = list(tqdm(listed, desc="listing", unit=" files", disable=not progress))
    _check_space(out, files)
    return _fetch_all(remote, files, out, workers, progress)


class _Remote:
    """The data set in its bucket, read anonymously; the only place that knows the S3 client."""

    def __init__(self, endpoint: str, bucket: str, prefix: str, attempts: int, pause_s: float) -> None:
        try:
            from obstore import exceptions
            from obstore.store import S3Store
        except ImportError:
            raise DataError("downloading needs obstore: pip install 'trajpred[download]'") from None
        self.where, self.prefix = f"{endpoint}/{bucket}", prefix.strip("/")
        self.attempts, self.pause_s, self.ended = attempts, pause_s, threading.Event()
        # A missing object, for one, is a FileNotFoundError.
        self.error: tuple[type[Exception], ...] = (exceptions.BaseError, OSError)
        # Endpoint and addressing are stated, lest AWS_* variables redirect the requests.
        config: Any = {"endpoint": endpoint, "region": "us-east-1", "virtual_hosted_style_request": False}
        client: Any = {"allow_http": endpoint.startswith("http://"), "timeout": timedelta(minutes=1)}
        retry: Any = {"max_retries": 0}  # tries are counted here, together with failed checks
        try:
            self.store: Any = S3Store(
                bucket, skip_signature=True, config=config, client_options=client, retry_config=retry
            )
        except (*self.error, ValueError) as error:
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
                    yield from chunk
                    last, failures = chunk[-1]["path"], 0
                return
            except self.error as error:
                failures += 1
                if _is_final(error) or not self._wait(failures):
                    problem = f"{self.where} cannot be listed: {_brief(error)} (tries: {failures})"
                    raise DataError(problem, field="bucket") from None

    def read(self, file: RemoteFile) -> bytes:
        """The content, complete and verified. Raises: :class:`DataError` if it cannot be had."""
        key, failures = f"{self.prefix}/{file.path}".lstrip("/"), 0
        while True:
            try:
                content = bytes(self.store.get(key).bytes())
                problem, final = _mismatch(file, content), False
                if problem is None:
                    return content
            except self.error as error:
                problem, final = _brief(error), _is_final(error)
            failures += 1
            if final or not self._wait(failures):
                raise DataError(f"{problem} (tries: {failures})", file=file.path)

    def _wait(self, failures: int) -> bool:
        """Whether to try again after so many failures in succession; returns when it is time to."""
        if failures >= self.attempts:
            return False
        pause = min(self.pause_s * 2.0 ** (failures - 1), _LONGEST_PAUSE_S)
        # Spread out: workers cut off together must not all come back together.
        return not self.ended.wait(pause * random.uniform(0.5, 1.0))


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


def _is_final(error: BaseException) -> bool:
    """Whether the server's answer will not change: not found or not allowed, anything 4xx but "wait"."""
    return re.search(r"status(?: code)?:? 4(?!08|29)\d\d", _brief(error)) is not None


def _brief(error: BaseException) -> str:
    """The message without what follows it: the page that the server sent, and the client's internals."""
    return re.split(r":?\s*<|\n", str(error), maxsplit=1)[0].rstrip(": ") or type(error).__name__


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
    return path.stat().st_size if path.is_file() else None


def _fetch_all(remote: _Remote, files: list[RemoteFile], out: Path, workers: int, progress: bool) -> Summary:
    summary, in_a_row = Summary(), 0
    pool = ThreadPoolExecutor(workers)
    bar = tqdm(total=sum(file.size for file in files), unit="B", unit_scale=True, disable=not progress)
    try:
        for file, result in _unordered(pool, remote, iter(files), out, 4 * workers):
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
        remote.ended.set()
        pool.shutdown(cancel_futures=True)
        bar.close()
    return summary


def _unordered(
    pool: ThreadPoolExecutor, remote: _Remote, waiting: Iterator[RemoteFile], out: Path, window: int
) -> Iterator[tuple[RemoteFile, Future[bool]]]:
    """Files as they are finished, never more than ``window`` of them begun."""
    begun: dict[Future[bool], RemoteFile] = {}
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
