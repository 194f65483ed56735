"""Stage tokenized_pack: the documents of one raw file as token ids, each ended by the end-of-document token."""

import collections
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from modalities_pipeline.data.files import (
    FileExistencePolicy,
    enforce_file_existence_policy,
    refuse_output_among_inputs,
)
from modalities_pipeline.data.jsonl import LargeFileLinesReader, default_index_path
from modalities_pipeline.data.manifest import (
    BuildResult,
    Manifest,
    StageIdentity,
    input_digest_of,
    produce,
    read_manifest,
)
from modalities_pipeline.data.pbin import PackedFileWriter, token_size_for_vocab
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.data.raw_files import RawFile
from modalities_pipeline.data.raw_index import STAGE as RAW_INDEX_STAGE
from modalities_pipeline.data.raw_source import RawSource
from modalities_pipeline.data.text_extraction import BadDocumentError, TextExtractor
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError
from modalities_pipeline.tokenization.saved_tokenizer import tokenizer_details
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

logger = logging.getLogger(__name__)

STAGE = "tokenized_pack"
CODE_VERSION = "1"

SKIP_REASONS = ("unreadable_line", "missing_text", "not_a_string", "empty_text")

_MAX_BATCH_IN_BYTES = 16 << 20
_MAX_REPORTED_SKIPS = 1000

_PositiveInt = Annotated[int, Field(strict=True, ge=1)]


class TokenizedPackSettings(BaseModel):
    """Section `settings` of a packing config.

    The sizes of queues and the number of CPUs are those of Modalities' configs; they never change the output, and the
    tokenizers' own threads take the place of the processes they describe.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    src_path: Path
    dst_path: Path
    index_path: Path | None = None
    jq_pattern: str
    eod_token: str
    num_cpus: _PositiveInt = Field(default_factory=lambda: os.cpu_count() or 1)
    processing_batch_size: _PositiveInt = 1000  # documents tokenized at once
    raw_samples_queue_size: _PositiveInt = 300
    processed_samples_queue_size: _PositiveInt = 300
    on_bad_sample: Literal["error", "skip"] = "error"


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
        DatasetFormatError: the index is damaged or older than the raw file, the raw file is not what was listed or
            changed while it was read, a document has no text (unless `on_bad_sample` is "skip"), or all have none.
        UserError: the end-of-document token is not in the vocabulary, or the output is an input.
        OutputExistsError: the output exists and the policy is ERROR.
    """
    index_path = default_index_path(settings.src_path, settings.index_path)
    if not settings.src_path.is_file():
        raise DatasetNotFoundError(f"{settings.src_path} does not exist or is not a file.")
    if not index_path.is_file():
        raise DatasetNotFoundError(f"{index_path} does not exist. Create the raw index of {settings.src_path} first.")
    refuse_output_among_inputs(settings.dst_path, [settings.src_path, index_path])
    details = tokenizer_details(tokenizer, settings.eod_token)
    extractor = TextExtractor(settings.jq_pattern)
    if enforce_file_existence_policy(settings.dst_path, file_existence_policy):
        return None
    source = RawSource(settings.src_path, listed)
    index_digest = index_digest or input_digest_of(index_path)
    source.check_unchanged()
    _refuse_stale_index(settings.src_path, source.digest, index_path)
    packer = _Packer(settings, tokenizer, details, extractor)

    def build(output_path: Path) -> BuildResult:
        source.check_unchanged()
        result = packer.pack(index_path, output_path)
        source.check_unchanged()
        return result

    return produce(
        identity(
            source.digest,
            index_digest,
            details["tokenizer_fingerprint"],
            settings.jq_pattern,
            settings.eod_token,
            settings.on_bad_sample,
        ),
        settings.dst_path,
        build,
        file_existence_policy,
    )


def _refuse_stale_index(src_path: Path, src_digest: str, index_path: Path) -> None:
    """An index made by this pipeline knows its source; others are only checked for reaching beyond it."""
    manifest = read_manifest(index_path)
    if manifest is not None and manifest.stage == RAW_INDEX_STAGE and manifest.inputs.get("source") != src_digest:
        raise DatasetFormatError(
            f"{index_path} is out of date: {src_path} changed after it was indexed ({src_path.stat().st_size} bytes "
            f"now, {manifest.counts.get('source_size_in_bytes')} then). Create the raw index again."
        )


class _Packer:
    """One run over a raw file."""

    def __init__(
        self,
        settings: TokenizedPackSettings,
        tokenizer: TokenizerWrapper,
        details: dict[str, Any],
        extractor: TextExtractor,
    ) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._tokenizer_details = details
        self._eod_token_id: int = details["eod_token_id"]
        self._extractor = extractor
        self._num_skipped = dict.fromkeys(SKIP_REASONS, 0)
        self._skipped: list[dict[str, Any]] = []
        self._num_by_bit_length: collections.Counter[int] = collections.Counter()

    def pack(self, index_path: Path, output_path: Path) -> BuildResult:
        """Write the file and report counts."""
        token_size = token_size_for_vocab(max(self._tokenizer.vocab_size, self._tokenizer.num_token_ids))
        num_eod_tokens = 0
        with (
            LargeFileLinesReader(self._settings.src_path, index_path, encoding=None) as reader,
            PackedFileWriter(output_path, token_size) as writer,
        ):
            total = len(reader)
            progress = ProgressLog(logger, f"Tokenizing {self._settings.src_path.name}", total, "documents")
            for start, end in self._batches(reader):
                for ids in self._token_ids(reader, start, end):
                    writer.write_document(ids)
                    num_eod_tokens += int(np.count_nonzero(ids == self._eod_token_id))
                    self._num_by_bit_length[len(ids).bit_length()] += 1
                progress.update(end)
        counts: dict[str, int | float] = {
            "num_documents_in": total,
            "num_documents": writer.num_documents,
            "num_skipped": sum(self._num_skipped.values()),
            **{f"num_skipped_{reason}": number for reason, number in self._num_skipped.items()},
            "num_tokens": writer.num_tokens,
            "num_eod_tokens": num_eod_tokens,
        }
        if counts["num_documents"] + counts["num_skipped"] != total:
            raise RuntimeError(f"{output_path}: documents were lost while packing: {counts}.")
        if not writer.num_documents:
            raise DatasetFormatError(
                f"{self._settings.src_path} has no documents"
                + (f": all {total} lines were left out ({self._reasons()})" if total else "")
                + ". Remove it from the corpus, or write documents into it."
            )
        return BuildResult(counts, self._details(token_size))

    def _reasons(self) -> str:
        return ", ".join(f"{reason}: {number}" for reason, number in self._num_skipped.items() if number)

    def _details(self, token_size: int) -> dict[str, Any]:
        return {
            **self._tokenizer_details,
            "token_size_in_bytes": token_size,
            "token_length_histogram": self._histogram(),
            "skipped": self._skipped,
        }

    def _histogram(self) -> dict[str, list[int]]:
        """Documents by length in tokens; bin i holds lengths in [edges[i], edges[i + 1])."""
        if not self._num_by_bit_length:
            return {"edges": [], "counts": []}
        first, last = min(self._num_by_bit_length), max(self._num_by_bit_length)
        bins = range(first, last + 1)
        return {
            "edges": [1 << (bits - 1) for bits in (*bins, last + 1)],
            "counts": [self._num_by_bit_length[bits] for bits in bins],
        }

    def _batches(self, reader: LargeFileLinesReader) -> Iterator[tuple[int, int]]:
        """Ranges of documents, bounded in number and (but for a single huge document) in bytes."""
        start = num_bytes = 0
        for position, length in enumerate(reader.index[:, 1].tolist()):
            full = position - start == self._settings.processing_batch_size or num_bytes + length > _MAX_BATCH_IN_BYTES
            if full and position > start:
                yield start, position
                start, num_bytes = position, 0
            num_bytes += length
        if start < len(reader):
            yield start, len(reader)

    def _token_ids(self, reader: LargeFileLinesReader, start: int, end: int) -> Iterator[NDArray[np.int64]]:
        """The ids of the good documents of a range, each ended by the end-of-document token."""
        positions, texts = [], []
        for position in range(start, end):
            try:
                texts.append(self._extractor.extract(reader.line_bytes(position)))
                positions.append(position)
            except BadDocumentError as error:
                self._handle_bad_document(reader, position, error)
        for position, ids in zip(positions, self._tokenizer.tokenize_batch(texts), strict=True):
            if not ids:
                self._handle_bad_document(reader, position, BadDocumentError("empty_text", "the text has no tokens"))
                continue
            array = np.array(self._with_eod(ids), dtype=np.int64)
            if not 0 <= int(array.min()) <= int(array.max()) < self._tokenizer.num_token_ids:
                raise DatasetFormatError(
                    f"{self._settings.src_path}, document {position}: the tokenizer gives ids from {array.min()} to "
                    f"{array.max()}, but says it has {self._tokenizer.num_token_ids} ids only. Use a sound tokenizer."
                )
            yield array

    def _with_eod(self, ids: list[int]) -> list[int]:
        if ids[-1] == self._eod_token_id:
            return ids
        if len(ids) == self._tokenizer.padded_length:
            # A text cut at the padded length keeps its length; one more token would shift all later fixed blocks.
            return [*ids[:-1], self._eod_token_id]
        return [*ids, self._eod_token_id]

    def _handle_bad_document(self, reader: LargeFileLinesReader, position: int, error: BadDocumentError) -> None:
        offset = int(reader.index[position, 0])
        if self._settings.on_bad_sample == "error":
            raise DatasetFormatError(
                f"{self._settings.src_path}, line {reader.line_number(position)} (byte {offset}): {error}. Mend the "
                "line, set jq_pattern to where the text is, or on_bad_sample: skip to leave such documents out and "
                "count them."
            ) from error
        self._num_skipped[error.reason] += 1
        if len(self._skipped) < _MAX_REPORTED_SKIPS:
            self._skipped.append({"document": position, "byte_offset": offset, "reason": error.reason})
