"""Wrong settings of the train command: one sentence with the flag or file and the nearest name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT, rejects
from trajpred.training.train import train

CPU = ROOT / "configs" / "trainer" / "cpu.yaml"
#: Small files that stand for 2**60 values.
LISTS = "\n".join(["a0: &a0 [1]", *(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]" for i in range(60))])
MERGED = LISTS.replace("[1]", "{x: 1}").replace("[", "{<<: [").replace("]", "]}")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("--model.encoder.init_args.layer 3", "layer: no such setting of SceneEncoder; did you mean layers?"),
        ("--model.encoder.layers=x", "\"layers\": Expected a <class 'int'>. Got value: x"),
        ("--model.encoder Scene", "--model.encoder: no class Scene is known: give its class path"),
        ("--model.encoder trajpred.model.SceneEncode", "no class SceneEncode; did you mean SceneEncoder?"),
        (
            "--trainer.logger.class_path trajpred.errors.AbsentWriter",
            "--trainer.logger: trajpred.errors has no class AbsentWriter; it has DataError",
        ),
        ("--trainer.logger.class_path trajpred.cli.Absent", "--trainer.logger: trajpred.cli has no class"),
        (
            "--trainer.callbacks absent_package.callbacks.Callback",
            "--trainer.callbacks: absent_package.callbacks.Callback needs the module absent_package, which",
        ),
        (
            "--trainer.callbacks.class_path pytorch_lightning.callbacks.EarlyStopping",
            "--trainer.callbacks: pytorch_lightning.callbacks.EarlyStopping cannot be used: ",
        ),
        (
            "--trainer.logger.class_path pytorch_lightning.callbacks.Timer",
            "--trainer.logger: pytorch_lightning.callbacks.Timer is not a Logger",
        ),
        ("--trainer.strategy deepspeed", "these settings need a package: pip install deepspeed"),
        ("--model.scene.features.max_agent 3", "did you mean --model.scene.features.max_agents?"),
        ("--model.history=0", "'history': must be positive"),
        ("--trainer.precision 17", "Expected a typing.Literal[64, 32, 16] "),
        ("--trainer.precision 64", "--trainer.precision 64: must be one of 32-true, 16-mixed, "),
        ("--trainer.logger.init_args.nam x", "no such setting of RunLogger; did you mean name?"),
        ("--trainer.strategy.init_args.foo x", '"trainer.strategy": Does not validate against'),
        ("--trainer.accelerator cup", "`accelerator='cup'`"),
        ("--trainer.devices x", "`devices`"),
        ("--batch_size 3", "--batch_size: no such setting; did you mean --data.batch_size?"),
        (f"--config {CPU} --data.seed 1", 'Linked "data.seed" must be given via "seed_everything"'),
        ("--seed_everything -1", "'seed_everything': must be 0 to 4294967295, is -1"),
        ("--trainer.accumulate_grad_batches 0", "'trainer.accumulate_grad_batches': must be positive, is 0"),
        ("--best.monitor val/moving/minFED6", "no validation logs 'val/moving/minFED6': give val/moving/min"),
        ("--model.loss.others -1", "'others': must be 0 or more and finite, is -1"),
        ("--nonsense", "--nonsense: no such setting; train --help_all lists all"),
        ("extra", "unexpected argument 'extra'"),
        ("--resume", "--resume: expected one argument"),
        ("--config missing.yaml", "missing.yaml: cannot be read (No such file"),
    ],
)
def test_a_wrong_setting_is_answered_in_one_sentence(settings: str, sentence: str) -> None:
    assert sentence in str(rejects("", train, settings.split()))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("data: {batch_sise: 3}", "field 'data.batch_sise': no such setting; did you mean data.batch_size?"),
        (
            "model: {encoder: {class_path: trajpred.model.SceneEncoder, init_args: {layer: 3}}}",
            "field 'model.encoder.layer': no such setting of SceneEncoder; did you mean layers?",
        ),
        (
            "trainer: {logger: [{class_path: absent_package.Logger}]}",
            "field 'trainer.logger': absent_package.Logger needs the module absent_package, which is not",
        ),
        (
            "trainer: {callbacks: [{class_path: EMAWeightAveraging, init_args: {decy: 0.9}}]}",
            "field 'trainer.callbacks.decy': no such setting of EMAWeightAveraging; did you mean decay?",
        ),
        ("data: {batch_size: ten}", ": Parser key \"data.batch_size\": Expected a <class 'int'>"),
        ("trainer: [", "is not YAML: line 1: "),
        (LISTS, "has more than 100,000 values"),
        (MERGED, "has more than 100,000 values"),
        ("data: &data {stores: *data}", "or contains itself"),
        ("[" * 5000, "cannot be read (maximum recursion depth"),
        ("trainer: !!python/object/apply:os.getcwd []", "is not YAML: line 1: could not determine"),
        ("", "contains no settings"),
        ("data: 5", "field 'data': must be settings, as 'data: {NAME: VALUE}', is 5"),
    ],
)
def test_a_wrong_key_names_its_config_file(content: str, sentence: str, tmp_path: Path) -> None:
    right = tmp_path / "right.yaml"
    wrong = tmp_path / "wrong.yaml"
    right.write_text("trainer: {max_epochs: 1}")
    wrong.write_text(content)
    error = rejects("", train, ["--config", str(right), f"--config={wrong}"])
    assert str(error).startswith(f"{wrong}")
    assert sentence in str(error)


def test_the_file_of_a_part_of_the_settings_is_checked_too(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(LISTS)
    rejects(r"model\.yaml: has more than 100,000 values", train, ["--model", str(tmp_path / "model.yaml")])


def test_unusable_config_files_are_noticed_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("data: {")
    code = f"""
import sys
from trajpred.cli.main import main
wrong = ["--config", {str(tmp_path / "wrong.yaml")!r}]
for words in ["--config", "missing.yaml"], wrong, ["config.yaml"]:
    try:
        main("train", words)
    except SystemExit as stop:
        assert stop.code == 2 and "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    missing, not_yaml, no_flag = done.stderr.splitlines()
    assert "missing.yaml: cannot be read" in missing, done.stderr
    assert "wrong.yaml: is not YAML: line 1" in not_yaml
    assert no_flag.endswith("settings are written --NAME VALUE")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"data": {"store": "a\0b"}}, "these settings cannot be used"),
        ({"model": {"optimizer": {"learning_rate": float("nan")}}}, "learning_rate"),
    ],
)
def test_values_that_only_yaml_can_write_are_answered_in_one_sentence(
    settings: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    rejects(sentence, train, ["--config", str(tmp_path / "config.yaml")])


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
    first = tmp_path / "first.yaml"
    second = tmp_path / "second.yaml"
    first.write_text("{trainer: {max_epochs: 1}, data: {batch_size: 5}, resume: null}\n")
    second.write_text("{trainer: {max_epochs: 2}, data: {batch_size: 6}}\n")
    with pytest.raises(SystemExit) as end:
        train([*words.format(first=first, second=second, run=tmp_path).split(), "--print_config"])
    config = yaml.safe_load(capsys.readouterr().out)
    assert end.value.code == 0
    assert config["resume"] == str(tmp_path)
    assert (config["trainer"]["max_epochs"], config["data"]["batch_size"]) == (3, 6)
