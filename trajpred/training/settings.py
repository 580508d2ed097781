"""The settings of the train command: its config files, and wrong settings explained in one sentence.

Neither torch nor Lightning is imported here, which takes seconds: config files are read before.
"""

from __future__ import annotations

import inspect
import re
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
    from jsonargparse import ArgumentError, ArgumentParser

#: Groups of settings.
GROUPS = ("trainer", "model", "data", "pictures")
#: Stands for the value of a setting that is not there.
ABSENT = object()
#: What the parser says of a name that no setting has: on the command line, in a group of a file, of a class.
_UNKNOWN = re.compile(r"unrecognized arguments: --(?P<word>[^\s=]+)")
_UNKNOWN_IN_GROUP = re.compile(r"Group '(?P<group>\S+)' does not accept option '(?P<name>\S+)'")
_UNKNOWN_OF_CLASS = re.compile(
    r'Parser key "(?P<group>\S+)":.*?class_path \'(?P<cls>\S+)\': Option \'(?P<name>\S+)\' is not accepted'
)


class Settings(NamedTuple):
    """A command line.

    Attributes:
        configs: its config files, later ones override earlier ones.
        words: the settings, which override them.
        weights: what the run is fine-tuned from; None of a run that starts anew or is resumed.
    """

    configs: list[Path]
    words: list[str]
    weights: str | None


def read_settings(args: Sequence[str]) -> Settings:
    """Divide the command line into its config files and the settings, which override them.

    A run that is resumed has its own config unless another one is given.

    Raises: DataError if a config file, or a file that is the value of a setting (as ``--model FILE``), cannot
        be read or contains no settings, or a word is not a setting.
    """
    if args and not args[0].startswith("-"):
        raise DataError(f"unexpected argument {args[0]!r}: settings are written --NAME VALUE")
    configs: list[Path] = []
    settings: list[str] = []
    resumed: Path | None = None
    weights: list[Any] = []
    pending = list(args)
    while pending:
        word = pending.pop(0)
        name, assigned, value = word.partition("=")
        _require_readable(value if assigned else name)
        if name == "--weights" and (assigned or pending):
            weights.append(value if assigned else pending[0])
        if name not in ("--config", "-c", "--resume") or not (assigned or pending):
            settings.append(word)  # the parser of the settings reports a missing value
            continue
        value = value if assigned else pending.pop(0)
        if name == "--resume":
            resumed = Path(value)
            settings.append(f"--resume={value}")
        else:
            configs.append(Path(value))
    if resumed is not None and not configs:
        folder = resumed if resumed.is_dir() else resumed.parent
        run = folder.parent if folder.name == CHECKPOINTS else folder
        configs = [file for file in [run / "config.yaml"] if file.is_file()]
    in_configs: list[Any] = []
    for file in configs:
        content = read_yaml(file)
        if not isinstance(content, dict):
            raise DataError("contains no settings, as 'data: {batch_size: 4}'", file=file)
        for group in GROUPS:
            if not isinstance(content.get(group) or {}, dict):
                problem = f"must be settings, as '{group}: {{NAME: VALUE}}', is {quoted(content[group])}"
                raise DataError(problem, file=file, field=group)
        if "weights" in content:
            in_configs.append(content["weights"])
    start = [None, *in_configs, *weights][-1]
    has_start = resumed is None and start not in (None, "null")
    return Settings(configs, settings, str(start) if has_start else None)


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


def explain(error: ArgumentError, parser: ArgumentParser, configs: Sequence[Path]) -> DataError:
    """Explain what the parser rejects in one sentence, with the config file and the nearest name."""
    message = _one_line(error)
    file = next((file for file in configs if message == _message_of(parser, file)), None)
    names = [name.replace(".init_args", "") for name, _ in parser.get_defaults().items()]
    if match := _UNKNOWN_OF_CLASS.search(message):
        cls: Any = locate(match["cls"])
        key = f"{match['group']}.{match['name']}"
        close = nearest(match["name"], inspect.signature(cls).parameters)
        problem = f"no such setting of {cls.__name__}; {_suggest(close)}"
    elif match := _UNKNOWN_IN_GROUP.search(message):
        key = f"{match['group']}.{match['name']}"
        problem = f"no such setting; {_suggest(nearest(key, names))}"
    elif match := _UNKNOWN.search(message):
        key = match["word"]
        close = nearest(key, names)
        problem = f"no such setting; {_suggest(close and f'--{close}')}"
    else:
        advice = "; --import MODULE_OR_FILE.py imports it" if "No module named" in message else ""
        return DataError(message + advice, file=file)
    if file is None:
        return DataError(f"--{key}: {problem}")
    return DataError(problem, file=file, field=key)


def _message_of(parser: ArgumentParser, file: Path) -> str | None:
    """Return what ``parser`` reports about a config file alone."""
    from jsonargparse import ArgumentError

    try:
        parser.parse_path(file)
    except ArgumentError as error:
        return _one_line(error)
    return None


def _one_line(error: ArgumentError) -> str:
    return " ".join(str(error).split())


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the most similar of the dotted names ``candidates``, or else the one whose last part is."""
    names = list(candidates)
    if close := get_close_matches(name, names, 1, 0.8):
        return close[0]
    by_last_part = {candidate.rpartition(".")[2]: candidate for candidate in reversed(names)}
    close = get_close_matches(name.rpartition(".")[2], by_last_part, 1, 0.7)
    return by_last_part[close[0]] if close else None


def _suggest(close: str | None) -> str:
    return f"did you mean {close}?" if close else "train --help_all lists all"


def differences(first: Any, second: Any, name: str) -> dict[str, tuple[Any, Any]]:
    """Return both values, by dotted names below ``name`` without ``init_args``, of settings that differ.

    A value that one side lacks is :data:`ABSENT`. YAML reads a tuple, as defaults may be, back as a list.
    """
    if isinstance(first, dict) and isinstance(second, dict):
        found: dict[str, tuple[Any, Any]] = {}
        for key in dict.fromkeys([*first, *second]):
            inner = name if key == "init_args" else f"{name}.{key}"
            found |= differences(first.get(key, ABSENT), second.get(key, ABSENT), inner)
        return found
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)) and len(first) == len(second):
        pairs = zip(first, second, strict=True)
        same = not any(differences(*pair, name) for pair in pairs)
    else:
        same = first == second
    return {} if same else {name: (first, second)}
