"""The asset of generated text says what is wrong with its input and its output; nothing is generated here."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, StageIdentity, digest_of
from modalities_pipeline.data.production import produce
from modalities_pipeline.inference import generated_text as stage
from modalities_pipeline.inference.samples import GeneratedSample, write_samples
from modalities_pipeline.inference.settings import GenerationSettings
from modalities_pipeline.orchestration.assets import generated_text as asset_module
from modalities_pipeline.orchestration.materialize import PolicyResource
from modalities_pipeline.orchestration.spec import CorpusSpec, ExperimentSpec, PipelineSpec, TokenizerSpec

SETTINGS = GenerationSettings(prompts=["The "])


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    """A pipeline whose model and generated text are there already."""
    files = CorpusSpec(files=["none.jsonl"])
    spec = PipelineSpec(
        output_dir=tmp_path,
        corpora={"train": files},
        tokenizer=TokenizerSpec(component={}, eod_token="<eod>"),
        experiments={
            "tiny": ExperimentSpec(
                training_config=tmp_path / "none.yaml",
                train_corpus="train",
                validation_corpus="train",
                generated_text=SETTINGS,
            )
        },
    )

    def build_model(path: Path) -> BuildResult:
        path.mkdir()
        (path / "model.safetensors").write_bytes(b"weights")
        return BuildResult()

    def build_text(path: Path) -> BuildResult:
        write_samples([GeneratedSample("The ", "cat", 1, stopped_at_eod=True)], path)
        return BuildResult()

    model_dir = spec.layout.hf_model("tiny")
    produce(model_dir, [], FileExistencePolicy.ERROR, lambda: StageIdentity("hf_model", "1", {}, {}), build_model)
    identity = stage.identity(digest_of(model_dir), SETTINGS)
    produce(spec.layout.generated_text("tiny"), [], FileExistencePolicy.ERROR, lambda: identity, build_text)
    return spec


def materialize(spec: PipelineSpec, policy: str) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [asset_module.generated_text_asset(spec, "tiny")],
        resources={"policy": PolicyResource(policy=policy)},  # type: ignore[arg-type]
        raise_on_error=False,
    )


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    failure: Any = result.failure_data_for_node("tiny__generated_text")
    return str(failure.user_failure_data.description)


def test_text_that_is_there_is_shown(spec: PipelineSpec) -> None:
    [event] = materialize(spec, "auto").asset_materializations_for_node("tiny__generated_text")
    assert "cat" in str(event.metadata["samples"].value)


def test_a_model_that_lost_its_weights_is_named(spec: PipelineSpec) -> None:
    (spec.layout.hf_model("tiny") / "model.safetensors").unlink()
    result = materialize(spec, "auto")
    assert not result.success
    assert "materialize tiny/hf_model again" in failure_of(result)


def test_a_kept_output_that_lost_its_text_is_named(spec: PipelineSpec) -> None:
    path = spec.layout.generated_text("tiny") / "generated_text.md"
    path.unlink()
    result = materialize(spec, "skip")
    assert not result.success
    assert f"{path} is missing" in failure_of(result)
