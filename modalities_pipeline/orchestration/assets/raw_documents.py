"""Asset `raw_documents`: the embedded text."""

import dagster as dg

from modalities_pipeline.data import raw_documents as stage
from modalities_pipeline.orchestration.materialize import (
    Job,
    PolicyResource,
    code_version,
    materialize,
    up_to_date_check,
    user_errors_as_failures,
)
from modalities_pipeline.orchestration.spec import PipelineSpec

KEY = dg.AssetKey("raw_documents")
GROUP = "sources"


def raw_documents_asset(spec: PipelineSpec) -> dg.AssetsDefinition:
    """The asset; part of the graph if a corpus uses the embedded text."""
    output_dir = spec.layout.raw_documents

    @dg.asset(
        key=KEY,
        group_name=GROUP,
        kinds={"python", "jsonl"},
        code_version=code_version(stage.identity()),
        check_specs=[up_to_date_check(KEY)],
    )
    @user_errors_as_failures()
    def raw_documents(context: dg.AssetExecutionContext, policy: PolicyResource) -> dg.MaterializeResult:
        """English documentation that every Python installation carries, as JSONL for training and validation."""
        job = Job(
            "raw_documents",
            stage.identity(),
            output_dir,
            lambda on_exist: stage.build_raw_documents(output_dir, on_exist),
        )
        lock_path = spec.layout.lock("raw_documents")
        return materialize(
            context, policy, lock_path, [job], lambda manifests: {"path": dg.MetadataValue.path(output_dir)}
        )

    return raw_documents
