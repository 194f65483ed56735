"""Asset `<corpus>/raw_index`: where each document lies in the raw files."""

from functools import partial

import dagster as dg

from modalities_pipeline.data import raw_index as stage
from modalities_pipeline.data.raw_files import RawFile, read_raw_files
from modalities_pipeline.orchestration.assets import raw_files
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
    return dg.AssetKey([corpus, "raw_index"])


def raw_index_asset(spec: PipelineSpec, name: str) -> dg.AssetsDefinition:
    """The asset of one corpus."""
    drop_faulty_entries = spec.corpora[name].on_bad_sample == "skip"
    key = key_of(name)

    def job(file: RawFile) -> Job:
        index_path = spec.layout.raw_index(name, file.stem)
        return Job(
            file.stem,
            stage.identity(file.digest, drop_faulty_entries),
            index_path,
            partial(
                stage.build_raw_index,
                file.path,
                index_path,
                listed=file,
                drop_faulty_entries=drop_faulty_entries,
            ),
            file.size_in_bytes,
        )

    @dg.asset(
        key=key,
        deps=[raw_files.key_of(name)],
        group_name=name,
        kinds={"jsonl", "numpy"},
        code_version=code_version(stage.identity("", drop_faulty_entries)),
        check_specs=[up_to_date_check(key)],
    )
    @user_errors_as_failures()
    def raw_index(context: dg.AssetExecutionContext, policy: PolicyResource) -> dg.MaterializeResult:
        """Byte offset and length of every JSON line of the corpus' raw files."""
        jobs = [job(file) for file in read_raw_files(spec.layout.raw_files(name))]
        return materialize(context, policy, spec.layout.lock(f"{name}_raw_index"), jobs)

    return raw_index
