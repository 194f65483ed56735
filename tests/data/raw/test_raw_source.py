"""A stage never records the digest of other bytes than those that it read."""

import os
from pathlib import Path

import pytest

from modalities_pipeline.data.files import digest_file
from modalities_pipeline.data.raw import raw_source
from modalities_pipeline.data.raw.raw_source import RawSource
from modalities_pipeline.data.raw_files import RawFile, build_raw_files, read_raw_files
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.shuffled_jsonl import build_shuffled_jsonl
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError
from modalities_pipeline.tokenization.training import train_tokenizer


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n')
    return path


@pytest.fixture
def listed(source: Path, tmp_path: Path) -> RawFile:
    """The file as raw_files lists it."""
    build_raw_files([source], tmp_path / "raw_files.json")
    [file] = read_raw_files(tmp_path / "raw_files.json")
    return file


def test_a_file_that_changed_after_it_was_listed_is_refused(source: Path, listed: RawFile) -> None:
    for text in ('{"text": "b"}\n', '{"text": "longer"}\n'):
        source.write_text(text)
        with pytest.raises(DatasetFormatError, match=r"a\.jsonl changed since raw_files listed it; materialize raw"):
            build_raw_index(source, listed=listed)
        with pytest.raises(DatasetFormatError, match="changed since raw_files listed it"):
            train_tokenizer([source], ".text", 257, "<eod>", source.with_name("tokenizer"), listed=[listed])
    assert not source.with_suffix(".idx").exists()
    assert not source.with_name("tokenizer").exists()


def test_a_file_that_was_only_touched_is_taken(source: Path, listed: RawFile) -> None:
    os.utime(source, ns=(1, 1))
    manifest = build_raw_index(source, listed=listed)
    assert manifest is not None
    assert manifest.inputs == {"source": digest_file(source)}


def test_without_a_list_the_file_must_stay_what_was_hashed(source: Path) -> None:
    raw_source = RawSource(source)
    assert raw_source.digest == digest_file(source)
    raw_source.check_unchanged()
    source.write_text('{"text": "b"}\n')
    with pytest.raises(DatasetFormatError, match="changed while it was read"):
        raw_source.check_unchanged()


def test_a_file_that_vanished_is_named(source: Path) -> None:
    raw_source = RawSource(source)
    source.unlink()
    with pytest.raises(DatasetNotFoundError, match=r"a\.jsonl does not exist any more"):
        raw_source.check_unchanged()


def test_what_another_stage_made_is_known_by_its_manifest_and_refused_if_damaged(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "shuffled.jsonl"
    manifest = build_shuffled_jsonl(source, output, seed=1)
    assert manifest is not None
    assert RawSource(source).known_digest is None
    assert RawSource(output).known_digest == manifest.digest
    output.write_text("other\n")
    with pytest.raises(DatasetFormatError, match=r"shuffled\.jsonl is damaged"):
        RawSource(output)


def test_reading_takes_the_digest_on_the_way_and_reports_every_block(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_source, "_BLOCK_IN_BYTES", 5)
    reports: list[int] = []
    raw_file = RawSource(source)
    with raw_file.lines(reports.append) as lines:
        assert list(lines) == [b'{"text": "a"}\n']
    assert reports[:3] == [5, 10, 14]
    assert raw_file.known_digest == digest_file(source)


def test_a_file_that_the_system_cannot_read_is_named() -> None:
    """Linux refuses to read the first bytes of a process's memory."""
    message = r"/proc/self/mem cannot be read: Input/output error"
    raw_file = RawSource(Path("/proc/self/mem"))
    with pytest.raises(DatasetFormatError, match=message), raw_file.lines(lambda _: None) as lines:
        list(lines)
