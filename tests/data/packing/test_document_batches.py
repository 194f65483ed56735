"""Documents in batches."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data.jsonl import write_index
from modalities_pipeline.data.packed.offset_table import OffsetTable
from modalities_pipeline.data.packing.document_batches import DocumentBatches
from modalities_pipeline.data.packing.text_extraction import TextExtractor
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.exceptions import DatasetFormatError

Open = Callable[..., DocumentBatches]


@pytest.fixture
def open_batches() -> Open:
    """Function (source, whether its index is complete) -> its documents; indexes it unless there is an index."""

    def run(source: Path, is_complete: bool = True) -> DocumentBatches:
        if not source.with_suffix(".idx").exists():
            build_raw_index(source)
        return DocumentBatches(source, source.with_suffix(".idx"), TextExtractor(".text"), is_complete)

    return run


@pytest.mark.parametrize("max_documents", [1, 3, 1000])
@pytest.mark.parametrize("max_bytes", [1, 50, 10_000])
def test_batches_hold_all_documents_in_order_and_are_bounded(
    write_lines: Callable[..., Path], open_batches: Open, max_documents: int, max_bytes: int
) -> None:
    lengths = [0, 5, 200, 1, 1, 1, 30, 30, 0, 7]
    lines = [json.dumps({"text": "x" * length}) for length in lengths]
    with open_batches(write_lines("a.jsonl", lines)) as documents:
        batches = list(documents.batches(max_documents, max_bytes))
        assert len(documents) == len(lengths)
    assert [len(text) for batch in batches for text in batch.texts] == lengths
    assert [batch.start for batch in batches] == [0, *(batch.end for batch in batches[:-1])]
    for batch in batches:
        assert 1 <= batch.end - batch.start <= max_documents
        size = sum(len(line) for line in lines[batch.start : batch.end])
        assert size <= max_bytes or batch.end - batch.start == 1


def test_bad_documents_keep_their_positions(write_lines: Callable[..., Path], open_batches: Open) -> None:
    lines = ['{"text": "a"}', '{"x": 1}', '{"text": "b"}', '{"text": 3}', '{"text": "c"}']
    with open_batches(write_lines("a.jsonl", lines)) as documents:
        batches = list(documents.batches(2, 1000))
    assert [list(batch.text_positions()) for batch in batches] == [[0], [2], [4]]
    assert [(position, error.reason) for batch in batches for position, error in batch.faults] == [
        (1, "missing_text"),
        (3, "not_a_string"),
    ]


def test_places_count_physical_lines(write_lines: Callable[..., Path], open_batches: Open) -> None:
    """B002."""
    source = write_lines("a.jsonl", ["", '{"text": "a"}', "  ", "", '{"text": "b"}\r', '{"text": "c"}'])
    with open_batches(source) as documents:
        assert [documents.place_of(position) for position in (0, 1, 1, 2, 0)] == [
            (2, 1),
            (5, 19),
            (5, 19),
            (6, 34),
            (2, 1),
        ]


def test_an_index_in_any_order_with_gaps_is_followed(write_lines: Callable[..., Path], open_batches: Open) -> None:
    lines = [json.dumps({"text": f"{number}" * 40_000}) for number in range(6)]
    source = write_lines("a.jsonl", lines)
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(6)]
    order = [5, 0, 3, 3]
    table = OffsetTable.from_arrays([starts[number] for number in order], [len(lines[number]) for number in order])
    write_index(source.with_suffix(".idx"), table)
    with open_batches(source, is_complete=False) as documents:
        found = [text[0] for batch in documents.batches(100, 1 << 20) for text in batch.texts]
    assert found == ["5", "0", "3", "3"]


def test_a_file_that_becomes_shorter_is_an_error_and_no_crash(
    write_lines: Callable[..., Path], open_batches: Open
) -> None:
    source = write_lines("a.jsonl", [json.dumps({"text": "x" * 5000})] * 20)
    with open_batches(source) as documents:
        batches = documents.batches(1, 1)
        next(batches)
        with open(source, "r+b") as file:
            file.truncate(20_000)
        with pytest.raises(DatasetFormatError, match=r"a\.jsonl became shorter while it was read"):
            list(batches)


def test_a_sample_is_bounded_and_comes_from_the_whole_file(
    write_lines: Callable[..., Path], open_batches: Open
) -> None:
    lines = [json.dumps({"text": f"{number:04}" + "x" * 2000}) for number in range(2000)]
    lines[5] = '{"no": "text"}'
    with open_batches(write_lines("a.jsonl", lines)) as documents:
        sample = documents.sample()
        assert sample == documents.sample()
    numbers = [int(text[:4]) for text in sample]
    assert numbers[:7] == [0, 1, 2, 3, 4, 6, 7]
    assert len(set(numbers)) == len(numbers)
    quarters = {number // 500 for number in numbers}
    assert quarters == {0, 1, 2, 3}
    assert 2000 * 2000 / 40 < sum(map(len, sample)) < 2000 * 2000 / 25


def test_a_sample_of_huge_documents_is_cut(write_lines: Callable[..., Path], open_batches: Open) -> None:
    source = write_lines("a.jsonl", [json.dumps({"text": "x" * 3_000_000})] * 4)
    with open_batches(source) as documents:
        sample = documents.sample()
    assert len(sample) == 4
    assert sum(map(len, sample)) <= 512 << 10


def test_a_sample_of_a_small_file_is_small(write_lines: Callable[..., Path], open_batches: Open) -> None:
    with open_batches(write_lines("a.jsonl", [json.dumps({"text": "x" * 500})] * 50)) as documents:
        assert 4000 <= sum(map(len, documents.sample())) <= 4600


def test_a_file_that_the_system_gives_in_pieces_is_read_whole(
    write_lines: Callable[..., Path], open_batches: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps({"text": f"document {number}"}) for number in range(20)]
    read = os.pread
    with open_batches(write_lines("a.jsonl", lines)) as documents:
        monkeypatch.setattr(os, "pread", lambda file, size, offset: read(file, min(size, 7), offset))
        texts = [text for batch in documents.batches(3, 1000) for text in batch.texts]
        assert documents.place_of(19) == (20, sum(len(line) + 1 for line in lines[:19]))
    assert texts == [f"document {number}" for number in range(20)]
