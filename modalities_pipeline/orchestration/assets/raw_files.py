"""Asset `<corpus>/raw_files`: which files a corpus consists of."""

import dagster as dg

from modalities_pipeline.data import raw_documents
from modalities_pipeline.data import raw_files as stage
from modalities_pipeline.data.locks import output_lock
from modalities_pipeline.data.manifest import input_digest_of
from modalities_pipeline.orchestration.assets import raw_documents as raw_documents_asset
from modalities_pipeline.orchestration.materialize import user_errors_as_failures
from modalities_pipeline.orchestration.spec import CorpusSpec, PipelineSpec

_MAX_ROWS = 200


def key_of(corpus: str) -> dg.AssetKey:
    """The asset's key."""
    return dg.AssetKey([corpus, "raw_files"])


def raw_data_spec(spec: PipelineSpec, name: str) -> dg.AssetSpec:
    """The user's files as an external asset, so that the lineage starts where the data come from."""
    return dg.AssetSpec(
        dg.AssetKey([name, "raw_data"]),
        group_name=name,
        kinds={"jsonl"},
        description="JSONL files from outside: "
        + ", ".join(str(spec.base_dir / pattern) for pattern in spec.corpora[name].files or []),
    )


def raw_files_asset(spec: PipelineSpec, name: str) -> dg.AssetsDefinition:
    """The asset of one corpus."""
    corpus = spec.corpora[name]
    source = raw_documents_asset.KEY if corpus.documents else raw_data_spec(spec, name).key

    @dg.asset(key=key_of(name), deps=[source], group_name=name, kinds={"json"}, code_version="1")
    @user_errors_as_failures()
    def raw_files(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        """The corpus' raw files with size and digest; materializing it is how changed files are noticed."""
        with output_lock(spec.layout.lock(f"{name}_raw_files")):
            if corpus.documents:
                input_digest_of(spec.layout.raw_documents, "raw_documents")  # refuses what is missing or damaged
            paths = stage.find_raw_files(_patterns(spec, corpus), spec.base_dir)
            manifest = stage.build_raw_files(paths, spec.layout.raw_files(name))
            files = stage.read_raw_files(spec.layout.raw_files(name))
        rows = [
            dg.TableRecord({"file": str(file.path), "size_in_bytes": file.size_in_bytes, "digest": file.digest})
            for file in files[:_MAX_ROWS]
        ]
        context.log.info(f"{name}/raw_files: {len(files)} file(s), {manifest.counts['num_bytes']:,} bytes")
        return dg.MaterializeResult(
            data_version=dg.DataVersion(manifest.digest),
            metadata={**manifest.counts, "digest": manifest.digest, "files": dg.MetadataValue.table(rows)},
        )

    return raw_files


def _patterns(spec: PipelineSpec, corpus: CorpusSpec) -> list[str]:
    if corpus.documents is None:
        return corpus.files or []
    is_train = corpus.documents.python_docs == "train"
    file_name = raw_documents.TRAIN_FILE_NAME if is_train else raw_documents.VALIDATION_FILE_NAME
    return [str(spec.layout.raw_documents / file_name)]
