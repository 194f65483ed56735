"""A stage never records the digest of other bytes than those that it read."""

import os
from pathlib import Path

import pytest

from modalities_pipeline.data.files import digest_file
from modalities_pipeline.data.raw_files import RawFile, build_raw_files, read_raw_files
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.raw_source import RawSource
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
