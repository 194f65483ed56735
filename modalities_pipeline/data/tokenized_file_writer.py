"""Writes token ids that come from anywhere (a list, a generator, another library) as a `.pbin` file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.files import FileExistencePolicy, digest_file
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity
from modalities_pipeline.data.packed.packed_file_writer import PackedFileWriter, flatten_documents
from modalities_pipeline.data.pbin import token_size_for_vocab
from modalities_pipeline.data.production import produce
from modalities_pipeline.exceptions import UserError

STAGE = "tokenized_file"
CODE_VERSION = "1"

_MAX_BATCH_IN_TOKENS = 1 << 20


class TokenizedFileWriter:
    """Home of `write_tokenized_dataset`, as in Modalities."""

    @staticmethod
    def write_tokenized_dataset(
        tokenized_dataset: Iterable[NDArray[np.integer[Any]]],
        tokenized_dataset_file_path: Path,
        write_batch_size: int = 10_000,
        token_size_in_bytes: int | None = None,
    ) -> Manifest | None:
        """Write documents into a new file, which replaces an older one once it is complete.

        Args:
            tokenized_dataset: documents, each an integer array of shape (length,); read once, so a generator will do.
            tokenized_dataset_file_path: the file.
            write_batch_size: documents at most that are put together in memory before they are written.
            token_size_in_bytes: 1, 2 or 4; None: the smallest that holds the largest id, as for a vocabulary that ends
                with it (Modalities takes the vocabulary one token too small, and fails for ids 0, 256 and 65536).

        Raises:
            DatasetFormatError: a document does not consist of integers in the range of the token size.
            UserError: there are no documents, the token size is another one, or the batch size is not positive.
        """
        if write_batch_size < 1:
            raise UserError(f"write_batch_size must be at least 1, not {write_batch_size}.")
        path = Path(tokenized_dataset_file_path)
        batches = _batches(tokenized_dataset, write_batch_size)

        def build(temporary: Path) -> BuildResult:
            if token_size_in_bytes is None:
                return _write_narrowly(batches, temporary)
            return _write(batches, temporary, token_size_in_bytes)

        identity = StageIdentity(STAGE, CODE_VERSION, {"token_size_in_bytes": token_size_in_bytes}, {})
        return produce(path, [], FileExistencePolicy.OVERRIDE, lambda: identity, build)


def _batches(documents: Iterable[Any], max_documents: int) -> Iterator[list[Any]]:
    batch: list[Any] = []
    num_tokens = 0
    for document in documents:
        batch.append(document)
        num_tokens += len(document)
        if len(batch) == max_documents or num_tokens >= _MAX_BATCH_IN_TOKENS:
            yield batch
            batch, num_tokens = [], 0
    if batch:
        yield batch


def _write(batches: Iterable[list[Any]], path: Path, token_size: int) -> BuildResult:
    with PackedFileWriter(path, token_size) as writer:
        for batch in batches:
            writer.write_flat(*flatten_documents(batch, writer.dtype, "The dataset: ", writer.num_documents))
    return _result(writer, path)


def _write_narrowly(batches: Iterable[list[Any]], path: Path) -> BuildResult:
    """Keep all ids in a nameless file, which the system frees whatever happens, until the largest one is known."""
    widest = np.dtype("<u4")
    largest_id = 0
    num_documents, lengths_of_batches = 0, []
    with tempfile.TemporaryFile(dir=path.parent) as spool:
        for batch in batches:
            tokens, lengths = flatten_documents(batch, widest, "The dataset: ", num_documents)
            num_documents += len(lengths)
            lengths_of_batches.append(lengths)
            largest_id = max(largest_id, int(tokens.max(initial=0)))
            spool.write(tokens.data)
        spool.seek(0)
        with PackedFileWriter(path, token_size_for_vocab(largest_id + 1)) as writer:
            for lengths in lengths_of_batches:
                tokens = np.frombuffer(spool.read(int(lengths.sum()) * widest.itemsize), dtype=widest)
                writer.write_flat(tokens.astype(writer.dtype), lengths)
    return _result(writer, path)


def _result(writer: PackedFileWriter, path: Path) -> BuildResult:
    """Where the documents come from is unknown, so the digest of the file stands for them as the input."""
    if not writer.num_documents:
        raise UserError("The tokenized dataset has no documents, so there is nothing to write.")
    counts: dict[str, int | float] = {"num_documents": writer.num_documents, "num_tokens": writer.num_tokens}
    digest = digest_file(path)
    return BuildResult(counts, {"token_size_in_bytes": writer.token_size_in_bytes}, {"documents": digest}, digest)
