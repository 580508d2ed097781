"""Extensions of other packages: their encoders, decoders, metrics and predictors, for every command.

A package names a module under the entry point group ``trajpred.plugins``; every command imports it before it
runs. The module defines subclasses of ``TokenEncoder`` or ``SceneDecoder``, or adds metrics
(:func:`trajpred.metrics.register`) or predictors (:data:`trajpred.predictors.PREDICTORS`) under new names.
docs/how-to/own-model.md has an example.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from trajpred.errors import DataError

GROUP = "trajpred.plugins"
Entry = TypeVar("Entry")


class Registry(UserDict[str, Entry]):
    """Entries of one kind by name. Other packages can replace their own entries only.

    Args:
        kind: what the entries are, for messages.
        code: returns the function or class of an entry, by which its package is known.
        taken: returns further names that only trajpred has.
    """

    def __init__(
        self, kind: str, code: Callable[[Entry], object], taken: Callable[[], Collection[str]] = tuple
    ) -> None:
        self.kind = kind
        self.code = code
        self.taken = taken
        super().__init__()

    def __setitem__(self, name: str, entry: Entry) -> None:
        """Add an entry. Raises: DataError if the name is trajpred's or another package's."""
        owner = None
        if name in self:
            owner = package_of(self.code(self[name]))
        elif name in self.taken():
            owner = "trajpred"
        if owner == "trajpred" or owner not in (None, package_of(self.code(entry))):
            raise DataError(f"{owner} has a {self.kind} {name!r} already: choose another name")
        super().__setitem__(name, entry)

    def __ior__(self, others: Any) -> Registry[Entry]:  # type: ignore[override,misc]
        """Add entries; ``UserDict`` would not check them."""
        self.update(others)
        return self


def package_of(code: object) -> str:
    """Return the top-level package in which a function or class is defined, of other objects their class."""
    while isinstance(code, partial):
        code = code.func
    module: str = getattr(code, "__module__", None) or type(code).__module__
    return module.partition(".")[0]


def foreign(code: Mapping[str, object]) -> dict[str, str]:
    """Return the package, with its version if it is installed, of each function or class of another one."""
    versions: dict[str, str] = {}
    for point in entry_points(group=GROUP):
        versions[point.module.partition(".")[0]] = distribution(point)
    packages: dict[str, str] = {}
    for name, item in code.items():
        package = package_of(item)
        if package != "trajpred":
            packages[name] = versions.get(package, package)
    return packages


def distribution(point: EntryPoint) -> str:
    """Return name and version of the installed package that names a module, as ``my-lab 1.0``."""
    if point.dist is None:
        return "an unknown package"
    return f"{point.dist.name} {point.dist.version}"


def load_plugins() -> None:
    """Import the modules of all installed plugins, each once.

    Raises: DataError naming the plugin that cannot be imported.
    """
    for point in entry_points(group=GROUP):
        load_plugin(point)


@cache
def load_plugin(point: EntryPoint) -> None:
    """Import the module of a plugin. Raises: DataError naming it and its package."""
    try:
        point.load()
    except (Exception, SystemExit) as error:  # anything that a foreign module raises on import
        plugin = f"plugin {point.name!r} ({point.value}) of {distribution(point)}"
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, DataError):
            reason = error.message
        raise DataError(f"{plugin} cannot be used ({reason}); repair or uninstall its package") from None
