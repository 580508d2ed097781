"""The command line itself: help, spelling of options, errors and exit codes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, SAMPLE, error_of, output_of, run
from trajpred.cli.main import COMMANDS, make_app
from trajpred.data import environment
from trajpred.errors import DataError

NAMES = [function.__name__ for function in COMMANDS]
#: Nothing can be written here.
BELOW_A_FILE = ROOT / "LICENSE" / "out"
#: What is said about it.
NO_FOLDER = f"{ROOT / 'LICENSE'}: is a file, a folder is needed"
SPACING = "error: --every-s: must be a positive number of seconds, is"


def test_tools_of_a_workflow_run_their_command() -> None:
    for name in ("prepare", "train", "evaluate", "predict", "visualize", "export"):
        assert f'main("{name}")' in (ROOT / "tools" / f"{name}.py").read_text()


def test_help_describes_every_command_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    page = output_of(capsys, None)
    for function in COMMANDS:
        docstring = function.__doc__ or ""
        assert function.__name__ in page
        assert docstring.split()[0] in page
        help_text = output_of(capsys, None, function.__name__, "--help")
        for option in (function.__kwdefaults__ or {}).keys() - {"options"}:
            assert f"--{option.replace('_', '-')} " in help_text, (function, option)
            assert f" {option}: " in docstring, (function, option)


def test_help_and_errors_of_usage_and_light_commands_import_no_torch() -> None:
    code = f"""
import io, sys
from contextlib import redirect_stderr, redirect_stdout
from trajpred.__main__ import main
lines = [[], ["--help"], ["--version"]]
lines += [["evalute"], ["evaluate", "--storr", "x"], ["visualize", "--limit", "0"]]
for line in [*lines, *([name, "--help"] for name in {NAMES})]:
    sys.argv[1:] = line
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            main()
        except SystemExit as stop:
            assert stop.code in ((2,) if line in lines[3:] else (0, None)), line
    assert not {{"torch", "numpy"}} & set(sys.modules), line
for line in ["visualize", "--scenario", "x"], ["compare", "--results", "x"], ["replay", "--bundle", "x"]:
    sys.argv[1:] = line
    with redirect_stderr(io.StringIO()):
        try:
            main()
        except SystemExit as stop:
            assert stop.code == 2, line
    assert "torch" not in sys.modules, line
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["visualize", "--scenario", "22159", "0042"], {"scenario": ["22159", "0042"]}),
        (["stress", "--history", "1", "6", "--perturb", "gap"], {"history": [1.0, 6.0], "perturb": ["gap"]}),
        (["evaluate", "--by", "class", "--by", "speed", "--group=all"], {"by": ["class", "speed"]}),
        (["predict", "--batch_size=4", "--mirror"], {"batch_size": 4, "mirror": True}),
        (["predict", "--batch-size", "4", "--mirror=true"], {"batch_size": 4, "mirror": True}),
        (["train", "--data.workers=0", "--config", "a"], {"settings": ("--data.workers=0", "--config", "a")}),
    ],
)
def test_options_are_read_in_every_spelling(line: list[str], expected: dict[str, Any]) -> None:
    _, bound, _ = make_app().parse_args(line, exit_on_error=False, print_error=False)
    assert {name: bound.arguments[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("evalute", 'Unknown command "evalute". Did you mean "evaluate"?'),
        ("evaluate --storr x", "Unknown option: --storr. Did you mean --store?"),
        ("evaluate extra", "unexpected argument 'extra'"),
        ("evaluate --modes six", 'Invalid value for --modes: unable to convert "six" into int'),
        ("evaluate --checkpoint constant_velocity --modes 0", "--modes: must be positive, is 0"),
        ("evaluate --group some", 'Choose from: "focal", "scored", "moving", "all"'),
        ("evaluate --workers 0 --store absent", "error: --workers: must not be 0"),
        ("evaluate --limit 0", 'Invalid value "0" for --limit. Must be >= 1.'),
        ("stress --every-s 1", "--every-s: needs --updates"),
        ("stress --updates 1", "--updates: must be 2 or more"),
        ("evaluate --by color", "--by: 'color' is not one of class, city, manoeuvre, speed, neighbours"),
        ("evaluate --checkpoint folder", "folder: is neither a checkpoint nor"),
        (f"evaluate --out {BELOW_A_FILE}.json", NO_FOLDER),
        (f"stress --out {BELOW_A_FILE}.md", NO_FOLDER),
        (f"predict --out {BELOW_A_FILE}.parquet", NO_FOLDER),
        (f"calibrate --out {BELOW_A_FILE}.ckpt", NO_FOLDER),
        (f"visualize --out {BELOW_A_FILE}", NO_FOLDER),
        (f"export --out {BELOW_A_FILE}", NO_FOLDER),
        (f"download --out {BELOW_A_FILE}", NO_FOLDER),
        ("replay --bundle nothing", "nothing: no such bundle; make one with trajpred export --out nothing"),
        ("replay --out film.avi", "--out: must end in .gif, .mp4 or .jsonl, is film.avi"),
        ("compare --results a --scenes -1", "Must be >= 0."),
        ("compare --results missing", "missing: cannot be read (No such file"),
        ("evaluate --import nothing", "nothing: there is no module of this name: give its file, as"),
        ("evaluate --import folder.py", "folder.py: no such file"),
        ("evaluate --import", "--import requires a module or a file"),
        ("train --weights nothing", "nothing: no such checkpoint; shipped weights: "),
        (f"train --trainer.logger.init_args.save_dir {BELOW_A_FILE}", "LICENSE"),
        ("download", "--out requires an argument"),
        ("prepare --raw nowhere", "must be given with --raw"),
        ("prepare --source argoverse2 --raw folder --store new --every-s 1", "Unknown option: --every-s."),
        ("prepare --source argoverse2-sensor --raw folder --store new --every-s 0", f"{SPACING} 0.0"),
        ("prepare --source commonroad --raw folder --store new --every-s nan", f"{SPACING} nan"),
        ("export --checkpoint nothing", "no such checkpoint"),
        ("export --max_agents 4", "must be given together with --max-lanes"),
        ("prepare --store new --continue-s 1 --teacher nope", "nope: no such checkpoint; shipped weights: "),
        ("train --data.store nowhere", "trajpred prepare"),
        ("train --model.decoder.init_args.horizon 30", "is 30, model.future 60: set only model.future"),
        ("stress --perturb fog", "no-map"),
        ("evaluate --out folder", "--out: must end in .parquet, .json, .md, is folder"),
        ("predict --out predictions.csv", "must end in .parquet"),
        ("explore --raw a.osm --store b", "--store: cannot be combined with --raw"),
        ("info no-such-thing", "no split holds scenario 'no-such-thing'"),
        (f"info {ROOT / 'LICENSE'}", "is not a store, "),
        ("visualize --scenario zz cd", "no split holds scenario 'zz'"),
        ("visualize --raw nowhere", "no such file or folder"),
        (f"visualize --raw {SAMPLE.parent}", "it is not a single scenario either"),
        (f"visualize --raw {SAMPLE} --split training", "has no split 'training', only"),
        (f"visualize --raw {SAMPLE} --store folder", "--store: cannot be combined with --raw"),
        ("visualize --scenario nothing.json", "nothing.json"),
        ("visualize --without AV", "needs --checkpoint"),
        ("visualize --checkpoint lane_following --show joint", "has no joint futures"),
        ("visualize --checkpoint constant_velocity --without AV --out a.gif", "only with pictures"),
        ("visualize --checkpoint x --show updates", "--show: updates works only with the web"),
        ("visualize --checkpoint lane_following --show attention", "'attention': is not reported by lane"),
        ("visualize --out a.webm", "--out: must be a folder or end in .png, .pdf, .svg, .gif, .mp4"),
        ("visualize --view inf", "--view: must be finite, and the radius positive"),
        ("visualize --view 1 2 3", "--view: must be a single radius"),
        ("visualize --paper-mm 5", "Must be >= 20"),
    ],
)
def test_mistakes_get_one_sentence(
    line: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)  # the checkout may be read-only
    assert run(None, *line.split()) == 2
    printed = capsys.readouterr()
    *before, error = printed.err.splitlines()
    assert error.startswith("error: "), (error, printed.out)
    assert message in error, (error, printed.out)
    assert not printed.out, (error, printed.out)
    assert before in ([], ["Seed set to 0"]), before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
@pytest.mark.parametrize(
    "line",
    [
        "info {}",
        "info {}.json",
        "train --config {}",
        "train --model.encoder {}",
        "compare --results {}",
        "evaluate --checkpoint {}.parquet --store {store}",
        "visualize --raw {}.osm",
    ],
)
def test_a_pipe_is_not_read(
    line: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in ("", ".json", ".parquet", ".osm"):
        os.mkfifo(tmp_path / f"pipe{suffix}")
    words = [word.format(tmp_path / "pipe", store=store) for word in line.split()]
    assert error_of(capsys, None, *words).startswith(f"error: {tmp_path / 'pipe'}")


@pytest.mark.parametrize("line", ["evaluate --limit 1 --workers 1 --store {}", "train --print_config"])
def test_standard_output_may_be_closed(line: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, None)
    assert run(None, *(word.format(store) for word in line.split())) == 0


def test_a_terminated_command_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trace(*_: object) -> None:
        assert [*tmp_path.iterdir()], "the unfinished bundle"
        signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("trajpred.export.export_bundle.to_onnx", trace)
    assert run("export", "--limit", 1, "--out", tmp_path / "bundle") == 128 + signal.SIGTERM
    assert not [*tmp_path.iterdir()]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "stopped; run the same command again to resume"),
        (ModuleNotFoundError("No module named 'x'"), 2, "trajpred doctor says what to install"),
        (DataError("is empty", file="a.json"), 2, "error: a.json: is empty"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (BrokenPipeError(), 1, ""),
    ],
)
def test_exit_codes(
    raised: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise raised

    monkeypatch.setattr("trajpred.sources.download.download", fail)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    assert run("download", "--out", tmp_path) == code
    assert message in capfd.readouterr().err


@pytest.mark.parametrize("encoding", ["ascii", "cp932"])
def test_output_whose_encoding_lacks_a_character_loses_no_table(
    encoding: str, store: Path, tmp_path: Path
) -> None:
    code = """
import sys
from trajpred.__main__ import main
try:
    main()
finally:
    print(chr(178), chr(0xDC80))
"""
    line = ["evaluate", "--checkpoint", "constant_velocity", "--plausibility", "--by", "all", "--store"]
    without_utf8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    variables = os.environ | without_utf8 | {"PYTHONIOENCODING": encoding}
    command = [sys.executable, "-c", code, *line, store, "--out", tmp_path / "ä.json"]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=variables)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert (tmp_path / "ä.json").exists()
    assert b"minFDE6" in done.stdout
    assert done.stdout.endswith(b"? ?\n")


@pytest.mark.parametrize("address", ["", "https://code.example/trajpred"])
def test_help_without_a_checkout_says_where_the_pages_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    facts = Message()
    if address:
        facts["Project-URL"] = f"Repository, {address}"
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr("importlib.metadata.metadata", lambda name: facts)
    words = f" in {address}" if address else " in trajpred's repository"
    named = []
    for function in COMMANDS:
        monkeypatch.setattr(function, "__doc__", function.__doc__)
    for tokens in (*([name] for name in NAMES), ["prepare", "--source", "table"]):
        page = output_of(capsys, *tokens, "--help")
        assert output_of(capsys, *tokens, "--help") == page, "once, also where several applications are made"
        printed = " ".join(re.sub("[│╭╮╰╯─]", " ", page).split())
        paths = re.finditer(r"\b(?:docs|configs)/[\w./-]*(?<!\.)", printed)
        named += [printed[path.end() :] for path in paths]
    assert len(named) > 3
    assert not [rest for rest in named if not rest.startswith(words)]
