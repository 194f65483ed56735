"""Indexing raw files."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.data import raw_index
from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.jsonl import read_index
from modalities_pipeline.data.manifest import read_manifest
from modalities_pipeline.data.raw_files import RawFile
from modalities_pipeline.data.raw_index import build_raw_index, identity
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, OutputExistsError, UserError


def test_index_files_are_byte_for_byte_those_of_modalities(
    tmp_path: Path, vectors: Path, expected: dict[str, Any]
) -> None:
    checked = 0
    for name, vector in expected.items():
        if name.startswith("idx/") and "file" in vector["expect"]:
            source = vectors / vector["inputs"][0]
            index_path = tmp_path / f"{name.replace('/', '_')}.idx"
            build_raw_index(source, index_path, drop_faulty_entries=vector["params"]["drop_faulty_entries"])
            assert index_path.read_bytes() == (vectors / vector["expect"]["file"]).read_bytes(), name
            checked += 1
    assert checked == 8


def test_a_last_line_without_line_end_is_a_line(tmp_path: Path, vectors: Path) -> None:
    """B001."""
    manifest = build_raw_index(vectors / "no_trailing_newline.jsonl", tmp_path / "x.idx")
    assert manifest is not None
    assert manifest.counts["num_documents"] == 3


def test_blank_lines_are_passed_over_and_counted(tmp_path: Path, write_lines: Callable[..., Path]) -> None:
    """B002."""
    source = write_lines("a.jsonl", ['{"text": "a"}', "", " \t", '{"text": "b"}', ""])
    manifest = build_raw_index(source, tmp_path / "x.idx")
    assert manifest is not None
    assert manifest.counts["num_documents"] == 2
    assert manifest.counts["num_blank_lines"] == 3
    assert manifest.counts["num_lines"] == 5


@pytest.mark.parametrize(
    ("bad_line", "reason"),
    [
        (b'{"text": "abc', "Unterminated string"),
        (b'{"text": "\xff"}', "not UTF-8"),
        (b'{"a": 1} {"b": 2}', "Extra data"),
        (b'{"text": "\xed\xa0\x80"}', "not UTF-8"),
        (b"[" * 100_000, ""),
    ],
)
def test_a_bad_line_is_named_with_file_line_and_byte_and_no_index_is_left(
    tmp_path: Path, bad_line: bytes, reason: str
) -> None:
    """B004, B005."""
    source = tmp_path / "a.jsonl"
    source.write_bytes(b'{"text": "a"}\n\n' + bad_line)
    with pytest.raises(DatasetFormatError, match=r"a\.jsonl, line 3 \(byte 15\)") as caught:
        build_raw_index(source)
    assert reason in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.idx.lock", "a.jsonl"]


def test_dropped_lines_are_counted_and_listed(tmp_path: Path, vectors: Path) -> None:
    """B004, B005."""
    manifest = build_raw_index(vectors / "faulty.jsonl", tmp_path / "x.idx", drop_faulty_entries=True)
    assert manifest is not None
    assert manifest.counts["num_faulty_lines"] == 2
    assert manifest.details["faulty_lines"] == [2, 4]


@pytest.mark.parametrize("line", ["NaN", "[Infinity, -Infinity]", "null", "12345678901234567890123", '"\\ud800"'])
def test_whatever_python_reads_as_json_is_a_document(write_lines: Callable[..., Path], line: str) -> None:
    manifest = build_raw_index(write_lines("a.jsonl", [line]))
    assert manifest is not None
    assert manifest.counts["num_documents"] == 1


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_a_file_without_documents_is_an_error(tmp_path: Path, content: bytes) -> None:
    """B010."""
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(DatasetFormatError, match=r"a\.jsonl"):
        build_raw_index(tmp_path / "a.jsonl")


def test_lines_are_found_across_the_borders_of_scanned_blocks(
    write_lines: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines("a.jsonl", [str(10**length) for length in range(9)])
    build_raw_index(source)
    whole = read_index(source.with_suffix(".idx")).tolist()
    for block_size in (1, 2, 7):
        monkeypatch.setattr(raw_index, "_SCAN_BLOCK_IN_BYTES", block_size)
        build_raw_index(source, file_existence_policy=FileExistencePolicy.OVERRIDE)
        assert read_index(source.with_suffix(".idx")).tolist() == whole


def test_the_raw_file_is_never_overwritten_however_its_path_is_spelt(
    tmp_path: Path, write_lines: Callable[..., Path]
) -> None:
    """B008."""
    source = write_lines("a.idx", ["1"])
    (tmp_path / "d").mkdir()
    (tmp_path / "link.idx").symlink_to(source)
    for index_path in (None, source, tmp_path / "d" / ".." / "a.idx", tmp_path / "link.idx"):
        with pytest.raises(UserError, match="also an input"):
            build_raw_index(source, index_path, FileExistencePolicy.OVERRIDE)
    assert source.read_text() == "1\n"


def test_an_existing_index_is_refused_kept_or_replaced(write_lines: Callable[..., Path]) -> None:
    source = write_lines("a.jsonl", ["1"])
    index_path = source.with_suffix(".idx")
    index_path.write_bytes(b"old")
    with pytest.raises(OutputExistsError):
        build_raw_index(source)
    assert build_raw_index(source, file_existence_policy=FileExistencePolicy.SKIP) is None
    assert index_path.read_bytes() == b"old"
    build_raw_index(source, file_existence_policy=FileExistencePolicy.OVERRIDE)
    assert pickle.loads(index_path.read_bytes()) == [(0, 1)]


def test_a_missing_raw_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"nowhere\.jsonl"):
        build_raw_index(tmp_path / "nowhere.jsonl")


def test_the_manifest_has_the_published_identity(write_lines: Callable[..., Path]) -> None:
    source = write_lines("a.jsonl", ["1"])
    status = source.stat()
    build_raw_index(source, listed=RawFile(source.name, source, status.st_size, "sha256:known", status.st_mtime_ns))
    manifest = read_manifest(source.with_suffix(".idx"))
    assert manifest is not None
    assert manifest.fingerprint == identity("sha256:known").fingerprint
