"""Names of a package that are imported when they are first used, so that light ones stay light."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], list[str]]:
    """Return the ``__getattr__`` and the ``__all__`` of ``package``.

    Args:
        names: for each module of the package its public names, separated by spaces.

    Example:
        >>> __getattr__, __all__ = lazy_names(__name__, {"results": "Evaluation read_results"})
    """
    homes = {name: module for module, text in names.items() for name in text.split()}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return load, sorted(homes)
