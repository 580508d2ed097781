"""Names and selections of the ports of graphs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar


class Named(Protocol):
    """A port of a signature, or a value of an ONNX graph."""

    @property
    def name(self) -> str:
        """The name of the port."""
        ...


NamedPort = TypeVar("NamedPort", bound=Named)


def port_names(ports: Iterable[Named]) -> list[str]:
    """Return the name of each port."""
    return [port.name for port in ports]


def ports_among(ports: Iterable[NamedPort], names: Collection[str]) -> list[NamedPort]:
    """Return the ports whose names are among ``names``."""
    return [port for port in ports if port.name in names]
