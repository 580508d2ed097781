"""Wrong settings of the train command: one sentence with the flag or file and the nearest name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pytorch_lightning.cli import LightningArgumentParser

from tests.conftest import ROOT
from trajpred.errors import DataError
from trajpred.training.train import TrainCLI, train

CPU = ROOT / "configs" / "trainer" / "cpu.yaml"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("--model.encoder.init_args.layer 3", "layer: no such setting of SceneEncoder; did you mean layers?"),
        ("--model.encoder.layers=x", "--model.encoder.layers: must be an integer, is 'x'"),
        ("--model.encoder Scene", "--model.encoder: 'Scene' is not the path of a class, as trajpred.model."),
        ("--model.scene.features.max_agent 3", "did you mean --model.scene.features.max_agents?"),
        ("--trainer.max_epochs ten", "--trainer.max_epochs: must be an integer or null, is 'ten'"),
        ("--data.window=[50]", "--data.window: must be a list of 2 values or null, is '[50]'"),
        ("--trainer.precision 17", "--trainer.precision: must be one of 64, 32, 16 or "),
        ("--trainer.precision 64", "--trainer.precision 64: must be one of 32-true, 16-mixed, "),
        ("--trainer.logger.init_args.nam x", "no such setting of RunLogger; did you mean name?"),
        ("--trainer.strategy.init_args.foo x", "give --trainer.strategy CLASS first"),
        ("--trainer.accelerator cup", "`accelerator='cup'`"),
        ("--trainer.devices x", "`devices`"),
        ("--batch_size 3", "--batch_size: no such setting; did you mean --data.batch_size?"),
        (f"--config {CPU} --data.seed 1", "--data.seed: is taken from seed_everything: set that instead"),
        ("--seed_everything -1", "'seed_everything': must be 0 to 4294967295, is -1"),
        ("--trainer.accumulate_grad_batches 0", "'trainer.accumulate_grad_batches': must be positive, is 0"),
        ("--model.loss.others -1", "'others': must be 0 or more and finite, is -1"),
        ("--nonsense", "--nonsense: no such setting; train --help_all lists all"),
        ("extra", "unexpected argument 'extra'"),
        ("--resume", "--resume: expected one argument"),
        ("--config missing.yaml", "missing.yaml: cannot be read (No such file"),
    ],
)
def test_a_wrong_setting_is_answered_in_one_sentence(settings: str, sentence: str) -> None:
    with pytest.raises(DataError) as error:
        train(settings.split())
    assert sentence in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("data: {batch_sise: 3}", "field 'data.batch_sise': no such setting; did you mean data.batch_size?"),
        (
            "model: {encoder: {class_path: SceneEncoder, init_args: {layer: 3}}}",
            "field 'model.encoder.layer': no such setting of SceneEncoder; did you mean layers?",
        ),
        (
            "trainer: {callbacks: [{class_path: EMAWeightAveraging, init_args: {decy: 0.9}}]}",
            "field 'trainer.callbacks.decy': no such setting of EMAWeightAveraging; did you mean decay?",
        ),
        ("trainer: {max_epochs: ten}", "field 'trainer.max_epochs': must be an integer or null, is 'ten'"),
        ("trainer: [", "is not YAML: line 1: "),
        ("[" * 5000, "cannot be read (maximum recursion depth"),
        ("trainer: !!python/object/apply:os.getcwd []", "is not YAML: line 1: could not determine"),
        ("", "contains no settings"),
    ],
)
def test_a_wrong_key_names_its_config_file(content: str, sentence: str, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.yaml", tmp_path / "wrong.yaml"
    right.write_text("trainer: {max_epochs: 1}")
    wrong.write_text(content)
    with pytest.raises(DataError) as error:
        train(["--config", str(right), f"--config={wrong}"])
    assert str(error.value).startswith(f"{wrong}") and sentence in str(error.value)


def names_in(content: dict[str, Any], start: str = "") -> list[str]:
    """List the names of settings, without those of classes that are chosen by their path."""
    found = []
    for name, value in content.items():
        group = isinstance(value, dict) and "class_path" not in value
        found += names_in(value, f"{start}{name}.") if group else [f"{start}{name}"]
    return found


def plain(kind: Any) -> list[str]:
    """Name the members of a type that has numbers and switches only."""
    kinds = get_args(kind) or (kind,)
    found = [one.__name__ for one in kinds if one in (int, float, bool, type(None))]
    return found if kind is not None and len(found) == len(kinds) else []


def test_names_and_types_are_those_of_the_parser(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an intended change, run ``TRAJPRED_PIN=1 pytest tests/training/test_settings.py``."""
    parse, types = TrainCLI.parse_arguments, dict[str, Any]()

    def keep(self: TrainCLI, parser: LightningArgumentParser, args: list[str]) -> None:
        types.update({action.dest: getattr(action, "_typehint", None) for action in parser._actions})
        parse(self, parser, args)

    monkeypatch.setattr(TrainCLI, "parse_arguments", keep)
    with pytest.raises(SystemExit):
        train(["--print_config"])
    names = names_in(yaml.safe_load(capsys.readouterr().out))
    found = "".join(" ".join([name, *plain(types[name])]) + "\n" for name in names)
    file = ROOT / "trajpred" / "training" / "settings.txt"
    if os.environ.get("TRAJPRED_PIN"):
        file.write_text(found, newline="\n")
    assert file.read_text("utf-8") == found


def test_wrong_settings_are_noticed_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("data: {batch_sise: 3}")
    code = f"""
import sys
from trajpred.cli.main import main
wrong = ["--config", {str(tmp_path / "wrong.yaml")!r}]
for words in ["--trainer.max_epoch", "3"], wrong, ["config.yaml"], ["--data.batch_size=x"]:
    try:
        main("train", words)
    except SystemExit as stop:
        assert stop.code == 2 and "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    errors = done.stderr.splitlines()
    assert [error.rpartition(": ")[2] for error in errors] == [
        "no such setting; did you mean --trainer.max_epochs?",
        "no such setting; did you mean data.batch_size?",
        "settings are written --NAME VALUE",
        "must be an integer, is 'x'",
    ], done.stderr


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"data": {"store": "a\0b"}}, "these settings cannot be used: embedded null"),
        ({"model": {"optimizer": {"learning_rate": float("nan")}}}, "learning_rate"),
    ],
)
def test_values_that_only_yaml_can_write_are_answered_in_one_sentence(
    settings: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(DataError, match=sentence):
        train(["--config", str(tmp_path / "config.yaml")])


@pytest.mark.parametrize(
    "words",
    [
        "--trainer.max_epochs 3 --config {first} --config {second} --resume {run}",
        "--resume={run} --config={first} --trainer.max_epochs=3 -c {second}",
    ],
)
def test_the_command_line_overrides_configs_wherever_they_are_named(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("{trainer: {max_epochs: 1}, data: {batch_size: 5}, resume: null}\n")
    second.write_text("{trainer: {max_epochs: 2}, data: {batch_size: 6}}\n")
    with pytest.raises(SystemExit) as end:
        train([*words.format(first=first, second=second, run=tmp_path).split(), "--print_config"])
    found = yaml.safe_load(capsys.readouterr().out)
    assert end.value.code == 0 and found["resume"] == str(tmp_path)
    assert (found["trainer"]["max_epochs"], found["data"]["batch_size"]) == (3, 6)
