"""Asset `<corpus>/merged_pbin`: the corpus in one file, ready for training."""

from functools import partial

import dagster as dg

from modalities_pipeline.data import merged_pbin as stage
from modalities_pipeline.data.manifest import input_digest_of
from modalities_pipeline.data.packed.packed_inputs import tokenizer_inputs
from modalities_pipeline.orchestration.assets import shuffled_chunks
from modalities_pipeline.orchestration.materialize import (
    Job,
    PolicyResource,
    code_version,
    materialize,
    up_to_date_check,
    user_errors_as_failures,
)
from modalities_pipeline.orchestration.spec import PipelineSpec


def key_of(corpus: str) -> dg.AssetKey:
    """The asset's key."""
    return dg.AssetKey([corpus, "merged_pbin"])


def merged_pbin_asset(spec: PipelineSpec, name: str) -> dg.AssetsDefinition:
    """The asset of one corpus."""
    chunks = [spec.layout.shuffled_chunk(name, chunk_id) for chunk_id in range(spec.corpora[name].num_chunks)]
    output_path = spec.layout.merged_pbin(name)
    key = key_of(name)

    @dg.asset(
        key=key,
        deps=[shuffled_chunks.key_of(name)],
        group_name=name,
        kinds={"numpy"},
        code_version=code_version(stage.identity([])),
        check_specs=[up_to_date_check(key)],
    )
    @user_errors_as_failures()
    def merged_pbin(context: dg.AssetExecutionContext, policy: PolicyResource) -> dg.MaterializeResult:
        """All chunks of the corpus in one packed file, which training reads."""
        digests = [input_digest_of(chunk, f"{name}/shuffled_chunks") for chunk in chunks]
        identity = stage.identity(digests, tokenizer_inputs(chunks))
        job = Job("merged", identity, output_path, partial(stage.build_merged_pbin, chunks, output_path))
        return materialize(
            context,
            policy,
            spec.layout.lock(f"{name}_merged_pbin"),
            [job],
            lambda manifests: {"path": dg.MetadataValue.path(output_path)},
        )

    return merged_pbin
