"""The pages: links lead somewhere, Python runs, and every command is one that the application accepts."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, blocks
from tools.benchmark import app as benchmark
from tools.benchmark_row import app as benchmark_row
from tools.scaling import main as scaling
from tools.ship import main as ship
from trajpred.cli.main import make_app, without_imports

PAGES = sorted(
    page for page in (ROOT / "README.md", *ROOT.glob("[a-z]*/**/*.md")) if "runs" not in page.parts
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
#: Blocks that other tests run: they need a bundle, an installed package, or a training.
ELSEWHERE = (
    "OnboardForecaster",
    "OnboardEncoder",
    "SOURCE = register",
    "class LaneDecoder",
    "import optuna",
    "lerp_",
)
COMMAND = re.compile(r"^(?:\w+=\w+ )*(?:python tools/(\w+)\.py|trajpred (\w+))\b(.*)$")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if target.startswith(("http:", "https:")):
            continue
        path, _, heading = target.partition("#")
        found = (page.parent / path) if path else page
        assert found.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", found.read_text("utf-8"), re.MULTILINE)
            known = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in known, target


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=str)
@pytest.mark.usefixtures("registries")
def test_python_runs(page: Path, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page, one after the other."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks(page, "python"):
        if not any(word in block for word in ELSEWHERE) and ">>>" not in block:
            stores = re.sub(r"/data/av2-store|runs/argoverse1-store", store_path.as_posix(), block)
            exec(compile(stores, str(page), "exec"), names)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every line of a shell block that runs a command of the application, and the page."""
    for page, name in zip(PAGES, NAMES, strict=True):
        for block in blocks(page, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                for part in re.split(r" && ", line):
                    if (found := COMMAND.match(part.strip())) and "…" not in part:
                        tool, command, rest = found.groups()
                        yield name, [tool or command, *shlex.split(rest, comments=True)]


@pytest.mark.parametrize(("page", "tokens"), list(commands()), ids=str)
def test_commands_are_accepted(page: str, tokens: list[str]) -> None:
    """Names and types of all options; of a training, its config files."""
    tokens, _ = without_imports(tokens)
    app = make_app([] if "my-lab" in tokens else tokens)  # a package of the reader's
    app.command(benchmark)
    app.command(benchmark_row)
    for script, name in ((scaling, "scaling"), (ship, "ship")):
        app.command(script, name=name)
    app.parse_args(tokens, exit_on_error=False, print_error=False)
    if tokens[0] == "train":
        files = [word for before, word in pairwise(tokens) if before == "--config"]
        assert all((ROOT / file).is_file() for file in files if file.startswith("configs/"))


def outputs(tokens: list[str]) -> list[str]:
    """Return the relative paths that a command writes with ``--out``; a folder ends with a slash."""
    if "--out" not in tokens:
        return []
    after = takewhile(lambda word: not word.startswith("-"), tokens[tokens.index("--out") + 1 :])
    paths = [path for path in after if not path.startswith("/") and not path.isupper()]
    return [path if Path(path).suffix else f"{path}/" for path in paths]


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="needs a checkout")
def test_git_ignores_what_the_commands_write() -> None:
    written = sorted({path for _, tokens in commands() for path in outputs(tokens)})
    question = ["git", "check-ignore", "--stdin"]
    answer = subprocess.run(question, cwd=ROOT, input="\n".join(written), capture_output=True, text=True)
    assert answer.stdout.split() == written
