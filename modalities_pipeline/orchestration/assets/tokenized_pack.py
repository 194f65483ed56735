"""Asset `<corpus>/tokenized_pack`: the documents as tokens."""

import functools
import itertools
import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from modalities_pipeline.data import tokenized_pack as stage
from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import Manifest, input_digest_of, read_manifest
from modalities_pipeline.data.raw_files import RawFile, read_raw_files
from modalities_pipeline.exceptions import DatasetNotFoundError
from modalities_pipeline.orchestration import plots
from modalities_pipeline.orchestration.assets import raw_files, raw_index, tokenizer
from modalities_pipeline.orchestration.materialize import (
    Job,
    PolicyResource,
    code_version,
    materialize,
    up_to_date_check,
    user_errors_as_failures,
)
from modalities_pipeline.orchestration.spec import PipelineSpec
from modalities_pipeline.orchestration.workers import num_cpus
from modalities_pipeline.tokenization.saved_tokenizer import build_tokenizer

if TYPE_CHECKING:
    from modalities_pipeline.tokenization.tokenizers import TokenizerWrapper


def key_of(corpus: str) -> dg.AssetKey:
    """The asset's key."""
    return dg.AssetKey([corpus, "tokenized_pack"])


def tokenized_pack_asset(spec: PipelineSpec, name: str) -> dg.AssetsDefinition:
    """The asset of one corpus."""
    corpus, eod_token = spec.corpora[name], spec.tokenizer.eod_token
    key = key_of(name)

    @dg.asset(
        key=key,
        deps=[raw_files.key_of(name), raw_index.key_of(name), tokenizer.KEY],
        group_name=name,
        kinds={"numpy", "huggingface"},
        code_version=code_version(stage.identity("", "", "", corpus.jq_pattern, eod_token, corpus.on_bad_sample)),
        check_specs=[up_to_date_check(key)],
    )
    @user_errors_as_failures()
    def tokenized_pack(context: dg.AssetExecutionContext, policy: PolicyResource) -> dg.MaterializeResult:
        """The tokens of every document, each ended by the end-of-document token: one .pbin per raw file."""
        fingerprint = _tokenizer_fingerprint(spec)
        files = read_raw_files(spec.layout.raw_files(name))
        jobs = [_job(spec, name, file, fingerprint) for file in files]
        return materialize(context, policy, spec.layout.lock(f"{name}_tokenized_pack"), jobs, _describe)

    return tokenized_pack


def _job(spec: PipelineSpec, name: str, file: RawFile, fingerprint: str) -> Job:
    corpus = spec.corpora[name]
    settings = stage.TokenizedPackSettings(
        src_path=file.path,
        dst_path=spec.layout.tokenized_pack(name, file.stem),
        index_path=spec.layout.raw_index(name, file.stem),
        jq_pattern=corpus.jq_pattern,
        eod_token=spec.tokenizer.eod_token,
        on_bad_sample=corpus.on_bad_sample,
    )
    index_digest = input_digest_of(spec.layout.raw_index(name, file.stem), f"{name}/raw_index")
    component = json.dumps(tokenizer.component_of(spec))
    identity = stage.identity(
        file.digest, index_digest, fingerprint, corpus.jq_pattern, spec.tokenizer.eod_token, corpus.on_bad_sample
    )
    build = functools.partial(_build, settings, component, fingerprint, file, index_digest)
    return Job(file.stem, identity, spec.layout.tokenized_pack(name, file.stem), build, file.size_in_bytes)


def _build(
    settings: stage.TokenizedPackSettings,
    component: str,
    fingerprint: str,
    file: RawFile,
    index_digest: str,
    file_existence_policy: FileExistencePolicy,
) -> Manifest | None:
    wrapper = _tokenizer(component, fingerprint)
    settings = settings.model_copy(update={"num_cpus": num_cpus()})
    return stage.build_tokenized_pack(settings, wrapper, file_existence_policy, file, index_digest)


@functools.cache
def _tokenizer(component: str, fingerprint: str) -> "TokenizerWrapper":
    """The tokenizer of a component node in JSON; a process that packs many files with it builds it once."""
    return build_tokenizer(json.loads(component))


def _tokenizer_fingerprint(spec: PipelineSpec) -> str:
    input_digest_of(spec.layout.tokenizer, "tokenizer")  # refuses what is missing or damaged
    manifest = read_manifest(spec.layout.tokenizer)
    if manifest is None:
        raise DatasetNotFoundError(
            f"There is no tokenizer in {spec.layout.tokenizer}. Materialize the asset 'tokenizer'."
        )
    return str(manifest.details["tokenizer_fingerprint"])


def _describe(manifests: list[Manifest]) -> Mapping[str, Any]:
    """Token lengths of all documents as a picture."""
    bins: Counter[tuple[int, int]] = Counter()
    for manifest in manifests:
        histogram = manifest.details["token_length_histogram"]
        for pair, count in zip(itertools.pairwise(histogram["edges"]), histogram["counts"], strict=True):
            bins[pair] += count
    if not bins:
        return {}
    edges = sorted({edge for pair in bins for edge in pair})
    counts = [bins[pair] for pair in itertools.pairwise(edges)]
    picture = plots.histogram_plot(edges, counts, "Length of the documents", "tokens", "documents")
    return {"token_lengths": dg.MetadataValue.md(picture)}
