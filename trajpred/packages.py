"""Optional packages: whether they are installed, and how to install them."""

from __future__ import annotations

import re
import shlex
from importlib import metadata
from importlib.util import find_spec

from trajpred.errors import DataError


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra, wherever trajpred was installed from."""
    try:
        wanted = metadata.requires("trajpred") or ()
    except metadata.PackageNotFoundError:  # run from its folder without being installed
        return f'pip install -e ".[{extra}]"'
    marked = re.compile(rf"extra == ['\"]{extra}['\"]")
    names = [text.partition(";")[0].strip() for text in wanted if marked.search(text)]
    return f"pip install {shlex.join(names)}"


def has_av2() -> bool:
    """Return whether av2 is installed: it has no wheel for Python 3.13 and newer."""
    return find_spec("av2") is not None


def require_av2() -> None:
    """Raise :class:`DataError` if av2 is not installed."""
    if not has_av2():
        why = "it has no wheel for Python 3.13 and newer"
        raise DataError(f"needs av2, which is not installed ({why}): pip install av2")
