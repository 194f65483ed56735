"""Random access to lines."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data.jsonl import LargeFileLinesReader, write_index
from modalities_pipeline.data.packed.offset_table import OffsetTable
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError


def test_lines_are_those_of_modalities(vectors: Path) -> None:
    cases = json.loads((vectors / "reader.json").read_text("utf-8"))
    assert len(cases) == 8
    for case in cases:
        paths = [vectors / Path(case[key]).name for key in ("file", "index")]
        if "error" in case:
            with pytest.raises(ValueError, match="empty"):
                LargeFileLinesReader(*paths, **case["kwargs"])
            continue
        with LargeFileLinesReader(*paths, **case["kwargs"]) as reader:
            assert len(reader) == case["len"]
            assert [{"hex": x.hex()} if isinstance(x, bytes) else x for x in reader] == case["items"]


def test_positions_count_from_the_end_too_and_end_with_an_index_error(vectors: Path) -> None:
    with LargeFileLinesReader(vectors / "five.jsonl", use_sample_length_from_index=False) as reader:
        assert reader[-1] == reader[4]
        assert reader[-1] != ""
        with pytest.raises(IndexError):
            _ = reader[5]


def test_the_default_index_lies_beside_the_file(write_lines: Callable[..., Path]) -> None:
    path = write_lines("a.train.jsonl", ["1", "2"])
    build_raw_index(path)
    assert path.with_name("a.train.idx").is_file()
    with LargeFileLinesReader(path) as reader:
        assert list(reader) == ["1", "2"]


def test_physical_line_numbers_count_blank_lines(write_lines: Callable[..., Path]) -> None:
    """B002."""
    path = write_lines("a.jsonl", ["1", "", " ", "2", "3"])
    build_raw_index(path)
    with LargeFileLinesReader(path) as reader:
        assert [reader.line_number(position) for position in range(3)] == [1, 4, 5]


def test_a_missing_file_or_index_is_named(tmp_path: Path, write_lines: Callable[..., Path]) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"nowhere\.jsonl"):
        LargeFileLinesReader(tmp_path / "nowhere.jsonl")
    with pytest.raises(DatasetNotFoundError, match=r"a\.idx.*Create the raw index"):
        LargeFileLinesReader(write_lines("a.jsonl", ["1"]))


def test_an_index_that_reaches_beyond_the_file_is_refused(write_lines: Callable[..., Path]) -> None:
    """B007."""
    path = write_lines("a.jsonl", ["1", "2"])
    path.with_suffix(".idx").write_bytes(pickle.dumps([(0, 1), (2, 9)], protocol=4))
    with pytest.raises(DatasetFormatError, match="changed after"):
        LargeFileLinesReader(path)


def test_an_empty_index_file_is_refused(write_lines: Callable[..., Path]) -> None:
    """B007."""
    path = write_lines("a.jsonl", ["1"])
    path.with_suffix(".idx").touch()
    with pytest.raises(DatasetFormatError, match=r"a\.idx"):
        LargeFileLinesReader(path)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [([(0, 1), (-1, 1)], "negative"), ([(0, -1)], "negative"), ([(2, 2**62)], "beyond"), ([(2**63 - 1, 1)], "beyond")],
)
def test_an_index_with_impossible_numbers_is_refused(
    write_lines: Callable[..., Path], pairs: list[tuple[int, int]], message: str
) -> None:
    path = write_lines("a.jsonl", ["1", "2"])
    path.with_suffix(".idx").write_bytes(pickle.dumps(pairs, protocol=4))
    with pytest.raises(DatasetFormatError, match=rf"a\.idx.*{message}"):
        LargeFileLinesReader(path)


def test_an_index_in_another_order_gives_lines_by_its_own_lengths_only(write_lines: Callable[..., Path]) -> None:
    path = write_lines("a.jsonl", ["1", "2", "3"])
    path.with_suffix(".idx").write_bytes(pickle.dumps([(4, 1), (0, 1)], protocol=4))
    with LargeFileLinesReader(path) as reader:
        assert list(reader) == ["3", "1"]
    with pytest.raises(DatasetFormatError, match="in their order"):
        LargeFileLinesReader(path, use_sample_length_from_index=False)


def test_large_indices_are_used_where_they_lie(tmp_path: Path) -> None:
    """B009."""
    number = 70_000
    (tmp_path / "a.jsonl").write_bytes(b"1\n" * number)
    write_index(tmp_path / "a.idx", OffsetTable.from_arrays(range(0, 2 * number, 2), [1] * number))
    assert pickle.loads((tmp_path / "a.idx").read_bytes())[-1] == (2 * number - 2, 1)
    for uses_lengths, line in ((True, "1"), (False, "1\n")):
        with LargeFileLinesReader(tmp_path / "a.jsonl", use_sample_length_from_index=uses_lengths) as reader:
            assert len(reader) == number
            assert reader[-1] == reader[number - 1] == line
            assert reader.line_number(-1) == number


def test_a_reader_of_an_index_without_lines_is_empty(write_lines: Callable[..., Path]) -> None:
    path = write_lines("a.jsonl", [""])
    write_index(path.with_suffix(".idx"), OffsetTable.from_arrays([], []))
    for uses_lengths in (True, False):
        with LargeFileLinesReader(path, use_sample_length_from_index=uses_lengths) as reader:
            assert list(reader) == []


def test_lines_that_an_index_without_manifest_does_not_know_are_no_silent_loss(
    write_lines: Callable[..., Path],
) -> None:
    """B007."""
    source = write_lines("a.jsonl", ["1", "22", ""])
    write_index(source.with_suffix(".idx"), OffsetTable.from_arrays([0, 2], [1, 2]))
    with LargeFileLinesReader(source) as reader:
        assert list(reader) == ["1", "22"]
    with open(source, "ab") as file:
        file.write(b"\n333\n")
    with pytest.raises(DatasetFormatError, match=r"a\.idx does not fit .*a\.jsonl: it has lines from byte 4 on"):
        LargeFileLinesReader(source)


@pytest.mark.parametrize(("offset", "length"), [(0, 2), (1, 1), (0, 0), (3, 2), (3, 4)])
def test_what_is_not_a_line_is_never_given_as_one(write_lines: Callable[..., Path], offset: int, length: int) -> None:
    """B007."""
    source = write_lines("a.jsonl", ["111", "222"])
    write_index(source.with_suffix(".idx"), OffsetTable.from_arrays([offset, 4], [length, 3]))
    with (
        LargeFileLinesReader(source) as reader,
        pytest.raises(DatasetFormatError, match="entry 0 is not a line of it"),
    ):
        reader[0]


def test_a_file_of_another_size_than_was_indexed_is_refused(write_lines: Callable[..., Path]) -> None:
    """B007: also where the index leaves faulty lines out."""
    source = write_lines("a.jsonl", ["1", "{"])
    build_raw_index(source, drop_faulty_entries=True)
    with LargeFileLinesReader(source) as reader:
        assert list(reader) == ["1"]
    with open(source, "ab") as file:
        file.write(b"3\n")
    with pytest.raises(DatasetFormatError, match=r"a\.idx does not fit .*a\.jsonl: it has 6 bytes and had 4"):
        LargeFileLinesReader(source)
