"""A guard that rejects connections to other machines."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any
from unittest import mock


class ReachedOutError(BaseException):
    """Raised on a connection to another machine; no Exception, so that retries do not hide it."""


def _is_here(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host in ("", "localhost", socket.gethostname())


def _guarded(connect: Callable[..., Any]) -> Callable[..., Any]:
    def guard(self: socket.socket, address: Any) -> Any:
        inet = self.family in (socket.AF_INET, socket.AF_INET6)
        # Connecting a datagram socket sends nothing: libraries find the machine's own address this way.
        if inet and self.type == socket.SOCK_STREAM and not _is_here(address[0]):
            raise ReachedOutError(f"a connection to {address}")
        return connect(self, address)

    return guard


def _resolving(resolve: Callable[..., Any]) -> Callable[..., Any]:
    def guard(host: str | bytes | None, *rest: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host or ""
        if not _is_here(name) and not name.replace(".", "").isdigit():
            raise ReachedOutError(f"a look-up of {name}")
        return resolve(host, *rest, **options)

    return guard


@contextmanager
def offline() -> Iterator[None]:
    """Raise :class:`ReachedOutError` on connections to other machines and look-ups of their names."""
    with (
        mock.patch.object(socket.socket, "connect", _guarded(socket.socket.connect)),
        mock.patch.object(socket.socket, "connect_ex", _guarded(socket.socket.connect_ex)),
        mock.patch.object(socket, "getaddrinfo", _resolving(socket.getaddrinfo)),
    ):
        yield
