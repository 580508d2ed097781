"""The command line: ``trajpred NAME …`` and ``tools/NAME.py …`` are the same.

Commands import NumPy and torch only when they run, so that help and usage errors are fast.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

import trajpred
from trajpred.cli import data, info, models, replay, scores, visualize
from trajpred.cli.doctor import doctor
from trajpred.data.environment import limit_threads
from trajpred.data.registry import load_plugins
from trajpred.errors import DataError, shortened

Command = Callable[..., int]
#: Functions, in the order in which they are used; their signatures and docstrings are options and help.
COMMANDS: tuple[Command, ...] = (
    data.download,
    data.prepare,
    models.train,
    scores.evaluate,
    models.predict,
    models.calibrate,
    scores.compare,
    visualize.visualize,
    models.export,
    replay.replay,
    info.info,
    doctor,
)
#: Commands that plugins extend; help, version and doctor also work where one is broken.
WITH_PLUGINS = {*COMMANDS} - {doctor}
#: Commands that continue where they were interrupted.
RESUMABLE = ("download", "prepare")


def make_app() -> App:
    """Build the application with all commands."""
    text = (
        "Trajectory prediction for self-driving: train, evaluate, visualize, export. Without arguments, most "
        "commands run on the bundled sample; COMMAND --help explains each."
    )
    app = App(
        name="trajpred",
        help=text,
        help_format="markdown",
        version=trajpred.__version__,
        default_parameter=Parameter(consume_multiple=True, negative_iterable=()),
    )
    for order, function in enumerate(COMMANDS):
        app.command(function, sort_key=order)
    app.register_install_completion_command(help="Install shell completion.", sort_key=len(COMMANDS))
    return app


def main(command: str | None = None, args: Sequence[str] | None = None) -> None:
    """Run one command and exit; without ``command`` it is the first argument.

    Exits with 2 and one sentence on stderr for wrong options and unusable input, with 130 when interrupted.
    """
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed
            setattr(sys, stream, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    limit_threads(1)  # several processes of one thread are faster than several threads
    tokens = list(sys.argv[1:] if args is None else args)
    if command:
        tokens.insert(0, command)
    try:
        run, bound, _ = make_app().parse_args(tokens, exit_on_error=False, print_error=False)
    except UnusedCliTokensError as error:
        _fail(f"unexpected argument {' '.join(error.unused_tokens or [])!r}")
    except CycloptsError as error:
        _fail(str(error))
    if sys.stderr.isatty():  # importing torch takes seconds; the first line that is printed covers this one
        print("loading …", end="\r", file=sys.stderr, flush=True)
    try:
        if run in WITH_PLUGINS:
            load_plugins()
        with _unwinding_on_sigterm(run):
            sys.exit(run(*bound.args, **bound.kwargs))
    except ModuleNotFoundError as error:
        _fail(f"{error}; trajpred doctor says what to install")
    except BrokenPipeError:  # the reader of a pipe has ended, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # no second error at exit
        sys.exit(1)
    except KeyboardInterrupt:
        sentence = "stopped"
        if tokens[0] in RESUMABLE:
            sentence += "; run the same command again to resume"
        print(f"\n{sentence}", file=sys.stderr)
        sys.exit(130)
    except DataError as error:
        _fail(_with_option(error, bound.signature.parameters))
    except OSError as error:
        reason = error.strerror or str(error)
        if error.filename is not None:
            reason = f"{shortened(str(error.filename))}: {reason}"
        _fail(reason)
    except UnicodeDecodeError as error:
        _fail(str(error))


@contextmanager
def _unwinding_on_sigterm(run: Command) -> Iterator[None]:
    """Let SIGTERM end a command like an error, so that unfinished files are removed; training saves first."""
    if run is models.train:
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _with_option(error: DataError, options: Collection[str]) -> str:
    """Return the sentence of an error, which names the option if the field is one."""
    if error.file is not None or error.field is None or error.field not in options:
        return str(error)
    return f"--{error.field.replace('_', '-')}: {error.message}"


def _fail(sentence: str) -> None:
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)
