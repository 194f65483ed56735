"""Writes the documents of a raw file as token ids, each ended by the end-of-document token."""

import contextlib
import logging
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.manifest import BuildResult
from modalities_pipeline.data.packing.bad_documents import BadDocuments
from modalities_pipeline.data.packing.document_batches import DocumentBatch, DocumentBatches
from modalities_pipeline.data.packing.document_endings import end_documents
from modalities_pipeline.data.packing.encode_ahead import encode_ahead
from modalities_pipeline.data.packing.text_extraction import BadDocumentError, TextExtractor
from modalities_pipeline.data.pbin import PackedFileWriter, token_size_for_vocab
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings
from modalities_pipeline.exceptions import DatasetFormatError
from modalities_pipeline.tokenization.certification import ChosenEncoder, choose_encoder
from modalities_pipeline.tokenization.encoders import Encoder, FlatTokens, temporary_environment
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

logger = logging.getLogger(__name__)

# Encoders are slower on larger batches, whose ids (and what a slow encoder knows of them) leave the core's cache.
_MAX_BATCH_IN_BYTES = 512 << 10
_MAX_BATCH_OF_SLOW_ENCODER_IN_BYTES = 64 << 10
_NUM_BIT_LENGTHS = 64


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
        self._num_eod_tokens = 0
        self._num_by_bit_length = np.zeros(_NUM_BIT_LENGTHS, dtype=np.int64)

    def pack(self, index_path: Path, output_path: Path, index_is_complete: bool) -> BuildResult:
        """Write the file and report counts; `index_is_complete`: see `DocumentBatches`."""
        settings = self._settings
        token_size = token_size_for_vocab(max(self._tokenizer.vocab_size, self._tokenizer.num_token_ids))
        with (
            DocumentBatches(settings.src_path, index_path, self._extractor, index_is_complete) as documents,
            PackedFileWriter(output_path, token_size) as writer,
            ProgressLog(logger, f"Tokenizing {settings.src_path.name}", len(documents), "documents") as progress,
        ):
            bad = BadDocuments(documents, settings.on_bad_sample)
            may_be_fast = settings.tokenizer_backend == "auto"
            chosen = choose_encoder(self._tokenizer, documents.sample() if may_be_fast else [], may_be_fast)
            with contextlib.closing(self._encoded(documents, chosen.encoder)) as encoded:
                for batch, tokens in encoded:
                    self._write(batch, tokens, documents, bad, writer)
                    progress.update(batch.end)
        counts = self._counts(len(documents), writer, bad)
        if counts["num_documents"] + counts["num_skipped"] != len(documents):
            raise RuntimeError(f"{output_path}: documents were lost while packing: {counts}.")
        if not writer.num_documents:
            reason = f": all {len(documents)} documents were left out ({bad.summary()})" if len(documents) else ""
            if settings.on_bad_sample == "error":
                raise DatasetFormatError(
                    f"{settings.src_path} has no documents{reason}. Leave the file out, or write documents into it."
                )
            logger.warning("%s has no documents%s; its pack is empty.", settings.src_path, reason)
        return BuildResult(counts, self._details(token_size, chosen, bad))

    def _encoded(
        self, documents: DocumentBatches, encoder: Encoder
    ) -> Generator[tuple[DocumentBatch, FlatTokens], None, None]:
        """The file's documents and their ids, encoded in as many threads as the settings allow."""
        settings = self._settings
        max_bytes = _MAX_BATCH_IN_BYTES if encoder.is_fast else _MAX_BATCH_OF_SLOW_ENCODER_IN_BYTES
        batches = documents.batches(settings.processing_batch_size, max_bytes)
        with temporary_environment(encoder.environment):
            yield from encode_ahead(encoder, batches, settings.num_cpus)

    def _write(
        self,
        batch: DocumentBatch,
        tokens: FlatTokens,
        documents: DocumentBatches,
        bad: BadDocuments,
        writer: PackedFileWriter,
    ) -> None:
        """Sort out the bad documents of a batch and write the others."""
        is_empty = tokens.lengths == 0
        faults, positions = list(batch.faults), batch.text_positions()
        if is_empty.any():
            no_tokens = BadDocumentError("empty_text", "the text has no tokens")
            faults += [(positions[number], no_tokens) for number in np.flatnonzero(is_empty).tolist()]
            faults.sort(key=lambda fault: fault[0])
            positions = [positions[number] for number in np.flatnonzero(~is_empty).tolist()]
            tokens = FlatTokens(tokens.ids, tokens.lengths[~is_empty])
        for position, error in faults:
            bad.add(position, error)
        if not positions:
            return
        self._refuse_impossible_ids(tokens, positions, documents)
        ended, lengths = end_documents(tokens, self._eod_token_id, self._tokenizer.padded_length, writer.dtype)
        writer.write_flat(ended, lengths)
        self._num_eod_tokens += int(np.count_nonzero(ended == self._eod_token_id))
        self._num_by_bit_length += np.bincount(_bit_lengths(lengths), minlength=_NUM_BIT_LENGTHS)

    def _refuse_impossible_ids(self, tokens: FlatTokens, positions: Sequence[int], documents: DocumentBatches) -> None:
        """Casting an id that does not fit the token size would change it without a word."""
        num_token_ids = self._tokenizer.num_token_ids
        is_signed = np.issubdtype(tokens.ids.dtype, np.signedinteger)
        if int(tokens.ids.max()) < num_token_ids and not (is_signed and int(tokens.ids.min()) < 0):
            return
        wrong = int(np.argmax((tokens.ids < 0) | (tokens.ids >= num_token_ids)))
        document = int(np.searchsorted(np.cumsum(tokens.lengths), wrong, side="right"))
        line, offset = documents.place_of(positions[document])
        raise DatasetFormatError(
            f"{self._settings.src_path}, line {line} (byte {offset}): the tokenizer gives the id {tokens.ids[wrong]}, "
            f"but says it has {num_token_ids} ids only. Use a sound tokenizer."
        )

    def _counts(self, num_documents_in: int, writer: PackedFileWriter, bad: BadDocuments) -> dict[str, int | float]:
        return {
            "num_documents_in": num_documents_in,
            "num_documents": writer.num_documents,
            "num_skipped": bad.num_skipped,
            **{f"num_skipped_{reason}": number for reason, number in bad.num_by_reason.items()},
            "num_tokens": writer.num_tokens,
            "num_eod_tokens": self._num_eod_tokens,
        }

    def _details(self, token_size: int, chosen: ChosenEncoder, bad: BadDocuments) -> dict[str, Any]:
        return {
            **self._tokenizer_details,
            "tokenizer_backend": chosen.encoder.name,
            "tokenizer_backend_version": chosen.encoder.version,
            "tokenizer_backend_fallback_reason": chosen.fallback_reason,
            "token_size_in_bytes": token_size,
            "token_length_histogram": self._histogram(),
            "skipped": bad.reported,
        }

    def _histogram(self) -> dict[str, list[int]]:
        """Documents by length in tokens; bin i holds lengths in [edges[i], edges[i + 1])."""
        filled = np.flatnonzero(self._num_by_bit_length).tolist()
        if not filled:
            return {"edges": [], "counts": []}
        first, last = filled[0], filled[-1]
        return {
            "edges": [1 << (bits - 1) for bits in range(first, last + 2)],
            "counts": self._num_by_bit_length[first : last + 1].tolist(),
        }


def _bit_lengths(numbers: NDArray[np.int64]) -> NDArray[np.int32]:
    """Bits that each number needs: the binary exponent of its conversion to float, exact below 2^53."""
    return np.frexp(numbers)[1]
