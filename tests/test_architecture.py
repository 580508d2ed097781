"""The tree is the data flow: imports point one way, without circles."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import trajpred
from tests.conftest import ROOT

#: Each folder may import from those before it.
ORDER = (
    *("errors", "data", "sources", "store", "features", "nn", "metrics", "model", "onboard", "predictors"),
    *("evaluation", "viz", "training", "export", "integrations", "cli"),
)
#: Folders that may import from fewer.
RECORDS = {"errors", "data"}
ONLY = {"nn": RECORDS, "metrics": RECORDS, "onboard": RECORDS | {"features"}}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "trajpred").rglob("*.py")
}
ENTRY = {"trajpred", "trajpred.__main__"}  # the public names, and the command


def folder(module: str) -> str:
    return module.split(".")[1]


@cache
def imported(path: Path) -> set[str]:
    """Return the modules of the package that a file imports anywhere, except for type checking."""
    found = set()
    tree = ast.parse(path.read_text("utf-8"))
    blocks = (node.body for node in ast.walk(tree) if isinstance(node, ast.If) and is_typing(node))
    types = {id(node) for body in blocks for statement in body for node in ast.walk(statement)}
    for node in ast.walk(tree):
        assert not getattr(node, "level", 0), f"{path} has a relative import"
        if isinstance(node, ast.Import) and id(node) not in types:
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in types:
            for alias in node.names:
                found.add(module_of(node.module, alias.name))
    return (found & MODULES.keys()) - ENTRY


def module_of(module: str, name: str) -> str:
    """Return the module that ``from module import name`` imports, also of a lazy public name."""
    if f"{module}.{name}" in MODULES:
        return f"{module}.{name}"
    if module == "trajpred":
        return str(getattr(getattr(trajpred, name), "__module__", module))
    return module


def is_typing(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@pytest.mark.parametrize("name", ORDER)
def test_imports_point_down_the_data_flow(name: str) -> None:
    allowed = ONLY.get(name, set(ORDER[: ORDER.index(name)])) | {name}
    wrong = {
        (module, other)
        for module, path in MODULES.items()
        if module not in ENTRY and folder(module) == name
        for other in imported(path)
        if folder(other) not in allowed
    }
    assert not wrong


def test_no_circle_of_files() -> None:
    graph = {module: imported(path) - {module} for module, path in MODULES.items()}
    while leaves := {module for module, others in graph.items() if not others & graph.keys()}:
        graph = {module: others for module, others in graph.items() if module not in leaves}
    assert not graph


def test_what_tests_share_is_in_modules_without_tests() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text("utf-8")
        imports = re.findall(r"^(?:from|import) tests\.(?:\w+\.)*test_.*", text, re.MULTILINE)
        assert not imports, path


def test_the_table_of_promises_names_tests_that_exist() -> None:
    page = (ROOT / "tests" / "README.md").read_text("utf-8")
    paths = set(re.findall(r"`([\w/]+(?:/|\.py))`", page))
    assert len(paths) > 15
    assert not [path for path in paths if not (ROOT / "tests" / path).exists()]
