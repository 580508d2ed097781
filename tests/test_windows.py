"""Every module can be imported on Windows, which lacks some of Python's modules and signals."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT

#: Imports the given modules, which get the modules and signals of Windows, and prints those that fail. Other
#: packages get those of this system: they support Windows themselves.
IMPORTING = """
import builtins, importlib, signal, sys, types
from contextlib import suppress

import pytest

ABSENT = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
PRESENT = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN", "Handlers"}
PRESENT |= {"NSIG", "Signals", "default_int_handler", "getsignal", "raise_signal", "set_wakeup_fd", "signal"}
PRESENT |= {"strsignal", "valid_signals"}
windows = types.ModuleType("signal")
vars(windows).update({name: getattr(signal, name) for name in PRESENT})
found = builtins.__import__

def find(name, globals=None, *rest, **named):
    ours = (globals or {}).get("__name__", "").partition(".")[0] in ("trajpred", "tests")
    if ours and name in ABSENT:
        raise ModuleNotFoundError(f"no {name} on Windows")
    return windows if ours and name == "signal" else found(name, globals, *rest, **named)

builtins.__import__ = find
for name in sys.argv[1:]:
    try:
        with suppress(pytest.skip.Exception):
            importlib.import_module(name)
    except Exception as error:
        print(f"{name}: {error}")
"""


def test_every_module_can_be_imported_on_windows() -> None:
    """Test modules too, since pytest imports a test before it can skip it."""
    files = [
        *ROOT.glob("tests/**/conftest.py"),
        *ROOT.glob("tests/**/test_*.py"),
        *ROOT.glob("trajpred/**/*.py"),
    ]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    command = [sys.executable, "-c", IMPORTING, *(name.removesuffix(".__init__") for name in names)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]
