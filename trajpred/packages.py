"""Optional packages: what to install for them."""

from __future__ import annotations

import re
import shlex
from importlib import metadata


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra, wherever trajpred was installed from."""
    try:
        wanted = metadata.requires("trajpred") or ()
    except metadata.PackageNotFoundError:  # run from its folder without being installed
        return f'pip install -e ".[{extra}]"'
    marked = re.compile(rf"extra == ['\"]{extra}['\"]")
    names = [text.partition(";")[0].strip() for text in wanted if marked.search(text)]
    return f"pip install {shlex.join(names)}"
