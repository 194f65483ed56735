"""The folder of an experiment can be run again alone, and tells what was run."""

import json
from pathlib import Path

import pytest
import yaml

from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.config.overlays import Override, load_config
from modalities_pipeline.config.resolution import ResolverContext, resolve
from modalities_pipeline.exceptions import OutputExistsError
from modalities_pipeline.experiment_folder import ExperimentFolder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text("a: {b: 1, c: '${a.b}'}  # a comment\n")
    return path


def prepare(config: Path, folder: Path, *overrides: Override) -> None:
    given = load_config(config, overrides)
    ExperimentFolder(folder).prepare(config, given, resolve(given, ResolverContext()), num_seen_steps=0)


def test_a_config_that_stands_alone_is_copied_as_it_is(base, tmp_path):
    prepare(base, tmp_path / "run")
    assert (tmp_path / "run" / "base.yaml").read_text() == base.read_text()
    assert yaml.safe_load((tmp_path / "run" / "base.yaml.resolved").read_text()) == {"a": {"b": 1, "c": 1}}
    assert not (tmp_path / "run" / "base.yaml.original").exists()


def test_a_config_that_needs_others_or_options_is_written_out(base, tmp_path):
    top = tmp_path / "top.yaml"
    top.write_text("extends: base.yaml\nd: 4\n")
    prepare(top, tmp_path / "run", Override("a.b", 2))
    assert load_yaml(tmp_path / "run" / "top.yaml").data == {"a": {"b": 2, "c": "${a.b}"}, "d": 4}
    assert (tmp_path / "run" / "top.yaml.original").read_text() == top.read_text()
    assert yaml.safe_load((tmp_path / "run" / "top.yaml.resolved").read_text())["a"]["c"] == 2


def test_a_config_that_removes_something_is_written_out(base, tmp_path):
    top = tmp_path / "top.yaml"
    top.write_text("extends: base.yaml\na: {c: !remove }\n")
    prepare(top, tmp_path / "run")
    assert load_yaml(tmp_path / "run" / "top.yaml").data == {"a": {"b": 1}}


def test_a_config_in_the_folder_itself_stays(base, tmp_path):
    prepare(base, tmp_path, Override("a.b", 2))
    assert base.read_text() == "a: {b: 1, c: '${a.b}'}  # a comment\n"
    assert yaml.safe_load((tmp_path / "base.yaml.resolved").read_text()) == {"a": {"b": 2, "c": 2}}


def test_the_result_of_an_earlier_attempt_does_not_stay(base, tmp_path):
    folder = ExperimentFolder(tmp_path / "run")
    prepare(base, folder.path)
    folder.write_result("train", "loss", {"num_steps": 3})
    result = json.loads(folder.result_path.read_text())
    assert result == {"num_steps": 3, "train_loss": None, "evaluation_losses": {}}
    prepare(base, folder.path)
    assert not folder.result_path.exists()


@pytest.mark.parametrize("left", ["metrics.jsonl", "result.json", "checkpoints/eid_x-seen_steps_1"])
def test_a_folder_with_another_training_is_refused_unless_that_is_resumed(left, tmp_path):
    folder = ExperimentFolder(tmp_path)
    folder.refuse_other_training("x", resumes=False)
    (tmp_path / left).parent.mkdir(exist_ok=True)
    (tmp_path / left).write_text("{}")
    with pytest.raises(OutputExistsError, match="holds a training already"):
        folder.refuse_other_training("x", resumes=False)
    folder.refuse_other_training("x", resumes=True)


def test_losses_of_the_result_are_the_last_ones(base, tmp_path):
    folder = ExperimentFolder(tmp_path / "run")
    prepare(base, folder.path)
    lines = [
        {"dataloader_tag": "train", "num_train_steps_done": step, "losses": {"train loss avg": 9.0 - step}}
        for step in (1, 2)
    ]
    lines.append({"dataloader_tag": "val", "num_train_steps_done": 2, "losses": {"loss": 5.0}})
    rest = {"metrics": {}, "throughput_metrics": {}}
    folder.metrics_path.write_text("".join(json.dumps({**line, **rest}) + "\n" for line in lines))
    folder.write_result("train", "loss", {})
    assert json.loads(folder.result_path.read_text()) == {"train_loss": 7.0, "evaluation_losses": {"val": 5.0}}
