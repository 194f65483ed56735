"""Writes the documents of a raw file as token ids, each ended by the end-of-document token."""

import collections
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.jsonl import LargeFileLinesReader
from modalities_pipeline.data.manifest import BuildResult
from modalities_pipeline.data.pbin import PackedFileWriter, token_size_for_vocab
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.data.text_extraction import BadDocumentError, TextExtractor
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings
from modalities_pipeline.exceptions import DatasetFormatError
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

logger = logging.getLogger(__name__)

SKIP_REASONS = ("unreadable_line", "missing_text", "not_a_string", "empty_text")

_MAX_BATCH_IN_BYTES = 16 << 20
_MAX_REPORTED_SKIPS = 1000


class DocumentPacker:
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
