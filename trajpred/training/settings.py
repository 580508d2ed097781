"""The settings of the train command: config files, and one-sentence explanations of wrong settings.

Neither torch nor Lightning, which take seconds to import, is imported here: config files are read first.
"""

from __future__ import annotations

import inspect
import re
import sys
from argparse import ArgumentError, ArgumentParser
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from pydoc import locate
from typing import TYPE_CHECKING, Any, NamedTuple

from trajpred.data.files import require_file
from trajpred.data.plain import read_yaml
from trajpred.errors import DataError, quoted
from trajpred.model.pretrained import CHECKPOINTS

if TYPE_CHECKING:
    import jsonargparse

#: Groups of settings.
GROUPS = ("trainer", "model", "data", "pictures")
#: Stands for the value of a missing setting.
ABSENT = object()
#: The parser's messages for an unknown setting, in the words of its versions: on the command line, in a file,
#: in a class.
_UNKNOWN = re.compile(r"[Uu]nrecognized arguments: --(?P<word>[^\s=]+)")
_UNKNOWN_IN_GROUP = re.compile(r"Group '(?P<group>\S+)' does not accept (option|nested key) '(?P<name>\S+)'")
_UNKNOWN_OF_CLASS = re.compile(
    r'Parser key "(?P<group>\S+)":.*?class_path \'(?P<cls>\S+)\': '
    r"(Option|Validation failed: Key) '(?P<name>\S+)' is not (accepted|expected)"
)
#: The setting that a message of the parser is about, and a class for it that cannot be found.
_KEY = re.compile(r'Parser key "(?P<key>[^"]+)"')
_NO_CLASS = re.compile(
    r"class_path '(?P<path>\S+)': "
    r"(No module named '(?P<absent>\S+)'|module '(?P<module>\S+)' has no attribute '(?P<name>\S+)')"
)
_UNUSABLE_CLASS = re.compile(r"given class_path '(?P<path>\S+)': (?P<reason>.+?)(?= - | Given value|$)")
_OTHER_CLASS = re.compile(r"Import path (?P<path>\S+) does not correspond to a subclass of (?P<base>\w+)")
_NO_CLASS_PATH = re.compile(
    r"Expected a (config )?path but (?P<word>\S+) .*?Expected a dot import path string: (?P=word)"
)


class Settings(NamedTuple):
    """A command line.

    Attributes:
        configs: its config files; later ones override earlier ones.
        words: the settings, which override the config files.
        weights: the weights to fine-tune; None for a run that starts anew or is resumed.
    """

    configs: list[Path]
    words: list[str]
    weights: str | None


def read_settings(args: Sequence[str]) -> Settings:
    """Divide the command line into its config files and the settings, which override them.

    A resumed run has its own config unless another one is given.

    Raises: DataError if a config file, or a file given as the value of a setting (``--model FILE``), cannot
        be read or contains no settings, or if a word is not a setting.
    """
    if args and not args[0].startswith("-"):
        raise DataError(f"unexpected argument {args[0]!r}: settings are written --NAME VALUE")
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config", "-c", action="append", default=[], type=Path)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--weights")
    try:
        options, words = parser.parse_known_args(args)
    except ArgumentError as error:
        raise DataError(f"{error.argument_name}: {error.message}") from None
    if options.resume is not None and options.weights is not None:
        raise DataError("--weights: a resumed run has its own; give --resume or --weights, not both")
    for word in args:
        _require_readable(word.partition("=")[2] or word)
    configs: list[Path] = options.config
    if options.resume is not None:
        words.append(f"--resume={options.resume}")
        if not configs:
            configs = _config_of(options.resume)
    start = None
    for file in configs:
        start = _read_config(file).get("weights", start)
    if options.weights is not None:
        words.append(f"--weights={options.weights}")
        start = options.weights
    if options.resume is not None or start in (None, "null"):
        return Settings(configs, words, None)
    return Settings(configs, words, str(start))


def _config_of(resumed: Path) -> list[Path]:
    """Return the config of a run, given by its folder or by one of its checkpoints, if it has one."""
    run = resumed if resumed.is_dir() else resumed.parent
    if run.name == CHECKPOINTS:
        run = run.parent
    config = run / "config.yaml"
    return [config] if config.is_file() else []


def _read_config(file: Path) -> dict[str, Any]:
    """Read a config file. Raises: DataError if it cannot be read, or contains no settings."""
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise DataError("contains no settings, as 'data: {batch_size: 4}'", file=file)
    for group in GROUPS:
        if not isinstance(content.get(group) or {}, dict):
            problem = f"must be settings, as '{group}: {{NAME: VALUE}}', is {quoted(content[group])}"
            raise DataError(problem, file=file, field=group)
    return content


def _require_readable(word: str) -> None:
    """Raise DataError if ``word`` names a file that is not regular, or YAML that cannot be read."""
    try:
        exists = Path(word).exists()
    except (OSError, ValueError):  # too long for a name, or not one
        return
    if exists:
        require_file(Path(word))
        if word.endswith((".yaml", ".yml")):
            read_yaml(Path(word))


def explain(error: ArgumentError, parser: jsonargparse.ArgumentParser, configs: Sequence[Path]) -> DataError:
    """Explain the parser's error in one sentence, with the config file and the nearest name."""
    message = _one_line(error)
    file = None
    for config in configs:
        try:
            parser.parse_path(config)
        except ArgumentError as of_file:
            if _one_line(of_file) == message:
                file = config
                break
    names = [name.replace(".init_args", "") for name, _ in parser.get_defaults().items()]
    explanation = _unknown_setting(message, names) or _unusable_class(message)
    if explanation is None:
        return DataError(message, file=file)
    key, problem = explanation
    if file is None:
        return DataError(f"--{key}: {problem}")
    return DataError(problem, file=file, field=key)


def _unknown_setting(message: str, names: Sequence[str]) -> tuple[str, str] | None:
    """Return the setting and the problem if ``message`` is about a setting not among ``names``."""
    if match := _UNKNOWN_OF_CLASS.search(message):
        cls: Any = locate(match["cls"])
        close = nearest(match["name"], inspect.signature(cls).parameters)
        return f"{match['group']}.{match['name']}", f"no such setting of {cls.__name__}; {_suggest(close)}"
    if match := _UNKNOWN_IN_GROUP.search(message):
        key = f"{match['group']}.{match['name']}"
        return key, f"no such setting; {_suggest(nearest(key, names))}"
    if match := _UNKNOWN.search(message):
        close = nearest(match["word"], names)
        return match["word"], f"no such setting; {_suggest(close and f'--{close}')}"
    return None


def _unusable_class(message: str) -> tuple[str, str] | None:
    """Return the setting and the problem if ``message`` is about a class that cannot be used for it."""
    setting = _KEY.search(message)
    if setting is None:
        return None
    key = setting["key"]
    if match := _NO_CLASS.search(message):
        return key, _describe_absent(**match.groupdict())
    if match := _UNUSABLE_CLASS.search(message):
        return key, f"{match['path']} cannot be used: {match['reason']}"
    if match := _OTHER_CLASS.search(message):
        return key, f"{match['path']} is not a {match['base']}"
    if match := _NO_CLASS_PATH.search(message):
        return key, f"no class {match['word']} is known: give its class path, MODULE.CLASS"
    return None


def _describe_absent(path: str, absent: str | None, module: str, name: str) -> str:
    """Describe a class whose module is ``absent``, or which ``module`` lacks."""
    if absent is not None:
        advice = "install the package that has it, or give --import MODULE_OR_FILE.py if it is your own"
        return f"{path} needs the module {absent}, which is not installed: {advice}"
    if path != f"{module}.{name}":
        return f"{path} cannot be imported: module {module!r} has no attribute {name!r}"
    owner = sys.modules[module]
    classes: list[str] = []
    for key in getattr(owner, "__all__", dir(owner)):
        member = getattr(owner, key, None)
        if isinstance(member, type) and member.__module__.startswith(module):
            classes.append(key)
    problem = f"{module} has no class {name}"
    if close := nearest(name, classes):
        return f"{problem}; did you mean {close}?"
    if classes:
        return f"{problem}; it has {', '.join(classes)}"
    return problem


def _one_line(error: ArgumentError) -> str:
    return " ".join(str(error).split())


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the most similar dotted name of ``candidates``, or the one with the most similar last part."""
    names = list(candidates)
    if close := get_close_matches(name, names, 1, 0.8):
        return close[0]
    by_last_part = {candidate.rpartition(".")[2]: candidate for candidate in reversed(names)}
    close = get_close_matches(name.rpartition(".")[2], by_last_part, 1, 0.7)
    return by_last_part[close[0]] if close else None


def _suggest(close: str | None) -> str:
    return f"did you mean {close}?" if close else "train --help_all lists all"


def differences(first: Any, second: Any, name: str) -> dict[str, tuple[Any, Any]]:
    """Return both values of settings that differ, by dotted names below ``name`` without ``init_args``.

    A value missing on one side is :data:`ABSENT`. YAML reads tuples, which defaults may be, as lists.
    """
    if isinstance(first, dict) and isinstance(second, dict):
        differing: dict[str, tuple[Any, Any]] = {}
        for key in dict.fromkeys([*first, *second]):
            inner = name if key == "init_args" else f"{name}.{key}"
            differing |= differences(first.get(key, ABSENT), second.get(key, ABSENT), inner)
        return differing
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)) and len(first) == len(second):
        pairs = zip(first, second, strict=True)
        same = not any(differences(*pair, name) for pair in pairs)
    else:
        same = first == second
    return {} if same else {name: (first, second)}
