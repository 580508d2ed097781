"""Extensions by other packages, by kind and name: sources, map formats, metrics and predictors.

A package names a module under the entry point group :data:`GROUP`; every command imports it before it runs,
like modules named by ``--import``. The module calls :func:`register`; its encoders and decoders only need the
import, since they are named by class path. docs/how-to/own-model.md has an example. trajpred's own entries
are registered in the same way.
"""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar, get_args

from trajpred.errors import DataError, require

GROUP = "trajpred.plugins"
Kind = Literal["source", "map format", "metric", "predictor"]
#: The modules that register trajpred's own entries.
OWN = {
    "source": "trajpred.sources",
    "map format": "trajpred.integrations.maps",
    "metric": "trajpred.metrics.registry",
    "predictor": "trajpred.predictors.load",
}
Entry = TypeVar("Entry")


class Registry(UserDict[str, Entry]):
    """Entries of one kind by name. Other packages can replace only their own entries.

    Attributes:
        kind: what the entries are, for messages.
        taken: returns further names reserved for trajpred.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.taken: Callable[[], Collection[str]] = tuple
        super().__init__()

    def __setitem__(self, name: str, entry: Entry) -> None:
        """Add an entry. Raises: DataError if the name is trajpred's or another package's."""
        owner = None
        if package_of(entry) != "trajpred":
            reserve_own_names(self.kind)
        if name in self:
            owner = package_of(self[name])
        elif name in self.taken():
            owner = "trajpred"
        if owner == "trajpred" or owner not in (None, package_of(entry)):
            raise DataError(f"{owner} has a {self.kind} {name!r} already: choose another name")
        super().__setitem__(name, entry)

    def __ior__(self, others: Any) -> Registry[Entry]:  # type: ignore[override,misc]
        """Add entries; ``UserDict`` would not check them."""
        self.update(others)
        return self


#: The entries of each kind.
REGISTRIES: dict[str, Registry[Any]] = {kind: Registry(kind) for kind in get_args(Kind)}


def reserve_own_names(kind: str) -> None:
    """Import trajpred's own entries of a kind, before another package can take their names."""
    if kind in OWN:
        import_module(OWN[kind])
    if kind == "source":
        for point in entry_points(group=GROUP):
            if point.module.startswith("trajpred."):
                load_plugin(point)


def register(kind: Kind, name: str) -> Callable[[Entry], Entry]:
    """Return a decorator that registers a class, a function or a record under a new name.

    By kind: a ``source`` is a :class:`~trajpred.sources.Source`, a ``map format`` a
    :class:`~trajpred.integrations.maps.MapFormat` under the root element of its files, a ``metric`` a
    :class:`~trajpred.metrics.Metric` (:func:`trajpred.metrics.register` also checks it), and a ``predictor``
    makes a :class:`~trajpred.predictors.Predictor`, for example its class.

    Example:
        >>> @register("predictor", "my_predictor")
        ... class MyPredictor(Predictor): ...

    Raises: DataError if there is no such kind, or the name is trajpred's or another package's.
    """
    require(kind in REGISTRIES, "kind", f"must be one of {', '.join(REGISTRIES)}, is {kind!r}")

    def add(entry: Entry) -> Entry:
        REGISTRIES[kind][name] = entry
        return entry

    return add


def package_of(entry: object) -> str:
    """Return the top-level package that defines an entry's code.

    The code of a record is its attribute ``code``; of other objects without a module, their class.
    """
    code = getattr(entry, "code", entry)
    while isinstance(code, partial):
        code = code.func
    module: str = getattr(code, "__module__", None) or type(code).__module__
    return module.partition(".")[0]


def foreign(code: Mapping[str, object]) -> dict[str, str]:
    """Return the package of each function or class from outside trajpred.

    Its version follows if it is installed, else the first digits of its file's SHA-256: ``my_model
    1f2e3d4c``.
    """
    plugins = entry_points(group=GROUP)
    versions = {plugin.module.partition(".")[0]: distribution(plugin) for plugin in plugins}
    packages: dict[str, str] = {}
    for name, item in code.items():
        package = package_of(item)
        if package != "trajpred":
            packages[name] = versions.get(package) or f"{package} {source_digest(package)}".strip()
    return packages


def source_digest(module: str) -> str:
    """Return eight digits of the SHA-256 of an imported module's file; "" if it has none."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not Path(file).is_file():
        return ""
    return sha256(Path(file).read_bytes()).hexdigest()[:8]


def distribution(point: EntryPoint) -> str:
    """Return name and version of the installed package that names a module, such as ``my-lab 1.0``."""
    if point.dist is None:
        return "an unknown package"
    return f"{point.dist.name} {point.dist.version}"


#: How to name each module imported for the user on the command line, by its full name.
imported: dict[str, str] = {}


def import_words() -> list[str]:
    """Return the words that make another command import the modules of this one."""
    return [word for module in imported.values() for word in ("--import", module)]


def note_import(code: type) -> None:
    """Note that the user's settings imported a class, unless commands know its module anyway."""
    plugins = {point.module.partition(".")[0] for point in entry_points(group=GROUP)}
    always_imported = {"trajpred", *plugins, *imported}
    if package_of(code) not in always_imported and code.__module__ not in always_imported:
        imported[code.__module__] = code.__module__


def load_module(name: str) -> None:
    """Import a user's module by name or file; it can import modules beside it.

    Raises: DataError if it is missing, cannot be imported, or shares its file's name with another module.
    """
    file = Path(name)
    is_file = file.suffix == ".py"
    folder = str(file.parent.resolve() if is_file else Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        module = _module_of(file) if is_file else import_module(name)
    except DataError as error:
        raise error.located(name) from None
    except (Exception, SystemExit) as error:  # anything that a foreign module raises on import
        problem = f"cannot be imported ({type(error).__name__}: {error})"
        if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
            problem = f"there is no module of this name: give its file, as --import FOLDER/{name}.py"
        raise DataError(problem, file=name) from None
    imported[module.__name__] = name


def _module_of(file: Path) -> ModuleType:
    """Import a file under its own name without the suffix."""
    name = file.stem
    present = sys.modules.get(name)
    if present is not None:
        is_same = Path(getattr(present, "__file__", None) or "").resolve() == file.resolve()
        if not is_same:
            raise DataError(f"another module is called {name}: rename the file", file=file)
        return present
    if not file.is_file():
        raise DataError("no such file", file=file)
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_plugins() -> None:
    """Import the modules of all installed plugins, each once.

    Raises: DataError naming the plugin that cannot be imported.
    """
    for point in entry_points(group=GROUP):
        load_plugin(point)


@cache
def load_plugin(point: EntryPoint) -> None:
    """Import a plug-in's module. Raises: DataError naming it and its package."""
    try:
        point.load()
    except (Exception, SystemExit) as error:  # anything that a foreign module raises on import
        plugin = f"plugin {point.name!r} ({point.value}) of {distribution(point)}"
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, DataError):
            reason = error.message
        raise DataError(f"{plugin} cannot be used ({reason}); repair or uninstall its package") from None
