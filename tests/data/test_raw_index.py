"""Indexing raw files."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.data.files import FileExistencePolicy, digest_file
from modalities_pipeline.data.jsonl import read_index
from modalities_pipeline.data.manifest import read_manifest
from modalities_pipeline.data.raw import raw_source
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


def test_what_modalities_refuses_is_refused_with_its_kind_of_error(
    tmp_path: Path, vectors: Path, expected: dict[str, Any]
) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    (tmp_path / "a.idx").write_text("old")
    kinds = {"ValueError": ValueError, "FileNotFoundError": FileNotFoundError}
    cases = {
        "idx/faulty/strict": (vectors / "faulty.jsonl", tmp_path / "new.idx"),
        "idx/empty/strict": (vectors / "empty.jsonl", tmp_path / "new.idx"),
        "idx/api/src_equals_index": (tmp_path / "a.jsonl", tmp_path / "a.jsonl"),
        "idx/api/exists_error": (tmp_path / "a.jsonl", tmp_path / "a.idx"),
        "idx/api/missing_source": (tmp_path / "nope.jsonl", tmp_path / "new.idx"),
    }
    assert {name for name in expected if name.startswith("idx/") and "error" in expected[name]["expect"]} == set(cases)
    for name, (source, index_path) in cases.items():
        with pytest.raises(kinds[expected[name]["expect"]["error"]]):
            build_raw_index(source, index_path)
    assert not (tmp_path / "new.idx").exists()
    assert (tmp_path / "a.idx").read_text() == "old"


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
    assert {path.name for path in tmp_path.iterdir()} - {".a.idx.lock"} == {"a.jsonl"}


def test_a_file_that_was_cut_off_is_named_as_such(tmp_path: Path) -> None:
    """B004."""
    source = tmp_path / "a.jsonl"
    source.write_bytes(b'{"text": "a"}\n{"text": "abc')
    with pytest.raises(DatasetFormatError, match=r"line 2 \(byte 14\).* may have been cut off.*on_bad_sample: skip"):
        build_raw_index(source)
    manifest = build_raw_index(source, drop_faulty_entries=True)
    assert manifest is not None
    assert (manifest.counts["num_documents"], manifest.counts["num_faulty_lines"]) == (1, 1)
    assert read_index(source.with_suffix(".idx"))[-1] == (0, 13)


def test_dropped_lines_are_counted_by_reason_and_listed(tmp_path: Path) -> None:
    """B004, B005; lines are numbered as an editor shows them, blank ones included."""
    lines = [b'{"text": "a"}', b"", b'"\xff"', b"{bad", b"[" * 100_000, b"1" * 5000, b"{bad", b'{"text": "b"}']
    source = tmp_path / "a.jsonl"
    source.write_bytes(b"\n".join(lines))
    manifest = build_raw_index(source, drop_faulty_entries=True)
    assert manifest is not None
    assert manifest.counts == {
        "num_documents": 2,
        "num_lines": 8,
        "num_blank_lines": 1,
        "num_faulty_lines": 5,
        "num_faulty_lines_not_utf8": 1,
        "num_faulty_lines_not_json": 2,
        "num_faulty_lines_too_deeply_nested": 1,
        "num_faulty_lines_too_many_digits": 1,
        "source_size_in_bytes": source.stat().st_size,
    }
    assert manifest.details["faulty_lines"][:2] == [
        {"line": 3, "byte_offset": 15, "reason": "not_utf8"},
        {"line": 4, "byte_offset": 19, "reason": "not_json"},
    ]
    assert [entry["line"] for entry in manifest.details["faulty_lines"]] == [3, 4, 5, 6, 7]


def test_one_bad_line_among_a_thousand_stops_or_is_left_out(write_lines: Callable[..., Path]) -> None:
    """B005."""
    source = write_lines("a.jsonl", [*["{}"] * 600, "{", *["{}"] * 399])
    with pytest.raises(DatasetFormatError, match=r"line 601 \(byte 1800\)"):
        build_raw_index(source)
    manifest = build_raw_index(source, drop_faulty_entries=True)
    assert manifest is not None
    assert manifest.counts["num_documents"] == 999
    assert manifest.details["faulty_lines"] == [{"line": 601, "byte_offset": 1800, "reason": "not_json"}]


def test_of_very_many_bad_lines_the_first_ones_are_listed_and_all_are_counted(write_lines: Callable[..., Path]) -> None:
    manifest = build_raw_index(write_lines("a.jsonl", ["{"] * 1000), drop_faulty_entries=True)
    assert manifest is not None
    assert manifest.counts["num_faulty_lines"] == 1000
    assert [entry["line"] for entry in manifest.details["faulty_lines"]] == list(range(1, 101))


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
    whole = list(read_index(source.with_suffix(".idx")))
    assert whole[:3] == [(0, 1), (2, 2), (5, 3)]
    for block_size in (1, 2, 7):
        monkeypatch.setattr(raw_source, "_BLOCK_IN_BYTES", block_size)
        build_raw_index(source, file_existence_policy=FileExistencePolicy.OVERRIDE)
        assert list(read_index(source.with_suffix(".idx"))) == whole


def test_a_pipe_is_refused_without_waiting_for_its_other_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(UserError, match=r"not a file|neither a file"):
        build_raw_index(tmp_path / "a.jsonl")


def test_the_digest_taken_while_reading_is_that_of_the_file(
    write_lines: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines("a.jsonl", ["1", "22", "333"])
    monkeypatch.setattr(raw_source, "_BLOCK_IN_BYTES", 4)
    manifest = build_raw_index(source)
    assert manifest is not None
    assert manifest.inputs == {"source": digest_file(source)}
    assert manifest.fingerprint == identity(digest_file(source)).fingerprint


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
    old = pickle.dumps([(0, 1)], protocol=2)
    index_path.write_bytes(old)
    with pytest.raises(OutputExistsError):
        build_raw_index(source)
    assert build_raw_index(source, file_existence_policy=FileExistencePolicy.SKIP) is None
    assert index_path.read_bytes() == old
    build_raw_index(source, file_existence_policy=FileExistencePolicy.OVERRIDE)
    assert index_path.read_bytes() == pickle.dumps([(0, 1)], protocol=4)


def test_a_missing_raw_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"nowhere\.jsonl"):
        build_raw_index(tmp_path / "nowhere.jsonl")


def test_the_manifest_has_the_published_identity(write_lines: Callable[..., Path]) -> None:
    source = write_lines("a.jsonl", ["1"])
    status = source.stat()
    build_raw_index(source, listed=RawFile(source.name, source, status.st_size, "xxh128:known", status.st_mtime_ns))
    manifest = read_manifest(source.with_suffix(".idx"))
    assert manifest is not None
    assert manifest.fingerprint == identity("xxh128:known").fingerprint
