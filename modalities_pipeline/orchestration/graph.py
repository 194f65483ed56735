"""The whole graph of assets, from a spec."""

import dagster as dg

from modalities_pipeline.orchestration.assets.generated_text import generated_text_asset
from modalities_pipeline.orchestration.assets.hf_model import hf_model_asset
from modalities_pipeline.orchestration.assets.merged_pbin import merged_pbin_asset
from modalities_pipeline.orchestration.assets.raw_documents import raw_documents_asset
from modalities_pipeline.orchestration.assets.raw_files import raw_data_spec, raw_files_asset
from modalities_pipeline.orchestration.assets.raw_index import raw_index_asset
from modalities_pipeline.orchestration.assets.shuffled_chunks import shuffled_chunks_asset
from modalities_pipeline.orchestration.assets.tokenized_pack import tokenized_pack_asset
from modalities_pipeline.orchestration.assets.tokenizer import tokenizer_asset
from modalities_pipeline.orchestration.assets.trained_checkpoint import trained_checkpoint_asset
from modalities_pipeline.orchestration.materialize import PolicyResource
from modalities_pipeline.orchestration.spec import PipelineSpec

CORPUS_STAGES = (raw_files_asset, raw_index_asset, tokenized_pack_asset, shuffled_chunks_asset, merged_pbin_asset)
EXPERIMENT_STAGES = (trained_checkpoint_asset, hf_model_asset, generated_text_asset)


def build_definitions(spec: PipelineSpec) -> dg.Definitions:
    """Assets, jobs (`data`, `pipeline`), the policy and the executor of a pipeline."""
    corpora, experiments = spec.corpora.items(), spec.experiments
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [tokenizer_asset(spec)]
    if any(corpus.documents for _, corpus in corpora):
        assets.append(raw_documents_asset(spec))
    assets += [raw_data_spec(spec, name) for name, corpus in corpora if corpus.files]
    assets += [make_asset(spec, name) for name in spec.corpora for make_asset in CORPUS_STAGES]
    assets += [make_asset(spec, name) for name in experiments for make_asset in EXPERIMENT_STAGES]
    training = dg.AssetSelection.groups(*experiments) if experiments else dg.AssetSelection.assets()
    return dg.Definitions(
        assets=assets,
        jobs=[
            dg.define_asset_job(
                "data", dg.AssetSelection.all() - training, description="From raw text to packed tokens."
            ),
            dg.define_asset_job("pipeline", dg.AssetSelection.all(), description="From raw text to generated text."),
        ],
        resources={"policy": PolicyResource(policy=spec.policy)},
        executor=multiprocess_executor(),
    )


def multiprocess_executor() -> dg.ExecutorDefinition:
    """One process per step, forked from one that has Dagster and this package loaded, so that cache hits are quick.

    Not the in-process executor: it turns a termination into a retry. The definitions themselves are not preloaded: a
    spec that cannot be read would end the server of forks without a word.
    """
    modules = ["dagster", "modalities_pipeline.orchestration.graph"]
    return dg.multiprocess_executor.configured({"start_method": {"forkserver": {"preload_modules": modules}}})
