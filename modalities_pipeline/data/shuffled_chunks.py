"""Stage shuffled_chunks: a share of the documents of several `.pbin` files, in random order."""

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.files import (
    FileExistencePolicy,
    enforce_file_existence_policy,
    refuse_output_among_inputs,
)
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity, digest_of, produce
from modalities_pipeline.data.packed_inputs import common_token_size, common_tokenizer_details, numbered_inputs
from modalities_pipeline.data.pbin import PackedFile, PackedFileWriter
from modalities_pipeline.exceptions import UserError

STAGE = "shuffled_chunks"
CODE_VERSION = "1"

_WRITE_BATCH_IN_DOCUMENTS = 1000


def identity(
    input_digests: Sequence[str], chunk_id: int, num_chunks: int, global_seed: int | None = None
) -> StageIdentity:
    """Identity of one chunk of inputs with these digests, in order."""
    settings = {"chunk_id": chunk_id, "num_chunks": num_chunks, "global_seed": global_seed}
    return StageIdentity(STAGE, CODE_VERSION, settings, numbered_inputs(input_digests))


def calculate_hashed_seed(input_data: list[str], max_seed: int = 2**32 - 1) -> int:
    """Seed in [0, max_seed) from strings: the sum of their SHA-256 values, so their order does not matter."""
    return sum(int(hashlib.sha256(text.encode()).hexdigest(), 16) for text in input_data) % max_seed


def chunk_range(num_chunks: int, num_samples: int, chunk_id: int) -> tuple[int, int]:
    """Start and end of chunk `chunk_id` of `num_samples` samples; the first chunks get one more where it is uneven.

    Raises:
        UserError: `num_chunks` is not positive or `chunk_id` not in [0, num_chunks).
    """
    if num_chunks < 1:
        raise UserError(f"num_chunks must be at least 1, not {num_chunks}.")
    if not 0 <= chunk_id < num_chunks:
        raise UserError(f"chunk_id must be in 0..{num_chunks - 1} for {num_chunks} chunks, not {chunk_id}.")
    quotient, remainder = divmod(num_samples, num_chunks)
    start = chunk_id * quotient + min(chunk_id, remainder)
    return start, start + quotient + (chunk_id < remainder)


def build_shuffled_chunk(
    file_paths: Sequence[Path],
    output_path: Path,
    chunk_id: int,
    num_chunks: int,
    file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR,
    global_seed: int | None = None,
) -> Manifest | None:
    """Cut every input into `num_chunks` shares, join the `chunk_id`-th ones and shuffle their documents.

    All chunks together hold every document exactly once. Memory holds the indices of the inputs, not their tokens.
    Without `global_seed` the order is another one each time.

    Raises:
        DatasetNotFoundError, DatasetFormatError: an input is missing or damaged.
        UserError: token sizes or tokenizers differ, the chunk has no documents, the chunk number is impossible, or the
            output is an input.
        OutputExistsError: the output exists and the policy is ERROR.
    """
    chunk_range(num_chunks, 0, chunk_id)
    refuse_output_among_inputs(output_path, list(file_paths))
    if enforce_file_existence_policy(output_path, file_existence_policy):
        return None
    files = [PackedFile(path) for path in file_paths]
    return produce(
        identity([digest_of(path) for path in file_paths], chunk_id, num_chunks, global_seed),
        output_path,
        functools.partial(_build, files, chunk_id, num_chunks, global_seed),
        file_existence_policy,
    )


def _build(
    files: list[PackedFile], chunk_id: int, num_chunks: int, global_seed: int | None, output_path: Path
) -> BuildResult:
    token_size = common_token_size(files)
    places = np.concatenate([_places(number, file, chunk_id, num_chunks) for number, file in enumerate(files)])
    if not len(places):
        largest = max(file.num_documents for file in files)
        raise UserError(
            f"Chunk {chunk_id} of {num_chunks} has no documents: the largest of the {len(files)} inputs has {largest}. "
            + (f"Use at most {largest} chunks." if largest else "Pack documents first.")
        )
    seed = None if global_seed is None else calculate_hashed_seed([str(global_seed), str(chunk_id)])
    np.random.default_rng(seed).shuffle(places)
    with PackedFileWriter(output_path, token_size) as writer:
        for start in range(0, len(places), _WRITE_BATCH_IN_DOCUMENTS):
            batch = places[start : start + _WRITE_BATCH_IN_DOCUMENTS].tolist()
            writer.write_bytes([files[number].document_bytes(position) for number, position in batch])
    counts: dict[str, int | float] = {"num_documents": writer.num_documents, "num_tokens": writer.num_tokens}
    return BuildResult(counts, common_tokenizer_details(files))


def _places(number: int, file: PackedFile, chunk_id: int, num_chunks: int) -> NDArray[np.int64]:
    """(number of the file, position of the document) of one file's share, shape (n, 2)."""
    start, end = chunk_range(num_chunks, file.num_documents, chunk_id)
    return np.stack([np.full(end - start, number), np.arange(start, end)], axis=1)
