"""Asset `<experiment>/hf_model`: the trained model in Hugging Face form."""

from pathlib import Path

import dagster as dg

from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.conversion import hf_model as stage
from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import Manifest, input_digest_of
from modalities_pipeline.exceptions import DatasetNotFoundError
from modalities_pipeline.orchestration import training_run
from modalities_pipeline.orchestration.assets import tokenizer, trained_checkpoint
from modalities_pipeline.orchestration.materialize import (
    Job,
    PolicyResource,
    code_version,
    materialize,
    up_to_date_check,
    user_errors_as_failures,
)
from modalities_pipeline.orchestration.spec import PipelineSpec


def key_of(experiment: str) -> dg.AssetKey:
    """The asset's key."""
    return dg.AssetKey([experiment, "hf_model"])


def hf_model_asset(spec: PipelineSpec, name: str) -> dg.AssetsDefinition:
    """The asset of one experiment."""
    dtype, eod_token = spec.experiments[name].hf_model.dtype, spec.tokenizer.eod_token
    output_dir = spec.layout.hf_model(name)
    key = key_of(name)

    @dg.asset(
        key=key,
        deps=[trained_checkpoint.key_of(name), tokenizer.KEY],
        group_name=name,
        kinds={"huggingface"},
        code_version=code_version(stage.identity("", {}, "", eod_token, dtype)),
        check_specs=[up_to_date_check(key)],
    )
    @user_errors_as_failures()
    def hf_model(context: dg.AssetExecutionContext, policy: PolicyResource) -> dg.MaterializeResult:
        """A folder that plain `transformers` loads and that computes the same logits as the trained model."""
        return materialize(
            context,
            policy,
            spec.layout.lock(f"{name}_hf_model"),
            [_job(spec, name)],
            lambda manifests: {"path": dg.MetadataValue.path(output_dir), **_architecture(manifests)},
        )

    return hf_model


def _job(spec: PipelineSpec, name: str) -> Job:
    run = training_run.current_run(spec.layout.trained_checkpoint(name))
    if run is None:
        raise DatasetNotFoundError(f"No run of {name} is complete. Materialize {name}/trained_checkpoint first.")
    dtype, eod_token = spec.experiments[name].hf_model.dtype, spec.tokenizer.eod_token
    checkpoint = run.checkpoint_folder()
    identity = stage.identity(
        input_digest_of(checkpoint, f"{name}/trained_checkpoint"),
        _model_config(run.config_path),
        input_digest_of(spec.layout.tokenizer, "tokenizer"),
        eod_token,
        dtype,
    )

    def build(on_exist: FileExistencePolicy) -> Manifest | None:
        return stage.build_hf_model(
            run.config_path,
            checkpoint,
            spec.layout.tokenizer,
            spec.layout.hf_model(name),
            eod_token,
            on_exist,
            identity,
            dtype,
        )

    return Job("hf_model", identity, spec.layout.hf_model(name), build)


def _model_config(config_path: Path) -> dict[str, object]:
    """The nodes of a training config that describe the model; the weights are known by the checkpoint's digest."""
    return {key: node for key, node in load_yaml(config_path).data.items() if key.startswith("model")}


def _architecture(manifests: list[Manifest]) -> dict[str, str]:
    return {"architecture": str(manifests[0].details["architecture"])} if manifests else {}
