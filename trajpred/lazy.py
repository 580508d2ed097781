"""Names of a package that are imported when they are first used, so that light ones stay light."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of ``package``; ``homes`` maps each name to its module there.

    Example:
        >>> __getattr__ = lazy_names(__name__, {"evaluate": "evaluate", "Evaluation": "results"})
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return load
