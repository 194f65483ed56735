"""Stage shuffled_chunks: a share of the documents of several `.pbin` files, in random order."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity, input_digest_of, produce
from modalities_pipeline.data.packed_inputs import (
    common_token_size,
    common_tokenizer_details,
    numbered_inputs,
    tokenizer_inputs,
)
from modalities_pipeline.exceptions import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from modalities_pipeline.data.pbin import PackedFile

    Places = NDArray[np.int64]  # (number of the file, position of the document), shape (n, 2)
    Order = Callable[[list[PackedFile], int, int], Places]

STAGE = "shuffled_chunks"
CODE_VERSION = "1"

_WRITE_BATCH_IN_DOCUMENTS = 1000


def identity(
    input_digests: Sequence[str],
    chunk_id: int,
    num_chunks: int,
    global_seed: int | None = None,
    shuffle: bool = True,
    tokenizer: Mapping[str, str] | None = None,
) -> StageIdentity:
    """Identity of one chunk of inputs with these digests, in order; `tokenizer` is their `tokenizer_inputs`."""
    settings = {"chunk_id": chunk_id, "num_chunks": num_chunks, "global_seed": global_seed, "shuffle": shuffle}
    return StageIdentity(STAGE, CODE_VERSION, settings, {**numbered_inputs(input_digests), **(tokenizer or {})})


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
    shuffle: bool = True,
) -> Manifest | None:
    """Cut every input into `num_chunks` shares, join the `chunk_id`-th ones and shuffle their documents.

    All chunks together hold every document exactly once. Memory holds the indices of the inputs, not their tokens.
    Without `global_seed` the order is another one each time. With `shuffle` False the chunk is a share of the inputs
    joined one after the other, so that all chunks in order hold the documents in their order.

    Raises:
        DatasetNotFoundError, DatasetFormatError: an input is missing or damaged.
        UserError: token sizes or tokenizers differ, the chunk has no documents, the chunk number is impossible, or the
            output is an input.
        OutputExistsError: the output exists and the policy is ERROR.
    """
    from modalities_pipeline.data.pbin import PackedFile

    chunk_range(num_chunks, 0, chunk_id)
    order = functools.partial(_shuffled, global_seed=global_seed) if shuffle else _in_order

    def made_from() -> StageIdentity:
        digests = [input_digest_of(path) for path in file_paths]
        return identity(digests, chunk_id, num_chunks, global_seed, shuffle, tokenizer_inputs(file_paths))

    def build(temporary: Path) -> BuildResult:
        return _build([PackedFile(path) for path in file_paths], chunk_id, num_chunks, order, temporary)

    return produce(output_path, file_paths, file_existence_policy, made_from, build)


def _build(files: list[PackedFile], chunk_id: int, num_chunks: int, order: Order, output_path: Path) -> BuildResult:
    from modalities_pipeline.data.pbin import PackedFileWriter

    token_size = common_token_size(files)
    places = order(files, chunk_id, num_chunks)
    if not len(places):
        largest = max(file.num_documents for file in files)
        raise UserError(
            f"Chunk {chunk_id} of {num_chunks} has no documents: the largest of the {len(files)} inputs has {largest}. "
            + (f"Use at most {largest} chunks." if largest else "Pack documents first.")
        )
    with PackedFileWriter(output_path, token_size) as writer:
        for start in range(0, len(places), _WRITE_BATCH_IN_DOCUMENTS):
            batch = places[start : start + _WRITE_BATCH_IN_DOCUMENTS].tolist()
            writer.write_bytes([files[number].document_bytes(position) for number, position in batch])
    counts: dict[str, int | float] = {"num_documents": writer.num_documents, "num_tokens": writer.num_tokens}
    tokenizer = common_tokenizer_details([file.path for file in files])
    return BuildResult(counts, {"token_size_in_bytes": token_size, **tokenizer})


def _shuffled(files: list[PackedFile], chunk_id: int, num_chunks: int, global_seed: int | None) -> Places:
    """The `chunk_id`-th share of every file, shuffled."""
    import numpy as np

    shares = [
        _places(number, *chunk_range(num_chunks, file.num_documents, chunk_id)) for number, file in enumerate(files)
    ]
    places = np.concatenate(shares)
    seed = None if global_seed is None else calculate_hashed_seed([str(global_seed), str(chunk_id)])
    np.random.default_rng(seed).shuffle(places)
    return places


def _in_order(files: list[PackedFile], chunk_id: int, num_chunks: int) -> Places:
    """The `chunk_id`-th share of all documents of all files, in their order."""
    import numpy as np

    places = np.concatenate([_places(number, 0, file.num_documents) for number, file in enumerate(files)])
    start, end = chunk_range(num_chunks, len(places), chunk_id)
    return places[start:end]


def _places(number: int, start: int, end: int) -> Places:
    """Documents `start` to `end` of file `number`."""
    import numpy as np

    return np.stack([np.full(end - start, number), np.arange(start, end)], axis=1)
