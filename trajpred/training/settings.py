"""The settings of the train command: its config files, and wrong settings explained in one sentence.

Neither torch nor Lightning is imported here, which takes seconds: names and files are checked before.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from pydoc import locate
from typing import TYPE_CHECKING, Any, Union, cast

import yaml

from trajpred.errors import DataError

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

_KINDS: dict[str, Any] = {"int": int, "float": float, "bool": bool, "NoneType": type(None)}


def _read_types() -> dict[str, Any]:
    """Read the name of every setting, and its type if it is a number or a switch (else None)."""
    types: dict[str, Any] = {}
    for line in Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines():
        name, *kinds = line.split()
        types[name] = None
        if kinds:
            types[name] = Union[tuple(_KINDS[kind] for kind in kinds)]  # noqa: UP007 (kinds are data)
    return types


_ALL_TYPES = _read_types()
#: The names of all settings, without those of the classes that are chosen by their path.
NAMES = tuple(_ALL_TYPES)
#: The types of those that are numbers or switches.
TYPES: dict[str, Any] = {name: kind for name, kind in _ALL_TYPES.items() if kind is not None}
#: Settings that are taken from others: which one, and how it is converted.
LINKED: dict[str, tuple[str, Any]] = {
    "data.seed": ("seed_everything", int),
    "record.weights": ("weights", None),
}
_UNKNOWN_OPTION = re.compile(r"Option '([\w.]+)'")
_NO_CLASS = re.compile(r"dot import path string: (\S+)|Problem with given class_path '(\S+)':\s+module ")
_KEY = re.compile(r'Parser key "([\w.]+)"')
_CLASS = re.compile(r"given class_path '([\w.]+)'")
_VALUE = re.compile(r"(?:Got|Given) value: ?(.*)")
_EXPECTED = re.compile(r"Expected an? (?:<class '(\w+)'>|typing\.Literal\[(.*?)\]|tuple with (\d+) elements)")
#: Types in words.
_WORDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "NoneType": "null",
    "str": "text",
    "dict": "a mapping",
    "list": "a list",
    "tuple": "a list",
}
#: What the command takes besides settings.
OPTIONS = ("config", "help", "print_config")


def check_settings(args: Sequence[str]) -> None:
    """Reject names that no setting has, settings that are taken from others, wrong numbers, unusable files.

    Raises: DataError.
    """
    values: list[str] = []
    for file in _configs(args):
        if file.is_fifo():
            continue  # it can be read once
        values += _checked_values(file)
    if args and not args[0].startswith("-"):
        raise DataError(f"unexpected argument {args[0]!r}: settings are written --NAME VALUE")
    for word in args:
        if word.startswith("--"):
            flag = word.partition("=")[0].rstrip("+")
            if problem := _problem_of(_plain(flag[2:]), "--"):
                raise DataError(f"{flag}: {problem}")
    for flag, value in pairwise(spelled(args)):
        if flag.removeprefix("--") in TYPES:
            values.append(f"{flag}={value}")
    _check_values(values, args)


def _checked_values(file: Path) -> list[str]:
    """Check the names in a config file; return its numbers and switches as ``--NAME=VALUE``."""
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise DataError("contains no settings, as 'data: {batch_size: 4}'", file=file)
    values: list[str] = []
    for key, value in _items(content):
        if problem := _problem_of(key):
            raise DataError(problem, file=file, field=key)
        if key in TYPES:
            text = value
            if not isinstance(value, str):
                text = yaml.safe_dump(value, default_flow_style=True).splitlines()[0]
            values.append(f"--{key}={text}")
    return values


def _check_values(values: Sequence[str], args: Sequence[str]) -> None:
    """Let jsonargparse check numbers and switches, without the classes that take them."""
    from jsonargparse import ArgumentError, ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    for name, kind in TYPES.items():
        parser.add_argument(f"--{name}", type=kind)
    try:
        parser.parse_args(values)
    except ArgumentError as error:
        raise explain(str(error), parser, args) from None


def spelled(args: Sequence[str]) -> list[str]:
    """Spell ``--name=value`` as the two words ``--name value``."""
    words: list[str] = []
    for word in args:
        if word.startswith("--"):
            words += word.split("=", 1)
        else:
            words.append(word)
    return words


def _problem_of(key: str, prefix: str = "") -> str | None:
    """Return what is wrong with the name of a setting, or with a group of settings or a part of one."""
    if key in LINKED:
        return f"is taken from {LINKED[key][0]}: set that instead"
    for name in (*OPTIONS, *NAMES):
        is_setting_or_group = f"{name}.".startswith(f"{key}.")
        is_part = key.startswith(f"{name}.")
        if is_setting_or_group or is_part:
            return None
    return f"no such setting; {_suggest(nearest(key, NAMES), prefix)}"


def explain(problem: str, parser: ArgumentParser, args: Sequence[str]) -> DataError:
    """Turn what jsonargparse reports about the arguments ``args`` into one sentence."""
    key = ".".join(_KEY.findall(problem))
    value = _VALUE.search(problem)
    expected = dict.fromkeys(_in_words(*match) for match in _EXPECTED.findall(problem))
    classes = _CLASS.findall(problem)
    if classes and (option := _UNKNOWN_OPTION.search(problem)):
        key = f"{key}.{option[1]}"
        class_name = classes[0].rpartition(".")[2]
        parameters = inspect.signature(cast(Any, locate(classes[0]))).parameters
        problem = f"no such setting of {class_name}; {_suggest(nearest(option[1], parameters))}"
    elif value and value[1].startswith("NestedArg"):
        problem = f"no class that has this setting is chosen: give --{key} CLASS first"
    elif wrong := _NO_CLASS.search(problem):
        default = parser.get_defaults().get(f"{key}.class_path")
        example = f", as {default} is" if default else ""
        problem = f"{wrong[1] or wrong[2]!r} is not the path of a class{example}"
    elif value and expected:
        problem = f"must be {' or '.join(expected)}, is {value[1]!r}"
    return _located(key, " ".join(problem.rpartition('":')[2].split()), args)


def _in_words(kind: str, values: str, count: str) -> str:
    """Describe an expected type, of which jsonargparse names the kind, the values or their count."""
    if values:
        return f"one of {values}"
    return f"a list of {count} values" if count else _WORDS.get(kind, kind)


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


def _located(key: str, problem: str, args: Sequence[str]) -> DataError:
    """Name the flag that sets ``key``, or the config file that does; neither for an empty key."""
    if not key:
        return DataError(problem)
    for word in args:
        flag = word.partition("=")[0].rstrip("+")
        if flag.startswith("--") and _plain(flag[2:]) == _plain(key):
            return DataError(f"{flag}: {problem}")
    for file in _configs(args):
        if _plain(key) in dict(_items(read_yaml(file))):
            return DataError(problem, file=file, field=key)
    return DataError(problem, field=key)


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
        run = resume if resume.is_dir() else resume.parent.parent
        config = run / "config.yaml"
        if config.is_file():
            files = [str(config)]
    words: list[str] = []
    for file in files:
        words += ["--config", str(file)]
    return words + settings


def read_yaml(file: Path) -> Any:
    """Read a YAML file. Raises: DataError if it is missing or not YAML."""
    try:
        return yaml.safe_load(file.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DataError(f"is not YAML: line {line}: {error.problem}", file=file) from None
    except (RecursionError, ValueError) as error:
        raise DataError(f"cannot be read ({error})", file=file) from None


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
