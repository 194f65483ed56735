"""Encoding in threads."""

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from modalities_pipeline.data.packing.document_batches import DocumentBatch
from modalities_pipeline.data.packing.encode_ahead import encode_ahead
from modalities_pipeline.exceptions import DatasetFormatError, UserError
from modalities_pipeline.tokenization.encoders import Encoder, FlatTokens, flatten


class LengthEncoder(Encoder):
    """One id per text, its length; notes how many threads were in it at once."""

    name, version = "length", "7"
    is_concurrent = True

    def __init__(self, is_fast: bool = False, fails_at: str | None = None, error: BaseException | None = None) -> None:
        self.is_fast = is_fast
        self.most_at_once = self._at_once = 0
        self.threads: set[str] = set()
        self._lock = threading.Lock()
        self._fails_at, self._error = fails_at, error

    def encode(self, texts: Sequence[str]) -> FlatTokens:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self.threads.add(threading.current_thread().name)
        time.sleep(0.002)
        with self._lock:
            self._at_once -= 1
        if self._error is not None and self._fails_at in texts:
            raise self._error
        return flatten([[len(text)] for text in texts], "q")


def _batches(number: int, read: list[int] | None = None) -> Iterator[DocumentBatch]:
    for position in range(number):
        if read is not None:
            read.append(position)
        yield DocumentBatch(position, position + 1, ["x" * position], [])


@pytest.mark.parametrize("num_cpus", [1, 2, 5])
@pytest.mark.parametrize("num_batches", [0, 1, 2, 40])
@pytest.mark.parametrize("is_fast", [False, True])
def test_batches_come_in_order_whatever_the_threads(num_cpus: int, num_batches: int, is_fast: bool) -> None:
    encoder = LengthEncoder(is_fast)
    found = [
        (batch.start, tokens.ids.tolist()) for batch, tokens in encode_ahead(encoder, _batches(num_batches), num_cpus)
    ]
    assert found == [(position, [position]) for position in range(num_batches)]


@pytest.mark.parametrize(
    ("num_cpus", "is_fast", "is_concurrent", "expected"),
    [
        (1, False, True, 1),
        (1, True, True, 1),
        (3, False, True, 3),
        (3, True, True, 2),
        (64, True, True, 4),
        (3, False, False, 1),
    ],
)
def test_no_more_threads_encode_than_there_are_cpus(
    num_cpus: int, is_fast: bool, is_concurrent: bool, expected: int
) -> None:
    encoder = LengthEncoder(is_fast)
    encoder.is_concurrent = is_concurrent
    list(encode_ahead(encoder, _batches(50), num_cpus))
    assert encoder.most_at_once == len(encoder.threads) == expected
    assert (threading.current_thread().name in encoder.threads) == (num_cpus == 1)


def test_reading_never_runs_far_ahead_of_encoding() -> None:
    read: list[int] = []
    for batch, _ in encode_ahead(LengthEncoder(), _batches(100, read), 2):
        assert read[-1] - batch.start <= 4


@pytest.mark.parametrize("num_cpus", [1, 3])
@pytest.mark.parametrize("error", [ValueError("broken"), type("PanicException", (BaseException,), {})("broken")])
def test_a_failing_encoder_stops_the_work_with_an_error(num_cpus: int, error: BaseException) -> None:
    encoder = LengthEncoder(True, fails_at="x" * 9, error=error)
    done = []
    started = time.monotonic()
    with pytest.raises(UserError, match=r"length 7 cannot tokenize documents 9 to 9 .*broken.*backend: reference"):
        done.extend(batch.start for batch, _ in encode_ahead(encoder, _batches(1000), num_cpus))
    assert done == [] or done[-1] < 9
    assert time.monotonic() - started < 5
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("encoder")]


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
def test_what_is_not_the_encoders_fault_passes(error: BaseException) -> None:
    encoder = LengthEncoder(fails_at="x" * 9, error=error)
    with pytest.raises(type(error)):
        list(encode_ahead(encoder, _batches(1000), 3))


@pytest.mark.parametrize("num_cpus", [1, 3])
def test_a_failing_reader_stops_the_work_with_its_error(num_cpus: int) -> None:
    def batches() -> Iterator[DocumentBatch]:
        yield from _batches(9)
        raise DatasetFormatError("cannot be read")

    with pytest.raises(DatasetFormatError, match="cannot be read"):
        list(encode_ahead(LengthEncoder(), batches(), num_cpus))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("encoder")]


def test_no_thread_outlives_a_consumer_that_stops() -> None:
    generator = encode_ahead(LengthEncoder(), _batches(1000), 3)
    next(generator)
    generator.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("encoder")]
