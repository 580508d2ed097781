"""Download a data set from a public S3 bucket: in parallel, resumable, every file verified.

A file gets its name only after all its bytes have arrived and match the bucket's listing, so an interrupted
download continues with the missing files.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import chain
from multiprocessing import TimeoutError
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

from trajpred.data.environment import install_command
from trajpred.data.files import atomic_file, progress_bar, resumable
from trajpred.data.splits import SPLITS
from trajpred.errors import DataError, require

#: The public service that hosts Argoverse 2; no account needed.
ENDPOINT = "https://s3.us-east-1.amazonaws.com"
BUCKET = "argoverse"
PREFIX = "datasets/av2/motion-forecasting"
#: Objects per listing request, S3's maximum.
_PAGE = 1000
#: Bytes of a disk block.
_BLOCK = 4096
#: Attempts to download a file whose content is cut off or fails verification.
_TRIES = 3
#: Consecutive failures after which the download is given up.
_MAX_IN_A_ROW = 50


class RemoteFile(NamedTuple):
    """One object in the bucket: path within the data set, size in bytes, and MD5 if the bucket states it."""

    path: str
    size: int
    md5: str | None

    def mismatch(self, content: bytes) -> str | None:
        """Describe how ``content`` differs from the listing; None if it matches."""
        if len(content) != self.size:
            return f"received {len(content)} bytes, {self.size} are listed"
        if self.md5 not in (None, hashlib.md5(content, usedforsecurity=False).hexdigest()):
            return "the checksum differs from the listed one"
        return None

    def is_at(self, path: Path) -> bool:
        """Return whether ``path`` has this size."""
        return path.is_file() and path.stat().st_size == self.size


@dataclass
class Summary:
    """Numbers of files downloaded and already present, and the reason for each failure by path."""

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
    retries: int = 8,
    pause_s: float = 0.5,
    progress: bool = True,
) -> Summary:
    """Download ``{prefix}/{split}/{scenario}/*`` to ``out/{split}/{scenario}/*``.

    Existing files of the listed size and checksum are kept. Memory: about 500 bytes per file.

    Args:
        out: target folder.
        splits: folders below ``prefix``.
        limit: number of scenarios per split, the first ones; None for all.
        workers: number of simultaneous downloads.
        endpoint: URL of the S3 service.
        bucket: name of the bucket.
        prefix: folder of the data set in the bucket.
        retries: number of retries of a failed request.
        pause_s: seconds before the first retry; doubled each time, up to 15.
        progress: show progress bars.

    Raises:
        DataError: no such bucket or split, no connection, too little disk space, or obstore is not installed.
            Files downloaded so far are kept.
    """
    out = Path(out)
    require(re.match(r"https?://[^/\s]+", endpoint) is not None, "endpoint", "must be a URL: https://host")
    require(limit is None or limit > 0, "limit", "must be positive")
    require(workers > 0, "workers", "must be positive")
    remote = _Remote(endpoint, bucket, prefix, retries, pause_s)
    distinct_splits = dict.fromkeys(splits)
    listed = chain.from_iterable(remote.files(split, limit) for split in distinct_splits)
    files = list(progress_bar(listed, desc="listing", unit=" files", shown=progress))
    _check_space(out, files)
    return _download_all(remote, files, out, workers, progress)


class _Remote:
    """The data set in its bucket, read anonymously; the only user of the S3 client."""

    def __init__(self, endpoint: str, bucket: str, prefix: str, retries: int, pause_s: float) -> None:
        try:
            from obstore import exceptions
            from obstore.store import S3Store
        except ImportError:
            raise DataError(f"downloading needs obstore: {install_command('download')}") from None
        self.where = f"{endpoint}/{bucket}"
        self.prefix = prefix.strip("/")
        self.error: tuple[type[Exception], ...] = (exceptions.BaseError, OSError)  # OSError: not found
        # Endpoint and addressing are explicit, so that AWS_* variables cannot redirect requests.
        config: Any = {"endpoint": endpoint, "region": "us-east-1", "virtual_hosted_style_request": False}
        client: Any = {"allow_http": endpoint.startswith("http://"), "timeout": timedelta(minutes=1)}
        pause = {"init_backoff": timedelta(seconds=pause_s), "max_backoff": timedelta(seconds=15), "base": 2}
        retry: Any = {"max_retries": retries, "backoff": pause}
        try:
            self.store: Any = S3Store(
                bucket, skip_signature=True, config=config, client_options=client, retry_config=retry
            )
        except (*self.error, ValueError) as error:
            raise DataError(f"cannot be used ({_brief(error)})", field="endpoint") from None

    def files(self, split: str, limit: int | None) -> Iterator[RemoteFile]:
        """Yield the files of the first ``limit`` scenarios."""
        scenarios: set[str] = set()
        start = f"{self.prefix}/".lstrip("/")
        page = _PAGE if limit is None else min(_PAGE, 2 * limit + 2)
        for item in self._objects(f"{start}{split}", page):
            file = _remote_file(item, start)
            folders = file.path.split("/")[1:-1]
            if not folders:
                continue  # folder markers, and files that belong to no scenario
            # S3 lists keys in order: all files of a scenario are adjacent.
            if limit is not None and len(scenarios) == limit and folders[0] not in scenarios:
                return
            scenarios.add(folders[0])
            yield file
        if not scenarios:
            raise DataError(f"{self.where} has no scenario below {start}{split}/", field="prefix")

    def _objects(self, folder: str, page: int) -> Iterator[dict[str, Any]]:
        """Yield every object below ``folder``; an interrupted listing continues after its last object."""
        last: str | None = None
        tries = 0
        while True:
            try:
                for chunk in self.store.list(folder, offset=last, chunk_size=page):
                    yield from chunk
                    last = chunk[-1]["path"]
                    tries = 0
                return
            except self.error as error:
                tries += 1
                if tries == _TRIES:
                    problem = f"{self.where} cannot be listed: {_brief(error)}"
                    raise DataError(problem, field="bucket") from None

    def read(self, file: RemoteFile) -> bytes:
        """Return the verified content. Raises: DataError if it cannot be obtained."""
        key = f"{self.prefix}/{file.path}".lstrip("/")
        problem: str | None = None
        for _ in range(_TRIES):
            try:
                response = self.store.get(key)
            except self.error as error:  # the client has retried where that helps
                raise DataError(_brief(error), file=file.path) from None
            try:
                content = bytes(response.bytes())
                problem = file.mismatch(content)
            except self.error as error:
                problem = _brief(error)
            if problem is None:
                return content
        raise DataError(str(problem), file=file.path)


def _remote_file(item: dict[str, Any], start: str) -> RemoteFile:
    """Parse an object of the listing. Raises: DataError if its key points outside the target folder."""
    path = item["path"][len(start) :]
    if not item["path"].startswith(start) or re.search(r"(^|/)\.{0,2}(/|$)|[\\:\0]", path):
        raise DataError(f"the bucket lists the invalid file name {item['path']!r}", field="prefix")
    # The ETag of an object uploaded in one piece is its MD5; those of other objects contain a dash.
    tag = (item["e_tag"] or "").strip('"').lower()
    md5 = tag if re.fullmatch("[0-9a-f]{32}", tag) else None
    return RemoteFile(path, item["size"], md5)


def _brief(error: BaseException) -> str:
    """Return the message without the server's page and the client's internals."""
    return re.split(r":?\s*<|\n", str(error), maxsplit=1)[0].rstrip(": ") or type(error).__name__


def _check_space(out: Path, files: list[RemoteFile]) -> None:
    """Raise DataError unless the missing files fit on the disk."""
    missing = [file.size for file in files if not file.is_at(out / file.path)]
    needed = sum(-(-size // _BLOCK) * _BLOCK for size in missing)
    folder = next(path for path in (out.absolute(), *out.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(folder).free
    if needed > free:
        problem = f"{len(missing)} files of {needed / 1e9:.2f} GB are missing, {free / 1e9:.2f} GB are free"
        raise DataError(f"not enough disk space: {problem}", file=out)


def _download_all(
    remote: _Remote, files: list[RemoteFile], out: Path, workers: int, progress: bool
) -> Summary:
    """Download the files in parallel. Raises: DataError after many failures in a row, or on a full disk."""
    summary = Summary()
    in_a_row = 0
    size = sum(file.size for file in files)
    bar = progress_bar(total=size, unit="B", unit_scale=True, shown=progress)
    # Its threads are daemons: a retrying request does not delay the end of the process.
    with resumable(out), bar, ThreadPool(workers) as pool:
        results = pool.imap_unordered(partial(_download_one, remote, out), files)
        for _ in files:
            file, result = _next(results)
            bar.update(file.size)
            if isinstance(result, DataError):
                summary.failed[file.path] = result.message
                in_a_row += 1
                problem = f"{in_a_row} files in a row failed, the last: {result.message}"
                advice = "run the same command again to resume"
                require(in_a_row < _MAX_IN_A_ROW, "endpoint", f"{problem}; {advice}")
            elif result:
                in_a_row = 0
                summary.fetched += 1
                summary.fetched_bytes += file.size
            else:
                summary.kept += 1
    return summary


def _next(results: Any) -> Any:
    while True:
        with suppress(TimeoutError):  # Windows cannot interrupt a wait without a timeout
            return results.next(timeout=1)


def _download_one(remote: _Remote, out: Path, file: RemoteFile) -> tuple[RemoteFile, bool | DataError]:
    """Download a file unless it is present; return it, and whether it was downloaded or why it was not."""
    target = out / file.path
    if file.is_at(target) and (file.md5 is None or file.mismatch(target.read_bytes()) is None):
        return file, False
    try:
        content = remote.read(file)
    except DataError as error:
        return file, error
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(target, flush=False) as unfinished:  # the next run verifies it anyway
        unfinished.write_bytes(content)
    return file, True
