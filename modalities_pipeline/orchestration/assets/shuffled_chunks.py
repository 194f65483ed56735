"""Asset `<corpus>/shuffled_chunks`: the documents of all files in random order, in chunks."""

from functools import partial

import dagster as dg

from modalities_pipeline.data import shuffled_chunks as stage
from modalities_pipeline.data.manifest import input_digest_of
from modalities_pipeline.data.packed.packed_inputs import tokenizer_inputs
from modalities_pipeline.data.raw_files import read_raw_files
from modalities_pipeline.orchestration.assets import tokenized_pack
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
    return dg.AssetKey([corpus, "shuffled_chunks"])


def shuffled_chunks_asset(spec: PipelineSpec, name: str) -> dg.AssetsDefinition:
    """The asset of one corpus."""
    num_chunks, seed = spec.corpora[name].num_chunks, spec.corpora[name].seed
    shuffle = seed is not None
    key = key_of(name)

    @dg.asset(
        key=key,
        deps=[tokenized_pack.key_of(name)],
        group_name=name,
        kinds={"numpy"},
        code_version=code_version(stage.identity([], 0, num_chunks, seed, shuffle)),
        check_specs=[up_to_date_check(key)],
    )
    @user_errors_as_failures()
    def shuffled_chunks(context: dg.AssetExecutionContext, policy: PolicyResource) -> dg.MaterializeResult:
        """All documents of the corpus, shuffled across its files (unless `seed` is null) and dealt out to chunks."""
        files = read_raw_files(spec.layout.raw_files(name))
        packs = [spec.layout.tokenized_pack(name, file.stem) for file in files]
        digests = [input_digest_of(pack, f"{name}/tokenized_pack") for pack in packs]
        tokenizer = tokenizer_inputs(packs)
        size_in_bytes = sum(pack.stat().st_size for pack in packs)
        jobs = [
            Job(
                f"chunk_{chunk_id}",
                stage.identity(digests, chunk_id, num_chunks, seed, shuffle, tokenizer),
                spec.layout.shuffled_chunk(name, chunk_id),
                partial(
                    stage.build_shuffled_chunk,
                    packs,
                    spec.layout.shuffled_chunk(name, chunk_id),
                    chunk_id,
                    num_chunks,
                    global_seed=seed,
                    shuffle=shuffle,
                ),
                size_in_bytes // num_chunks,
            )
            for chunk_id in range(num_chunks)
        ]
        return materialize(context, policy, spec.layout.lock(f"{name}_shuffled_chunks"), jobs)

    return shuffled_chunks
