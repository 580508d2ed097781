"""Dependencies: each one is used, each import is declared, and importing needs no network."""

from __future__ import annotations

import ast
import re
import socket
import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import trajpred
from tests.conftest import ROOT
from tests.offline import ReachedOutError, offline

CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = CONFIG["project"]
EXTRAS = PROJECT["optional-dependencies"]
#: Used without an import statement: TensorBoard through torch, programs, types, the build.
NOT_IMPORTED = {"tensorboard", "ruff", "mypy", "pytest-xdist", "types-pyyaml", "hatchling"}
DOCS = "properdocs properdocs-theme-mkdocs mkdocstrings nbconvert ipykernel ipywidgets"
NOT_IMPORTED |= {*DOCS.split()}
NOT_IMPORTED |= {"latex2mathml", "nlohmann-json"}  # the second has headers for C++
#: Imported but not declared: an optional fuzzer.
NOT_DECLARED = {"atheris"}
GUARDED = socket.socket.connect.__name__ == "guard"


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {normal(Requirement(text).name) for text in requirements} - {"trajpred"}


owners = cache(metadata.packages_distributions)


@cache
def imports(path: Path) -> set[tuple[str, bool]]:
    """Return the top-level modules that a file imports, and whether it imports them when it is loaded."""
    tree, found = ast.parse(path.read_text("utf-8")), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.name.split(".")[0], node in tree.body) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add((node.module.split(".")[0], node in tree.body))
    return found


def distributions(folder: str, loaded: bool = False) -> dict[str, set[str]]:
    """Map each distribution that is imported below a folder to the files that import it."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / folder).rglob("*.py"):
        for module, at_once in imports(path):
            if module in sys.stdlib_module_names or module in ("trajpred", "tests", "tools", "__future__"):
                continue
            if at_once or not loaded:
                owner = normal(owners().get(module, [module])[0])
                found.setdefault(owner, set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_every_import_is_declared() -> None:
    core, optional = names(PROJECT["dependencies"]), set().union(*map(names, EXTRAS.values()))
    package = core | optional - names(EXTRAS["dev"])
    assert {one: files for one, files in distributions("trajpred").items() if one not in package} == {}
    known = core | optional | NOT_DECLARED
    assert {one: files for one, files in distributions("tests").items() if one not in known} == {}
    assert distributions("tools").keys() <= core


def test_every_dependency_is_imported_and_has_both_bounds() -> None:
    package, everywhere = distributions("trajpred"), {*distributions("trajpred"), *distributions("tests")}
    assert names(PROJECT["dependencies"]) - NOT_IMPORTED <= set(package)
    for extra, requirements in EXTRAS.items():
        used = everywhere if extra == "dev" else set(package)
        assert names(requirements) - NOT_IMPORTED <= used, extra
    for text in [*PROJECT["dependencies"], *(one for name in set(EXTRAS) - {"dev"} for one in EXTRAS[name])]:
        assert ">=" in text, text
        assert "<" in text, text


@pytest.mark.parametrize("extra", [name for name in EXTRAS if name != "dev"])
def test_extras_are_imported_when_they_are_needed(extra: str) -> None:
    """Only export and onboard, which are useless without their extra, import it when they are loaded."""
    homes = {"export": ("trajpred/export/", "trajpred/onboard/")}.get(extra, ())
    loaded = distributions("trajpred", loaded=True)
    for name in names(EXTRAS[extra]) - names(PROJECT["dependencies"]):
        assert [file for file in loaded.get(name, ()) if not file.startswith(homes)] == [], name


def test_imports_are_light() -> None:
    """trajpred imports no dependency, what reads, featurises and draws no torch."""
    code = """
import sys, trajpred
assert not {"torch", "matplotlib", "numpy", "pyarrow"} & set(sys.modules)
scene = trajpred.Scenario.from_arrays([[[0.0, 0.0], [1.0, 0.0]]], num_observed=2)
assert repr(scene) and "numpy" in sys.modules and not {"torch", "matplotlib", "pyarrow"} & set(sys.modules)
import trajpred.data.forecast, trajpred.sources, trajpred.store, trajpred.features.lanes, trajpred.cli.main
import trajpred.onboard.forecaster
assert not {"torch", "av2"} & set(sys.modules)
trajpred.draw_scene(scene).savefig(sys.stdout.buffer)
assert not {"torch", "matplotlib.pyplot"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_an_unknown_public_name_is_missing() -> None:
    assert {trajpred.Scenario, trajpred.Ragged}
    assert {*trajpred.__all__, "__version__"} == {*dir(trajpred)}
    with pytest.raises(AttributeError, match="no attribute 'Scene'"):
        _ = trajpred.Scene


def test_modules_are_imported_without_network() -> None:
    """The guard is in place before pytest imports the test modules, and with them the package."""
    assert GUARDED


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("example.org", 443)])
def test_the_network_guard_rejects_other_machines(address: tuple[str, int]) -> None:
    with offline(), socket.socket() as one:
        for connect in (one.connect, one.connect_ex, socket.create_connection):
            with pytest.raises(ReachedOutError, match=address[0]):
                connect(address)


def test_every_document_names_the_same_versions_of_python() -> None:
    """Those that .ci/run resolves the requirements for, the lowest of which is the one that pip demands."""
    resolved = re.findall(r"--python-version ([0-9.]+)", (ROOT / ".ci" / "run").read_text("utf-8"))
    lowest, newest = resolved[0], resolved[-1]
    assert PROJECT["requires-python"] == f">={lowest}"
    for document in ("README.md", "docs/index.md"):
        assert f"Python {lowest} to {newest}" in (ROOT / document).read_text("utf-8"), document
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    [tested] = re.findall(r"python: (\[.*\])", workflow)
    versions = tested.strip('[]"').split('", "')
    assert (versions[0], versions[-1]) == (lowest, newest)
    assert CONFIG["tool"]["mypy"]["python_version"] == lowest
    assert CONFIG["tool"]["ruff"]["target-version"] == "py" + lowest.replace(".", "")
