"""The command line: ``trajpred NAME …``; the commands of a workflow are also ``tools/NAME.py …``.

Commands import NumPy and torch only when they run, to keep help and usage errors fast.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from typing import Any, get_type_hints

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

import trajpred
from trajpred.cli import data, info, models, replay, scores, visualize
from trajpred.cli.doctor import doctor
from trajpred.data.environment import in_repository, limit_threads
from trajpred.data.registry import load_module, load_plugins
from trajpred.errors import DataError, shortened

Command = Callable[..., int]
#: Functions in order of use; their signatures and docstrings define options and help.
COMMANDS: tuple[Command, ...] = (
    data.download,
    data.prepare,
    models.train,
    scores.evaluate,
    scores.stress,
    models.predict,
    models.calibrate,
    scores.compare,
    visualize.visualize,
    visualize.explore,
    models.export,
    replay.replay,
    info.info,
    doctor,
)
#: Commands that plug-ins extend; help, version and doctor also work if a plug-in is broken.
WITH_PLUGINS = {*COMMANDS} - {doctor}
_FORMAT = warnings.formatwarning
#: Commands that continue where they were interrupted.
RESUMABLE = ("download", "prepare")
#: A path in the repository, unless the repository's address follows already.
_PATH = re.compile(r"\b(docs|configs)/[\w./-]*(?<!\.)(?!\.?[\w/-]| in )")
#: Options that only tables have and need: they imply ``--source table``.
OF_TABLES = ("--preset", "--columns")


def make_app(tokens: Sequence[str] = ()) -> App:
    """Build the application with all commands; the command in ``tokens`` also gets the options of its source.

    Raises: DataError if ``tokens`` name a source that cannot be loaded.
    """
    text = (
        "Trajectory prediction for self-driving: train, evaluate, visualize, export. Without arguments, most "
        "commands run on the bundled sample; COMMAND --help explains each. Every command accepts --import "
        "MODULE_OR_FILE.py, for your own encoders, decoders, metrics or sources."
    )
    app = App(
        name="trajpred",
        help=text,
        help_format="markdown",
        version=trajpred.__version__,
        default_parameter=Parameter(consume_multiple=True, negative_iterable=()),
    )
    for order, function in enumerate(COMMANDS):
        run = _with_source(function, tokens)
        run.__doc__ = _PATH.sub(lambda path: in_repository(path[0]), run.__doc__ or "")
        app.command(run, sort_key=order)
    app.register_install_completion_command(help="Install shell completion.", sort_key=len(COMMANDS))
    return app


def _with_source(command: Command, tokens: Sequence[str]) -> Command:
    """Return a command that also has the options of the source chosen in ``tokens``.

    The command's own options take precedence: a source's option of the same name keeps its default.
    """
    source = _chosen_source(tokens)
    if list(tokens[:1]) != [command.__name__] or source is None:
        return command
    parameters = dict(inspect.signature(command, eval_str=True).parameters)
    if parameters.pop("options", None) is None:
        return command
    from trajpred.sources import find_source

    kind = find_source(source).options
    if kind is None:
        return command
    types = get_type_hints(kind, include_extras=True)
    option_names = [field.name for field in fields(kind) if field.name not in parameters]
    for name in option_names:
        parameters[name] = inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=getattr(kind, name), annotation=types[name]
        )

    @wraps(command)
    def run(*values: Any, **arguments: Any) -> int:
        source_options = {name: arguments.pop(name) for name in option_names if name in arguments}
        arguments.setdefault("source", source)
        return command(*values, **arguments, options=kind(**source_options))

    option_help = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
    run.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n{option_help}"
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return run


def _chosen_source(tokens: Sequence[str]) -> str | None:
    """Return the source named in the words of a command line."""
    options = [token.partition("=")[0] for token in tokens]
    if "--source" in options:
        at = options.index("--source")
        name = tokens[at].partition("=")[2]
        return name or "".join(tokens[at + 1 : at + 2])
    if any(option in OF_TABLES for option in options):
        return "table"
    return None


def main(command: str | None = None, args: Sequence[str] | None = None) -> None:
    """Run one command and exit; without ``command``, the first argument names it.

    Exits with 2 and one sentence on stderr on wrong options or unusable input, with 130 if interrupted.
    """
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed
            setattr(sys, stream, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    warnings.formatwarning = _as_sentence
    limit_threads(1)  # several single-threaded processes are faster than several threads
    tokens = list(sys.argv[1:] if args is None else args)
    if command:
        tokens.insert(0, command)
    try:
        tokens, modules = without_imports(tokens)
        for module in modules:
            load_module(module)
        run, bound, _ = make_app(tokens).parse_args(tokens, exit_on_error=False, print_error=False)
    except DataError as error:
        _fail(_with_option(error, ("source",)))
    except UnusedCliTokensError as error:
        _fail(f"unexpected argument {' '.join(error.unused_tokens or [])!r}")
    except CycloptsError as error:
        _fail(str(error))
    if sys.stderr.isatty():  # importing torch takes seconds; the first printed line covers this one
        print("loading …", end="\r", file=sys.stderr, flush=True)
    try:
        if inspect.unwrap(run) in WITH_PLUGINS:
            load_plugins()
        with _unwinding_on_sigterm(run):
            sys.exit(run(*bound.args, **bound.kwargs))
    except ModuleNotFoundError as error:
        _fail(f"{error}; trajpred doctor says what to install")
    except BrokenPipeError:  # the reader of a pipe has exited, as `| head` does
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


def without_imports(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate the values of every command's option ``--import`` from the other words.

    Raises: DataError if a value is missing.
    """
    words: list[str] = []
    modules: list[str] = []
    pending = list(tokens)
    while pending:
        word = pending.pop(0)
        name, assigned, value = word.partition("=")
        if name != "--import":
            words.append(word)
            continue
        if not assigned:
            value = pending.pop(0) if pending else ""
        if not value or value.startswith("-"):
            raise DataError("--import requires a module or a file")
        modules.append(value)
    return words, modules


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
    """Return an error's sentence, naming the option if the field is one."""
    if error.file is not None or error.field is None or error.field not in options:
        return str(error)
    return f"--{error.field.replace('_', '-')}: {error.message}"


def _as_sentence(message: Warning | str, category: type[Warning], *place: Any, **source: Any) -> str:
    """Format a warning about data without the code location."""
    if category is UserWarning:
        return f"warning: {message}\n"
    return _FORMAT(message, category, *place, **source)


def _fail(sentence: str) -> None:
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)
