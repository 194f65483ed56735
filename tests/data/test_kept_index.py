"""An index that is there already is kept only if it can be used."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.jsonl import read_index
from modalities_pipeline.data.manifest import manifest_path
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.exceptions import DatasetFormatError


@pytest.mark.parametrize("content", [b"", b"old", pickle.dumps([(0, 99)]), pickle.dumps([(-1, 1)]), pickle.dumps([])])
def test_an_index_that_cannot_be_used_is_never_kept(write_lines: Callable[..., Path], content: bytes) -> None:
    """B007."""
    source = write_lines("a.jsonl", ["1"])
    source.with_suffix(".idx").write_bytes(content)
    with pytest.raises(DatasetFormatError, match=r"a\.idx.*'override'"):
        build_raw_index(source, file_existence_policy=FileExistencePolicy.SKIP)
    build_raw_index(source, file_existence_policy=FileExistencePolicy.OVERRIDE)
    assert list(read_index(source.with_suffix(".idx"))) == [(0, 1)]


def test_an_index_of_what_the_file_was_is_never_kept(write_lines: Callable[..., Path]) -> None:
    """B007: with its manifest and without."""
    source = write_lines("a.jsonl", ["1"])
    build_raw_index(source)
    with open(source, "ab") as file:
        file.write(b"2\n")
    with pytest.raises(DatasetFormatError, match=r"a\.idx is out of date.*'override'"):
        build_raw_index(source, file_existence_policy=FileExistencePolicy.SKIP)
    manifest_path(source.with_suffix(".idx")).unlink()
    with pytest.raises(DatasetFormatError, match=r"lines from byte 1 on .*'override'"):
        build_raw_index(source, file_existence_policy=FileExistencePolicy.SKIP)


def test_an_index_with_other_bytes_than_its_manifest_says_is_never_kept(write_lines: Callable[..., Path]) -> None:
    """B007."""
    source = write_lines("a.jsonl", ["1", "2"])
    build_raw_index(source)
    source.with_suffix(".idx").write_bytes(pickle.dumps([(0, 1)]))
    with pytest.raises(DatasetFormatError, match=r"a\.idx is not the index that its manifest describes.*'override'"):
        build_raw_index(source, file_existence_policy=FileExistencePolicy.SKIP)


@pytest.mark.parametrize("lines", [[], ["{"], ["", "1", "{", ""]])
def test_an_index_without_the_faulty_lines_is_kept(write_lines: Callable[..., Path], lines: list[str]) -> None:
    source = write_lines("a.jsonl", lines)
    build_raw_index(source, drop_faulty_entries=True)
    assert build_raw_index(source, None, FileExistencePolicy.SKIP, drop_faulty_entries=True) is None
