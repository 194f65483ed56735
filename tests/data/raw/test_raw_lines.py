"""Lines copied in any order."""

import os
from pathlib import Path

import pytest

from modalities_pipeline.data.raw import raw_lines, raw_source
from modalities_pipeline.data.raw.raw_lines import find_line_bounds, write_lines
from modalities_pipeline.data.raw.raw_source import RawSource
from modalities_pipeline.exceptions import DatasetFormatError


def _ignore(_: int) -> None:
    pass


def _source(path: Path, content: bytes) -> RawSource:
    path.write_bytes(content)
    return RawSource(path)


@pytest.mark.parametrize("block_in_bytes", [1, 2, 3, 1 << 18])
@pytest.mark.parametrize(
    ("content", "bounds"),
    [
        (b"", [0]),
        (b"\n", [0, 1]),
        (b"a\n\nbcd\r\n", [0, 2, 3, 8]),
        (b"a\nbc", [0, 2, 4]),
        ("a\u2028\u0085b\r\x0cc\n".encode(), [0, 11]),
    ],
)
def test_lines_end_at_lf_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, bounds: list[int], block_in_bytes: int
) -> None:
    monkeypatch.setattr(raw_source, "_BLOCK_IN_BYTES", block_in_bytes)
    assert find_line_bounds(_source(tmp_path / "a.jsonl", content), _ignore).tolist() == bounds


def test_lines_of_more_files_than_may_be_open_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_lines, "_MAX_OPEN_FILES", 3)
    sources = [_source(tmp_path / f"{number}.jsonl", f"{number}\n{number}{number}".encode()) for number in range(8)]
    places = [(number, *place) for place in ((0, 2), (2, 4)) for number in range(8)]
    num_open = len(os.listdir("/proc/self/fd"))
    assert write_lines(sources, places, tmp_path / "out.jsonl", _ignore) == 16
    assert len(os.listdir("/proc/self/fd")) == num_open
    expected = [*(f"{number}\n" for number in range(8)), *(f"{number}{number}\n" for number in range(8))]
    assert (tmp_path / "out.jsonl").read_text() == "".join(expected)


@pytest.mark.parametrize("content", [b"1\n2", b"1\n22\n", b"1\n", b""])
def test_lines_that_are_not_where_they_were_are_refused(tmp_path: Path, content: bytes) -> None:
    source = _source(tmp_path / "a.jsonl", b"1\n2\n3\n")
    source.path.write_bytes(content)
    with pytest.raises(DatasetFormatError, match=r"a\.jsonl changed while it was read"):
        write_lines([source], [(0, 2, 4)], tmp_path / "out.jsonl", _ignore)


def test_a_file_that_vanished_is_refused(tmp_path: Path) -> None:
    source = _source(tmp_path / "a.jsonl", b"1\n")
    source.path.unlink()
    with pytest.raises(DatasetFormatError, match=r"a\.jsonl changed while it was read"):
        write_lines([source], [(0, 0, 2)], tmp_path / "out.jsonl", _ignore)
