"""Files hashed while they are written."""

import io
from pathlib import Path

import pytest

from modalities_pipeline.data.files import digest_file
from modalities_pipeline.data.packed.hashed_file import HashedFile


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    with HashedFile(tmp_path / "x", 16) as file:
        for content in (b"head", bytes(100), memoryview(b"abc"), b""):
            assert file.write(content) == len(content)
    assert (tmp_path / "x").read_bytes() == b"head" + bytes(100) + b"abc"
    assert file.digest == digest_file(tmp_path / "x")


def test_going_back_is_refused(tmp_path: Path) -> None:
    with HashedFile(tmp_path / "x", 16) as file, pytest.raises(io.UnsupportedOperation):
        file.seek(0)
