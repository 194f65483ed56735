"""Asset `tokenizer`: trained on a corpus, or a given one with the fingerprint of what changes its ids."""

import json
from functools import partial
from typing import Any

import dagster as dg

from modalities_pipeline.data.files import digest_strings
from modalities_pipeline.data.raw_files import read_raw_files
from modalities_pipeline.orchestration.assets import raw_files
from modalities_pipeline.orchestration.materialize import (
    Job,
    PolicyResource,
    code_version,
    materialize,
    up_to_date_check,
    user_errors_as_failures,
)
from modalities_pipeline.orchestration.spec import PipelineSpec, TokenizerTrainingSpec
from modalities_pipeline.tokenization import saved_tokenizer, training

KEY = dg.AssetKey("tokenizer")
GROUP = "sources"


def component_of(spec: PipelineSpec) -> dict[str, Any]:
    """The tokenizer as a component node, from which the factory builds it."""
    return spec.tokenizer.component or {
        "component_key": "tokenizer",
        "variant_key": "pretrained_hf_tokenizer",
        "config": {"pretrained_model_name_or_path": str(spec.layout.tokenizer)},
    }


def tokenizer_asset(spec: PipelineSpec) -> dg.AssetsDefinition:
    """The asset."""
    trained_on = spec.tokenizer.train.corpus if spec.tokenizer.train else None

    @dg.asset(
        key=KEY,
        deps=[raw_files.key_of(trained_on)] if trained_on else [],
        group_name=GROUP,
        kinds={"huggingface"},
        code_version=_code_version(spec),
        check_specs=[up_to_date_check(KEY)],
    )
    @user_errors_as_failures()
    def tokenizer(context: dg.AssetExecutionContext, policy: PolicyResource) -> dg.MaterializeResult:
        """The tokenizer of all corpora, in a folder; its fingerprint says when text has to be tokenized anew."""
        job = _training_job(spec, spec.tokenizer.train) if spec.tokenizer.train else _component_job(spec)
        return materialize(
            context,
            policy,
            spec.layout.lock("tokenizer"),
            [job],
            lambda manifests: {
                "path": dg.MetadataValue.path(spec.layout.tokenizer),
                **{
                    key: manifest.details[key]
                    for manifest in manifests
                    for key in ("tokenizer_fingerprint", "eod_token")
                },
            },
        )

    return tokenizer


def _code_version(spec: PipelineSpec) -> str:
    settings = spec.tokenizer.train
    if settings:
        corpus = spec.corpora[settings.corpus]
        return code_version(training.identity({}, corpus.jq_pattern, settings.vocab_size, spec.tokenizer.eod_token))
    # what the component's files hold is looked at when the asset is materialized
    return digest_strings([json.dumps(spec.tokenizer.component, sort_keys=True), spec.tokenizer.eod_token])[7:19]


def _training_job(spec: PipelineSpec, settings: TokenizerTrainingSpec) -> Job:
    files = read_raw_files(spec.layout.raw_files(settings.corpus))
    digests = {file.name: file.digest for file in files}
    jq_pattern, eod_token = spec.corpora[settings.corpus].jq_pattern, spec.tokenizer.eod_token
    return Job(
        "tokenizer",
        training.identity(digests, jq_pattern, settings.vocab_size, eod_token),
        spec.layout.tokenizer,
        lambda on_exist: training.train_tokenizer(
            [file.path for file in files],
            jq_pattern,
            settings.vocab_size,
            eod_token,
            spec.layout.tokenizer,
            on_exist,
            files,
        ),
    )


def _component_job(spec: PipelineSpec) -> Job:
    component, eod_token = component_of(spec), spec.tokenizer.eod_token
    return Job(
        "tokenizer",
        saved_tokenizer.identity(component, eod_token),
        spec.layout.tokenizer,
        partial(saved_tokenizer.build_saved_tokenizer, component, eod_token, spec.layout.tokenizer),
    )
