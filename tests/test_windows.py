"""Every module can be imported on Windows, which lacks some of Python's modules and signals."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT
from trajpred.data.environment import command_words
from trajpred.store.jobs import wait_for_end

ABSENT = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
PRESENT = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN", "Handlers"}
PRESENT |= {"NSIG", "Signals", "default_int_handler", "getsignal", "raise_signal", "set_wakeup_fd", "signal"}
PRESENT |= {"strsignal", "valid_signals"}


def run_by_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run when a module is imported, except those under a condition."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in (*child.decorator_list, child.args):
                yield from run_by_import(part)
        elif not isinstance(child, ast.Lambda | ast.If | ast.Try):
            yield child
            yield from run_by_import(child)


def missing(code: str) -> set[str]:
    """Return the names of modules and signals that ``code`` uses when imported and Windows lacks."""
    found: set[str] = set()
    for node in run_by_import(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & ABSENT
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names} if node.module == "signal" else set()
            found |= {str(node.module)} & ABSENT | names - PRESENT
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "signal":
            found |= {node.attr} - PRESENT
    return found


def test_every_module_can_be_imported_on_windows() -> None:
    """Test modules too, since pytest imports a test before it can skip it."""
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("trajpred/**/*.py")]
    found = {path: missing(path.read_text("utf-8")) for path in files}
    assert len(found) > 200
    assert not {path: names for path, names in found.items() if names}
    code = "import signal, fcntl\nclass A:\n  def f(self, x=signal.SIGKILL): import pwd"
    assert missing(code) == {"fcntl", "SIGKILL"}


def test_printed_commands_are_quoted_for_the_shells_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single quotes are letters there, and an unquoted < or > redirects."""
    words = ["--out", r"C:\Users\me\a b", "h5py>=3.11,<4", "a&b", "100%", "", "x=X", 'a"b', "~/é"]
    assert "'h5py>=3.11,<4'" in command_words(*words)
    monkeypatch.setattr(sys, "platform", "win32")
    line = command_words(*words)
    found = re.findall(r'"((?:\\"|[^"])*)"|(\S+)', line)
    parsed = [quoted.replace('\\"', '"') or bare for quoted, bare in found]
    assert parsed == words
    outside = re.sub(r'"(?:\\"|[^"])*"', "", line)
    assert not set(outside) & set("<>|&^()%'")
    assert command_words("--raw", ROOT / "a").startswith("--raw ")


def test_a_worker_on_windows_waits_for_its_parent_whose_id_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []

    def wait(*values: object) -> None:
        calls.append(values)
        if len(calls) > 2:
            raise OSError("no such process")

    windows = SimpleNamespace(SYNCHRONIZE=1, INFINITE=-1, WaitForSingleObject=wait)
    windows.OpenProcess = lambda *values: wait(*values) or "handle"
    monkeypatch.setitem(sys.modules, "_winapi", windows)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "getppid", lambda: 7)
    wait_for_end(7)
    assert calls == [(1, False, 7), ("handle", -1)]
    wait_for_end(7)  # it has ended before
    assert len(calls) == 3
