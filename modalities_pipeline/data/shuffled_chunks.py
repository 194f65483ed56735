"""Stage shuffled_chunks: a share of the documents of several `.pbin` files, in random order."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity, input_digest_of
from modalities_pipeline.data.packed.packed_inputs import numbered_inputs, open_packed_files, tokenizer_inputs
from modalities_pipeline.data.production import produce
from modalities_pipeline.exceptions import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from modalities_pipeline.data.pbin import PackedFile

STAGE = "shuffled_chunks"
CODE_VERSION = "2"


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

    All chunks together hold every document exactly once. Without `global_seed` the order is another one each time. With
    `shuffle` False the chunk is a share of the inputs joined one after the other, so that all chunks in order hold the
    documents in their order. Memory holds some 30 bytes per document of the chunk.

    Raises:
        DatasetNotFoundError, DatasetFormatError: an input is missing or damaged.
        UserError: token sizes or tokenizers differ, the chunk has no documents, the chunk number is impossible, or the
            output is an input.
        OutputExistsError: the output exists and the policy is ERROR.
    """
    chunk_range(num_chunks, 0, chunk_id)

    def made_from() -> StageIdentity:
        digests = [input_digest_of(path) for path in file_paths]
        return identity(digests, chunk_id, num_chunks, global_seed, shuffle, tokenizer_inputs(file_paths))

    def build(temporary: Path) -> BuildResult:
        from modalities_pipeline.data.packed.document_copy import Share, write_documents

        files = open_packed_files(file_paths)
        sizes = [_count_documents(file) for file in files]
        cuts = (_cuts_of_each if shuffle else _cuts_of_all)(sizes, chunk_id, num_chunks)
        shares = [Share(file, start, end) for file, (start, end) in zip(files, cuts, strict=True)]
        num_documents = sum(share.num_documents for share in shares)
        if not num_documents:
            raise UserError(_no_documents(sizes, chunk_id, num_chunks, shuffle))
        order = _order(num_documents, chunk_id, global_seed, shuffle)
        return write_documents(shares, order, f"Writing chunk {chunk_id} of {num_chunks}", temporary)

    return produce(output_path, file_paths, file_existence_policy, made_from, build)


def _count_documents(file: PackedFile) -> int:
    """Number of documents; the file is let go of, because there may be thousands."""
    with file:
        return file.num_documents


def _cuts_of_each(sizes: list[int], chunk_id: int, num_chunks: int) -> list[tuple[int, int]]:
    """Start and end of the `chunk_id`-th share of every file; `sizes` are their numbers of documents."""
    return [chunk_range(num_chunks, size, chunk_id) for size in sizes]


def _cuts_of_all(sizes: list[int], chunk_id: int, num_chunks: int) -> list[tuple[int, int]]:
    """Start and end, in every file, of the `chunk_id`-th share of all documents of all files, in their order."""
    start, end = chunk_range(num_chunks, sum(sizes), chunk_id)
    firsts = itertools.accumulate(sizes, initial=0)
    return [
        (min(max(start - first, 0), size), min(max(end - first, 0), size))
        for first, size in zip(firsts, sizes, strict=False)
    ]


def _order(num_documents: int, chunk_id: int, global_seed: int | None, shuffle: bool) -> NDArray[np.int64]:
    """The order of the documents of a chunk, a permutation of 0..num_documents-1."""
    import numpy as np

    order = np.arange(num_documents)
    if shuffle:
        seed = None if global_seed is None else calculate_hashed_seed([str(global_seed), str(chunk_id)])
        np.random.default_rng(seed).shuffle(order)
    return order


def _no_documents(sizes: list[int], chunk_id: int, num_chunks: int, shuffle: bool) -> str:
    usable = max(sizes) if shuffle else sum(sizes)
    what = f"the largest of the {len(sizes)} inputs has {usable}" if shuffle else f"the inputs have {usable}"
    advice = f"Use at most {usable} chunks." if usable else "Pack documents first."
    return f"Chunk {chunk_id} of {num_chunks} has no documents: {what}. {advice}"
