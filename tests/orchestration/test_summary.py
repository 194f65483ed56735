"""The summary tells from manifests what there is, what is missing, and what no longer belongs together."""

import json
from pathlib import Path

import pytest

from modalities_pipeline.data.manifest import BuildResult, StageIdentity, digest_of, record
from modalities_pipeline.inference.samples import GeneratedSample, write_samples
from modalities_pipeline.orchestration.spec import PipelineSpec, load_pipeline_spec
from modalities_pipeline.orchestration.summary import summary_lines
from modalities_pipeline.orchestration.training_run import TrainingRun, set_current_run

SPEC = """\
output_dir: outputs
corpora: {train: {documents: {python_docs: train}}}
tokenizer: {train: {corpus: train, vocab_size: 300}, eod_token: <eod>}
experiments:
  tiny:
    training_config: training.yaml
    train_corpus: train
    validation_corpus: train
    generated_text: {prompts: ["The"]}
"""


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    """A spec of which nothing has been made."""
    (tmp_path / "training.yaml").write_text(
        "settings: {paths: {train_dataset_path: a.pbin, validation_dataset_path: b.pbin}}\n"
    )
    (tmp_path / "pipeline.yaml").write_text(SPEC)
    return load_pipeline_spec(tmp_path / "pipeline.yaml")


def _text(spec: PipelineSpec, since: int | None = None) -> str:
    return "\n".join(summary_lines(spec, since))


def _record(path: Path, inputs: dict[str, str], details: dict[str, object] | None = None) -> None:
    counts = {"num_parameters": 5, "num_tokens": 6, "num_steps": 7, "num_processes": 2, "train_loss": 4.25}
    record(StageIdentity("stage", "1", {}, inputs), path, BuildResult(dict(counts), details or {}), 1.0)


def _train(spec: PipelineSpec, name: str) -> Path:
    """A finished run whose checkpoint holds its own name."""
    root = spec.layout.trained_checkpoint("tiny")
    checkpoint = root / name / "checkpoints" / "last"
    checkpoint.mkdir(parents=True)
    (checkpoint / "weights").write_text(name)
    result = {"num_steps": 7, "num_tokens": 6, "num_parameters": 5, "train_loss": 4.25, "evaluation_losses": {}}
    result |= {"checkpoint_folder_path": str(checkpoint), "duration_in_s": 1.0, "world_size": 2, "device": "cpu"}
    (root / name / "result.json").write_text(json.dumps(result))
    details = {"evaluation_losses": {"val": 4.5}, "unigram_cross_entropy": 6.5, "device": "cpu"}
    _record(checkpoint, {}, details)
    set_current_run(root, TrainingRun(root / name))
    return checkpoint


def _convert_and_generate(spec: PipelineSpec, checkpoint: Path) -> None:
    model, text = spec.layout.hf_model("tiny"), spec.layout.generated_text("tiny")
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    _record(model, {"checkpoint": digest_of(checkpoint)})
    write_samples([GeneratedSample("The", " end", 1, True)], text)
    _record(text, {"hf_model": digest_of(model)})


def test_what_was_not_made_is_called_so_and_has_no_path(spec: PipelineSpec) -> None:
    text = _text(spec)
    assert "tiny: not trained yet" in text
    assert "not made yet" in text
    assert "generated_text.md" not in text


def test_losses_are_shown_beside_that_of_a_unigram_model(spec: PipelineSpec) -> None:
    _convert_and_generate(spec, _train(spec, "first"))
    text = _text(spec)
    assert "train 4.250, val 4.500 (a unigram model has 6.500)" in text
    assert '"The end"' in text
    assert "out of date" not in text


def test_a_model_from_an_older_checkpoint_is_called_out_of_date(spec: PipelineSpec) -> None:
    _convert_and_generate(spec, _train(spec, "first"))
    _train(spec, "second")
    assert _text(spec).count("out of date") == 2


def test_what_was_built_since_a_time_is_named(spec: PipelineSpec) -> None:
    _train(spec, "first")
    assert "Built now: tiny/trained_checkpoint." in _text(spec, since=0)
    assert "every stage was up to date" in _text(spec, since=2**40)
