"""Encoding batches in threads while the next ones are read. Nothing here can hang: a failure in a thread is raised."""

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from modalities_pipeline.data.packing.document_batches import DocumentBatch
from modalities_pipeline.exceptions import UserError
from modalities_pipeline.tokenization.encoders import Encoder, FlatTokens
from modalities_pipeline.tokenization.fast_backend import is_failure_of_library

_MAX_FAST_THREADS = 4  # reading, which one thread does, keeps no more of them busy


def encode_ahead(
    encoder: Encoder, batches: Iterable[DocumentBatch], num_cpus: int
) -> Iterator[tuple[DocumentBatch, FlatTokens]]:
    """Each batch with the ids of its texts, in order.

    `num_cpus` threads encode, but one of them reads where reading is no small part of the work. Batches waiting or at
    work are at most two more than these threads.

    Raises:
        UserError: the encoder fails on a batch; those not yet encoded are dropped.
    """
    remaining = iter(batches)
    first = list(itertools.islice(remaining, 2))
    # Threads take longer to start than a small file to encode.
    num_threads = _num_threads(encoder, num_cpus) if len(first) > 1 else 0
    batches = itertools.chain(first, remaining)
    del first  # a huge document would stay in memory
    if not num_threads:
        yield from ((batch, _encode(encoder, batch)) for batch in batches)
        return
    pending: deque[tuple[DocumentBatch, Future[FlatTokens]]] = deque()
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="encoder")
    try:
        for batch in batches:
            pending.append((batch, pool.submit(_encode, encoder, batch)))
            if len(pending) > num_threads + 1:
                oldest, future = pending.popleft()
                yield oldest, future.result()
        while pending:
            oldest, future = pending.popleft()
            yield oldest, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _encode(encoder: Encoder, batch: DocumentBatch) -> FlatTokens:
    try:
        return encoder.encode(batch.texts)
    except BaseException as error:
        if isinstance(error, MemoryError) or not is_failure_of_library(error):
            raise
        advice = "Set tokenizer_backend: reference, or use" if encoder.is_fast else "Use"
        raise UserError(
            f"{encoder.name} {encoder.version} cannot tokenize documents {batch.start} to {batch.end - 1} "
            f"({type(error).__name__}: {error}). {advice} another tokenizer."
        ) from error


def _num_threads(encoder: Encoder, num_cpus: int) -> int:
    """Threads beside the calling one; none if that is the only one allowed, or others would gain nothing.

    Beside a fast encoder reading takes a CPU of its own; beside a slow one it is negligible.
    """
    if num_cpus == 1:
        return 0
    if not encoder.is_concurrent:
        return 1
    return min(num_cpus - 1, _MAX_FAST_THREADS) if encoder.is_fast else num_cpus
