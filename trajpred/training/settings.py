"""The settings of the train command: its config files, and wrong settings explained in one sentence.

Neither torch nor Lightning is imported here, which takes seconds: config files are read before.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from pydoc import locate
from typing import TYPE_CHECKING, Any, NamedTuple

from trajpred.data.files import require_file
from trajpred.data.plain import read_yaml
from trajpred.errors import DataError
from trajpred.model.pretrained import CHECKPOINTS

if TYPE_CHECKING:
    from jsonargparse import ArgumentError, ArgumentParser

#: What the command takes besides settings.
OPTIONS = ("config", "help", "print_config")
#: Suffixes of config files.
YAML = (".yaml", ".yml")
#: Groups of settings.
GROUPS = ("trainer", "model", "data", "pictures")
#: Settings that are taken from others.
LINKED = {"data.seed": "seed_everything", "record.weights": "weights"}


class Setting(NamedTuple):
    """A setting that a user has written.

    Attributes:
        key: its dotted name, without ``init_args``.
        value: as written; None for a flag without one.
        file: the config file that contains it; None on the command line.
    """

    key: str
    value: Any
    file: Path | None


def check_files(args: Sequence[str]) -> None:
    """Reject config files that cannot be read or contain no settings, and words that are no flags.

    The parser also reads files that are the value of a setting, as ``--model FILE``.

    Raises: DataError.
    """
    for word in spelled(args):
        if _exists(word):
            require_file(Path(word))
            if word.endswith(YAML):
                read_yaml(Path(word))
    for file in _configs(args):
        content = read_yaml(file)
        if not isinstance(content, dict):
            raise DataError("contains no settings, as 'data: {batch_size: 4}'", file=file)
        for group in GROUPS:
            if not isinstance(content.get(group) or {}, dict):
                problem = f"must be settings, as '{group}: {{NAME: VALUE}}', is {content[group]!r}"
                raise DataError(problem, file=file, field=group)
    if args and not args[0].startswith("-"):
        raise DataError(f"unexpected argument {args[0]!r}: settings are written --NAME VALUE")


def _exists(word: str) -> bool:
    """Return whether a word names a file; one that is too long for a name does not."""
    try:
        return Path(word).exists()
    except OSError:
        return False


def explain(error: ArgumentError, parser: ArgumentParser, args: Sequence[str]) -> DataError:
    """Explain in one sentence what ``parser`` rejects in ``args``: a name that no setting has, or a value.

    A wrong name is located and the nearest one suggested; of a value, the parser's own message is shown.
    """
    settings = list(_written(args))
    defaults = dict(parser.get_defaults().items())
    for setting in settings:
        if (problem := _problem_of(setting, settings, defaults)) is not None:
            if setting.file is None:
                return DataError(f"--{setting.key}: {problem}")
            return DataError(problem, file=setting.file, field=setting.key)
    message = str(error)
    problem = " ".join(message.split())
    for file in _configs(args):
        if message == _message_of(parser, file):
            return DataError(problem, file=file)
    return DataError(problem)


def _message_of(parser: ArgumentParser, file: Path) -> str | None:
    """Return what ``parser`` reports about a config file alone."""
    from jsonargparse import ArgumentError

    try:
        parser.parse_path(file)
    except ArgumentError as error:
        return str(error)
    return None


def _problem_of(setting: Setting, settings: Sequence[Setting], defaults: dict[str, Any]) -> str | None:
    """Return what is wrong with the name of a setting, or of a group of settings; None if nothing is.

    ``defaults`` are those of the parser, by dotted name.
    """
    key = setting.key
    prefix = "" if setting.file else "--"
    if key in LINKED:
        return f"is taken from {prefix}{LINKED[key]}: set that instead"
    for group in _groups_above(key):
        default = defaults.get(f"{group}.class_path")
        if default is not None and key != f"{group}.class_path":
            return _problem_of_argument(key.removeprefix(f"{group}."), group, default, settings)
    names = [_plain(name) for name in defaults]
    for name in (*OPTIONS, *names):
        is_setting_or_group = f"{name}.".startswith(f"{key}.")
        is_part = key.startswith(f"{name}.")
        if is_setting_or_group or is_part:
            return None
    return f"no such setting; {_suggest(nearest(key, names), prefix)}"


def _problem_of_argument(name: str, group: str, default: str, settings: Sequence[Setting]) -> str | None:
    """Return what is wrong with an argument of the class of ``group``, ``default`` if none is chosen."""
    path = default
    for setting in settings:
        if setting.key in (group, f"{group}.class_path") and isinstance(setting.value, str):
            path = setting.value
    cls: Any = locate(path) or locate(f"{default.rpartition('.')[0]}.{path}")
    if cls is None:
        return None
    parameters = inspect.signature(cls).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if takes_any or name.partition(".")[0] in (*parameters, "help"):
        return None
    return f"no such setting of {cls.__name__}; {_suggest(nearest(name, parameters))}"


def _groups_above(key: str) -> Iterator[str]:
    """Yield the groups that a dotted key lies in, the innermost first."""
    while "." in key:
        key = key.rpartition(".")[0]
        yield key


def _written(args: Sequence[str]) -> Iterator[Setting]:
    """Yield the settings in the order in which they are applied: config files, then the command line."""
    for file in reversed(_configs(args)):
        if file.is_file():
            for key, value in _items(read_yaml(file)):
                yield Setting(key, value, file)
    words = [*spelled(args), "--"]
    for word, following in pairwise(words):
        if word.startswith("--"):
            value = None if following.startswith("--") else following
            yield Setting(_plain(word[2:].rstrip("+")), value, None)


def spelled(args: Sequence[str]) -> list[str]:
    """Spell ``--name=value`` as the two words ``--name value``."""
    words: list[str] = []
    for word in args:
        if word.startswith("--"):
            words += word.split("=", 1)
        else:
            words.append(word)
    return words


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the most similar of the dotted names ``candidates``, or else the one whose last part is."""
    names = list(candidates)
    if close := get_close_matches(name, names, 1, 0.8):
        return close[0]
    by_last_part = {candidate.rpartition(".")[2]: candidate for candidate in reversed(names)}
    close = get_close_matches(name.rpartition(".")[2], by_last_part, 1, 0.7)
    return by_last_part[close[0]] if close else None


def _suggest(close: str | None, prefix: str = "") -> str:
    return f"did you mean {prefix}{close}?" if close else "train --help_all lists all"


def _configs(args: Sequence[str]) -> list[Path]:
    """List the config files of :func:`configs_first`, the last one first, since it decides."""
    return [Path(word) for before, word in pairwise(args) if before == "--config"][::-1]


def configs_first(args: Sequence[str]) -> list[str]:
    """Move the config files of ``args`` to the front, so that the command line overrides those after it too.

    A run that is resumed has its own config unless another one is given.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", "-c", action="append", nargs="?", default=[])
    options, settings = parser.parse_known_args(args)
    files: list[str | None] = options.config
    if None in files:
        return list(args)  # the parser of the settings reports that the file is missing
    parser.add_argument("--resume", type=Path, nargs="?")
    resume: Path | None = parser.parse_known_args(settings)[0].resume
    if resume is not None and not files:
        run = resume if resume.is_dir() else resume.parent
        if run.name == CHECKPOINTS:
            run = run.parent
        config = run / "config.yaml"
        if config.is_file():
            files = [str(config)]
    words: list[str] = []
    for file in files:
        words += ["--config", str(file)]
    return words + settings


def differences(first: Any, second: Any, name: str) -> list[str]:
    """List the dotted names, below ``name``, of nested settings that differ, without ``init_args``.

    YAML reads a tuple, as defaults may be, back as a list.
    """
    if isinstance(first, dict) and isinstance(second, dict):
        names: list[str] = []
        absent = object()
        for key in dict.fromkeys([*first, *second]):
            names += differences(first.get(key, absent), second.get(key, absent), f"{name}.{key}")
        return names
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)) and len(first) == len(second):
        pairs = zip(first, second, strict=True)
        return [name] if any(differences(*pair, name) for pair in pairs) else []
    return [] if first == second else [_plain(name)]


def _plain(key: str) -> str:
    """Leave out ``init_args``, which both the command line and messages may omit."""
    return key.replace(".init_args", "")


def _items(content: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys and nested values, without ``init_args``; items of a list have its key."""
    if isinstance(content, list):
        for item in content:
            yield from _items(item, prefix)
        return
    if not isinstance(content, dict):
        return
    for name, value in content.items():
        inner = prefix if name == "init_args" else f"{prefix}.{name}".strip(".")
        yield inner, value
        yield from _items(value, inner)
