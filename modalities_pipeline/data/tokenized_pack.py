"""Stage tokenized_pack: the documents of one raw file as token ids, each ended by the end-of-document token."""

import logging
from pathlib import Path

from modalities_pipeline.config.schemas.pack_settings import HOW_TO_INDEX, TokenizedPackSettings
from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import (
    BuildResult,
    Manifest,
    StageIdentity,
    input_digest_of,
    read_manifest,
)
from modalities_pipeline.data.packing.text_extraction import TextExtractor
from modalities_pipeline.data.production import produce
from modalities_pipeline.data.raw.raw_source import RawSource
from modalities_pipeline.data.raw_files import RawFile
from modalities_pipeline.data.raw_index import STAGE as RAW_INDEX_STAGE
from modalities_pipeline.data.raw_index import default_index_path
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError
from modalities_pipeline.tokenization.saved_tokenizer import tokenizer_details
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

logger = logging.getLogger(__name__)

STAGE = "tokenized_pack"
CODE_VERSION = "2"


def identity(
    src_digest: str,
    index_digest: str,
    tokenizer_fingerprint: str,
    jq_pattern: str,
    eod_token: str,
    on_bad_sample: str = "error",
) -> StageIdentity:
    """Identity of the pack of one raw file."""
    settings = {"jq_pattern": jq_pattern, "eod_token": eod_token, "on_bad_sample": on_bad_sample}
    inputs = {"source": src_digest, "index": index_digest, "tokenizer": tokenizer_fingerprint}
    return StageIdentity(STAGE, CODE_VERSION, settings, inputs)


def build_tokenized_pack(
    settings: TokenizedPackSettings,
    tokenizer: TokenizerWrapper,
    file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR,
    listed: RawFile | None = None,
    index_digest: str | None = None,
) -> Manifest | None:
    """Tokenize the documents of a raw file, in the order of its index, into a `.pbin` file.

    Each document ends with exactly one end-of-document token. The number of bytes per token follows from the size of
    the vocabulary. `listed`, the raw file's entry in the corpus' list, and the digest of the index may be passed where
    they are known already.

    Raises:
        DatasetNotFoundError: the raw file or its index does not exist.
        DatasetFormatError: the index is damaged or does not list all lines of the raw file; the raw file is not what
            was listed, or changed while it was read; a document has no text (unless `on_bad_sample` is "skip"), or all
            have none.
        UserError: the end-of-document token is not in the vocabulary, or the output is an input.
        OutputExistsError: the output exists and the policy is ERROR.
    """
    # numpy is left to where it is used: Dagster loads this module with the definitions
    from modalities_pipeline.data.packing.document_packer import DocumentPacker

    index_path = default_index_path(settings.src_path, settings.index_path)
    if not index_path.is_file():
        raise DatasetNotFoundError(
            f"{index_path} does not exist. Create the raw index of {settings.src_path} first; {HOW_TO_INDEX}."
        )
    details = tokenizer_details(tokenizer, settings.eod_token)
    extractor = TextExtractor(settings.jq_pattern)

    def made_from() -> StageIdentity:
        source = RawSource(settings.src_path, listed)
        source.check_unchanged()
        _refuse_stale_index(settings.src_path, source.digest, index_path)
        return identity(
            source.digest,
            index_digest or input_digest_of(index_path),
            details["tokenizer_fingerprint"],
            settings.jq_pattern,
            settings.eod_token,
            settings.on_bad_sample,
        )

    def build(temporary: Path) -> BuildResult:
        packer = DocumentPacker(settings, tokenizer, details, extractor)
        return packer.pack(index_path, temporary, index_is_complete=not _leaves_lines_out(index_path))

    return produce(settings.dst_path, [settings.src_path, index_path], file_existence_policy, made_from, build)


def _refuse_stale_index(src_path: Path, src_digest: str, index_path: Path) -> None:
    """An index made by this pipeline knows its source; others are compared with the lines while these are read."""
    manifest = _index_manifest(index_path)
    if manifest is not None and manifest.inputs.get("source") != src_digest:
        raise DatasetFormatError(
            f"{index_path} is out of date: {src_path} changed after it was indexed ({src_path.stat().st_size} bytes "
            f"now, {manifest.counts.get('source_size_in_bytes')} then). Create the raw index again."
        )


def _leaves_lines_out(index_path: Path) -> bool:
    """Whether faulty lines were left out on purpose, as only this pipeline's own manifests can tell."""
    manifest = _index_manifest(index_path)
    return manifest is not None and bool(manifest.counts.get("num_faulty_lines"))


def _index_manifest(index_path: Path) -> Manifest | None:
    manifest = read_manifest(index_path)
    return manifest if manifest is not None and manifest.stage == RAW_INDEX_STAGE else None
