"""Plugins: the documented package works in every command, and one that cannot be used is named."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import ROOT, SAMPLE, error_of, install_package, output_of, rejects, run
from tests.integrations.map_files import commonroad
from trajpred.cli.doctor import guarded, plugins
from trajpred.data.registry import Registry, import_words, imported, load_module, load_plugin, register
from trajpred.errors import DataError
from trajpred.integrations.maps import FORMATS, MapFormat, read_map_file
from trajpred.model import Forecaster
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore

PAGE = ROOT / "docs" / "how-to" / "own-model.md"


@pytest.fixture
def documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registries: None) -> Iterator[Path]:
    """Install the package of the page; return its config of a model."""
    text = PAGE.read_text("utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    [points] = re.findall(r'```toml\n\[project.entry-points."trajpred.plugins"\]\n(.*?)```', text, re.DOTALL)
    [config] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "my_model.yaml").write_text(config)
    install_package(tmp_path / "site", "my-lab", {"my_model": code}, points)
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield tmp_path / "my_model.yaml"
    load_plugin.cache_clear()
    sys.modules.pop("my_model", None)


def test_predictors_and_metrics_of_a_plugin_are_known_to_commands(
    documented: Path, store_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--store", store_path, "--limit", 2, "--workers", 1, "--checkpoint", "my_predictor"]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [path for path in sys.path if path != str(documented.parent / "site")])
        assert "constant_velocity" in error_of(capsys, "evaluate", *options)
    printed = output_of(capsys, "evaluate", *options)
    assert "maxFDE1" in printed
    assert "K = 6, maxFDE of my-lab 1.0, my_predictor of my-lab 1.0" in " ".join(printed.split())


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_a_plugin_is_trained_and_evaluated(
    documented: Path, store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config", documented, "--data.store", store_path, "--trainer.max_epochs", 1]
    words += ["--trainer.limit_train_batches", 1, "--trainer.accelerator", "cpu", "--pictures.scenes", 0]
    words += ["--trainer.check_val_every_n_epoch", 1, "--trainer.logger.init_args.save_dir", tmp_path]
    assert "Validation, 5 scenarios" in output_of(capsys, "train", *words)
    folder = tmp_path / "forecaster" / "version_0"
    assert run("evaluate", "--checkpoint", folder, "--store", store_path, "--limit", 1) == 0
    assert "minFDE6" in capsys.readouterr().out
    model = Forecaster.load(folder / "checkpoints" / "best.ckpt")
    assert type(model.encoder).__module__ == type(model.decoder).__module__ == "my_model"
    torch.manual_seed(0)
    fresh = Forecaster.build(model.config).state_dict()
    assert any(not torch.equal(weight, fresh[name]) for name, weight in model.state_dict().items())
    [forecast] = load_predictor(folder)([ScenarioStore(store_path, "val")[0]])
    assert forecast.trajectory.shape[1:] == (6, 60, 2)


#: Modules of plugins that cannot be used, and what is said about them.
BROKEN = {
    "import absent_module": "No module named 'absent_module'",
    "import sys; sys.exit(3)": "SystemExit: 3",
    "1 / 0": "ZeroDivisionError: division by zero",
    "from trajpred.data.registry import *; register('loss', 'mine')": "must be one of source, map format",
}
METRIC = "from trajpred.metrics import *; register(Metric('{}', lambda errors: errors.final[:, 0], ''))"
PREDICTOR = "from trajpred.predictors import PREDICTORS\nclass Mine: pass\nPREDICTORS['{}'] = Mine"
SOURCE = "from trajpred.sources import *; register('source', '{}')(Source(print, lambda raw: raw))"
FORMAT = "from trajpred.integrations.maps import *; register('map format', '{}')(MapFormat('X', print))"
MINE = "from trajpred.data.registry import *; register('predictor', '{}')(type('Mine', (), {{}}))"
BUILT_IN = "from trajpred.data.registry import *; register('{}', '{}')(print)"
for code, kind, name in (
    (METRIC.format("minFDE"), "metric", "minFDE"),
    (METRIC.format("count"), "metric", "count"),
    (PREDICTOR.format("argoverse-nano"), "predictor", "argoverse-nano"),
    (MINE.format("lane_following"), "predictor", "lane_following"),
    (SOURCE.format("argoverse2"), "source", "argoverse2"),
    (FORMAT.format("osm"), "map format", "osm"),
    (BUILT_IN.format("predictor", "lane_following"), "predictor", "lane_following"),
    (BUILT_IN.format("source", "table"), "source", "table"),
):
    BROKEN[code] = f"trajpred has a {kind} {name!r} already: choose another name"


@pytest.mark.parametrize("code", BROKEN)
def test_a_plugin_that_cannot_be_used_is_named(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_package(tmp_path, "my-lab", {"broken_lab": code}, "mine = broken_lab")
    monkeypatch.syspath_prepend(tmp_path)
    sentence = error_of(capsys, "info", "argoverse-nano")
    assert "plugin 'mine' (broken_lab) of my-lab 1.0 cannot be used (" in sentence
    assert BROKEN[code] in sentence
    for page in ("--version", "--help"):
        assert run(None, page) == 0
    problems = [text for level, text in guarded(plugins) if level == "problem"]
    assert len(problems) == 1
    assert "of my-lab 1.0 cannot be used" in problems[0]


def test_a_package_replaces_its_own_entries() -> None:
    registry = Registry[Any]("tool")
    registry["saw"] = test_a_plugin_that_cannot_be_used_is_named
    registry["saw"] = install_package
    with pytest.raises(DataError, match="has a tool 'saw' already"):
        registry |= {"saw": Path}
    assert registry == {"saw": install_package}


@pytest.mark.usefixtures("registries")
def test_a_map_format_of_another_package_is_read(tmp_path: Path) -> None:
    path = tmp_path / "map.xml"
    path.write_bytes(commonroad().replace(b"commonRoad", b"roads"))
    rejects("is 'roads', not that of a known map: osm, OpenDRIVE, c", read_map_file, path)
    register("map format", "roads")(MapFormat("Roads", FORMATS["commonRoad"].code))
    assert read_map_file(path).format == "Roads"
    assert len(read_map_file(path).lanes) > 0


def test_own_modules_are_imported_by_name_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is known by its own name, and may import its neighbours."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("trajpred.data.registry.imported", own := dict[str, str]())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "neighbour_of_mine.py").write_text("DIM = 32")
    (tmp_path / "lab" / "file_of_mine.py").write_text("from neighbour_of_mine import DIM")
    (tmp_path / "module_of_mine.py").write_text("DIM = 16")
    for name in ("lab/file_of_mine.py", "lab/file_of_mine.py", "module_of_mine"):
        load_module(name)
    assert (sys.modules["file_of_mine"].DIM, sys.modules["module_of_mine"].DIM) == (32, 16)
    assert own == {"file_of_mine": "lab/file_of_mine.py", "module_of_mine": "module_of_mine"}
    assert import_words() == ["--import", "lab/file_of_mine.py", "--import", "module_of_mine"]
    (tmp_path / "json.py").write_text("")
    (tmp_path / "broken_of_mine.py").write_text("1 / 0")
    for name, sentence in {
        "json.py": "another module is called json: rename the file",
        "broken_of_mine.py": r"cannot be imported \(ZeroDivisionError",
        "absent_of_mine": "there is no module of this name: give its file",
    }.items():
        rejects(f"^{name}: {sentence}", load_module, name)


SOURCE_OF_MINE = """
from trajpred.data.registry import register
from trajpred.sources import Source, argoverse2

def discover(raw):
    if raw.name == "exits":
        raise SystemExit(0)
    return argoverse2.discover(raw)

register("source", "of_mine")(Source(discover, argoverse2.read, ""))
"""


@pytest.mark.usefixtures("registries")
def test_the_processes_of_prepare_import_what_the_command_line_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "source_of_mine.py").write_text(SOURCE_OF_MINE)
    (tmp_path / "exits").mkdir()
    words = ["--import", tmp_path / "source_of_mine.py", "--source", "of_mine", "--store", tmp_path / "store"]
    assert run("prepare", *words, "--raw", SAMPLE, "--workers", 2, "--shard-size", 4) == 0
    assert "train: 10 scenarios" in capsys.readouterr().out
    error = error_of(capsys, "prepare", *words, "--raw", tmp_path / "exits")
    assert "cannot be listed (SystemExit" in error
    imported.pop("source_of_mine")
