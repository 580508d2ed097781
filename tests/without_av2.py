"""Skip tests that call av2 where it is not installed (it has no wheels for Python 3.13)."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import ModuleType
from typing import Any

import pytest


class _Absent:
    """Stands for every name imported from av2."""

    def __getattr__(self, name: str) -> _Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **options: Any) -> None:
        pytest.skip("needs av2")


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        ours = fullname.partition(".")[0] == "av2"
        return spec_from_loader(fullname, self, is_package=True) if ours else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = _Absent().__getattr__


def skip_its_users() -> None:
    if find_spec("av2") is None:
        sys.meta_path.append(_Finder())
