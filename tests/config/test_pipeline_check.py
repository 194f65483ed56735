"""A pipeline is checked together with the training configs of its experiments, every fault in its place."""

import json

import pytest
from check_helpers import CONFIGS, messages_of

from modalities_pipeline.config.overlays import parse_override
from modalities_pipeline.exceptions import ConfigError

pytestmark = pytest.mark.usefixtures("without_data")

PIPELINE = """output_dir: outputs
corpora:
  train: {{documents: {{python_docs: train}}}}
  validation: {{documents: {{python_docs: validation}}}}
tokenizer: {{train: {{corpus: train, vocab_size: 512}}, eod_token: <eod>}}
experiments:
  tiny:
    training_config: {training_config}
    train_corpus: train
    validation_corpus: validation
    launcher: {{num_processes: 4}}
    overrides: {overrides}
    generated_text: {{prompts: [The]}}
"""


def _pipeline(**overrides: str) -> str:
    return PIPELINE.format(training_config=CONFIGS / "train_tiny_cpu.yaml", overrides=json.dumps(overrides))


def test_a_pipeline_is_checked_with_the_training_configs_of_its_experiments(check_yaml):
    overrides = {"optimizer.config.lr": "fast", "loss_fn.config.target_kye": "x"}
    assert messages_of(check_yaml(_pipeline(**overrides))) == [
        "12:17: optimizer.config.lr: has to be a number (given: 'fast')",
        "12:48: loss_fn.config.target_kye: unknown key; did you mean 'target_key'?",
    ]


def test_an_experiment_is_checked_for_its_number_of_processes(check_yaml):
    numbers = {"settings.training_target.num_target_tokens": 163840, "model_raw.config.vocab_size": 512}
    report = check_yaml(_pipeline(**numbers))
    assert report.is_ok, report.text()
    assert report.kind == "pipeline"
    assert "Experiment tiny\nTraining report\n  target: 40 steps" in report.text()


def test_faults_of_the_spec_itself_have_their_place(check_yaml):
    report = check_yaml(_pipeline().replace("train_corpus: train", "train_corpus: trian"))
    assert messages_of(report) == [
        "9:5: experiments.tiny.train_corpus: there is no corpus 'trian'; did you mean 'train'?"
    ]


def test_values_of_a_pipeline_are_not_set_from_outside(check_yaml):
    with pytest.raises(ConfigError, match="cannot be set from outside"):
        check_yaml(_pipeline(), overrides=[parse_override("output_dir=x")])
