"""What trajpred is made of: every dependency is used, every import declared, and none of it goes online."""

from __future__ import annotations

import ast
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from trajpred.doctor.requirements import Requirement

from tests.conftest import ROOT
from tests.offline import ReachedOutError, offline

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
#: Used without an import statement: torch writes curves through it; programs; types; before Python 3.11.
UNSEEN = {"tensorboard", "ruff", "mypy", "types-pyyaml", "tomli"}
#: Not in the metadata: part of Python since 3.11.
UNDECLARED = {"tomllib"}


def names(texts: list[str]) -> set[str]:
    found = {Requirement.parse(text).name for text in texts}
    return {normal(name) for name in found if name != "trajpred"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Top-level names that a file imports from elsewhere, and whether that happens as it is loaded."""
    tree = ast.parse(path.read_text("utf-8"))
    loaded = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], id(node) in loaded) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0], id(node) in loaded


def distributions(folder: str, loaded: bool = False) -> dict[str, set[str]]:
    """Distribution that is imported below a folder -> the files that do."""
    owners = metadata.packages_distributions()
    found: dict[str, set[str]] = {}
    for path in (ROOT / folder).rglob("*.py"):
        for module, at_once in imports(path):
            if module in sys.stdlib_module_names or module in ("trajpred", "tests", "__future__"):
                continue
            if at_once or not loaded:
                owner = normal(owners.get(module, [module])[0])
                found.setdefault(owner, set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_every_import_is_declared() -> None:
    core, optional = (
        names(PROJECT["dependencies"]),
        {one for texts in EXTRAS.values() for one in names(texts)},
    )
    package, known = core | optional - names(EXTRAS["dev"]), core | optional | UNDECLARED
    assert {one: files for one, files in distributions("trajpred").items() if one not in package} == {}
    assert {one: files for one, files in distributions("tests").items() if one not in known} == {}
    assert distributions("tools") == {}


def test_every_dependency_is_imported() -> None:
    package, everywhere = distributions("trajpred"), {*distributions("trajpred"), *distributions("tests")}
    assert names(PROJECT["dependencies"]) - UNSEEN <= set(package)
    for extra, texts in EXTRAS.items():
        used = everywhere if extra == "dev" else set(package)
        assert names(texts) - UNSEEN - {"av2"} <= used, extra


@pytest.mark.parametrize("extra", [name for name in EXTRAS if name not in ("dev", "benchmark")])
def test_extras_are_loaded_only_where_they_are_wanted(extra: str) -> None:
    """Only the onboard export, which is nothing without its extra, imports it as it is loaded."""
    homes = {"export": ("trajpred/export/", "trajpred/onboard/")}.get(extra, ())
    for name in names(EXTRAS[extra]):
        stray = [
            file
            for file in distributions("trajpred", loaded=True).get(name, ())
            if not file.startswith(homes)
        ]
        assert stray == [], name


def test_dependencies_have_lower_bounds() -> None:
    for text in PROJECT["dependencies"]:
        assert any(bound.startswith(">=") for bound in Requirement.parse(text).bounds), text


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_importing_trajpred_imports_nothing_else() -> None:
    clock = "time.perf_counter()"
    code = f"import sys, time; t = {clock}; import trajpred; print({clock} - t, *sys.modules)"
    seconds, *modules = python(code).split()
    tops = {name.partition(".")[0] for name in modules}
    assert not tops & {"torch", "matplotlib", "numpy", "pyarrow"} and float(seconds) < 1


def test_a_scenario_takes_neither_torch_nor_matplotlib() -> None:
    modules = python("import sys, trajpred; trajpred.Scenario; print(*sys.modules)").split()
    assert "numpy" in modules and not {"torch", "matplotlib", "pyarrow"} & set(modules)


def test_an_unknown_name_is_missing_as_from_any_module() -> None:
    import trajpred

    assert {trajpred.Scenario, trajpred.Ragged} and set(trajpred.__all__) <= {*dir(trajpred), *trajpred._HOME}
    with pytest.raises(AttributeError, match="no attribute 'Scene'"):
        _ = trajpred.Scene


def test_no_module_goes_online_when_imported() -> None:
    code = """
import importlib, pkgutil
from tests.offline import offline
import trajpred
with offline():
    for module in pkgutil.walk_packages(trajpred.__path__, "trajpred."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                assert error.name.partition(".")[0] == "av2", error
            print(module.name)
"""
    assert len(python(code).split()) > 100


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("example.org", 443)])
def test_the_guard_sees_who_reaches_out(address: tuple[str, int]) -> None:
    with offline(), socket.socket() as one:
        for connect in (one.connect, one.connect_ex, socket.create_connection):
            with pytest.raises(ReachedOutError, match=address[0]):
                connect(address)


def test_the_guard_lets_this_machine_talk_to_itself() -> None:
    with offline(), socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(("localhost", server.getsockname()[1])) as one:
            one.sendall(b"x")
        assert server.accept()[0].recv(1) == b"x"
