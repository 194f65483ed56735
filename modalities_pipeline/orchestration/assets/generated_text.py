"""Asset `<experiment>/generated_text`: what the model writes."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import Manifest, input_digest_of
from modalities_pipeline.exceptions import DatasetNotFoundError
from modalities_pipeline.inference import generated_text as stage
from modalities_pipeline.inference.samples import MARKDOWN_FILE_NAME
from modalities_pipeline.orchestration.assets import hf_model
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
    return dg.AssetKey([experiment, "generated_text"])


def generated_text_asset(spec: PipelineSpec, name: str) -> dg.AssetsDefinition:
    """The asset of one experiment."""
    settings = spec.experiments[name].generated_text
    model_dir, output_dir = spec.layout.hf_model(name), spec.layout.generated_text(name)
    key = key_of(name)

    @dg.asset(
        key=key,
        deps=[hf_model.key_of(name)],
        group_name=name,
        kinds={"huggingface", "markdown"},
        code_version=code_version(stage.identity("", settings)),
        check_specs=[up_to_date_check(key)],
    )
    @user_errors_as_failures()
    def generated_text(context: dg.AssetExecutionContext, policy: PolicyResource) -> dg.MaterializeResult:
        """Prompts and how the model continues them."""
        identity = stage.identity(input_digest_of(model_dir, f"{name}/hf_model"), settings)

        def build(on_exist: FileExistencePolicy) -> Manifest | None:
            return stage.build_generated_text(model_dir, output_dir, settings, on_exist, identity)

        job = Job("generated_text", identity, output_dir, build)
        return materialize(context, policy, spec.layout.lock(f"{name}_generated_text"), [job], describe)

    def describe(manifests: list[Manifest]) -> Mapping[str, Any]:
        path = output_dir / MARKDOWN_FILE_NAME
        if not path.is_file():
            raise DatasetNotFoundError(f"{path} is missing. Materialize the asset with the policy auto or override.")
        return {"path": dg.MetadataValue.path(output_dir), "samples": dg.MetadataValue.md(path.read_text("utf-8"))}

    return generated_text
