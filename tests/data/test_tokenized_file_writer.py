"""Writing token ids from anywhere."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modalities_pipeline.data import tokenized_file_writer
from modalities_pipeline.data.manifest import read_manifest
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.data.tokenized_file_writer import TokenizedFileWriter
from modalities_pipeline.exceptions import DatasetFormatError, UserError

write_tokenized_dataset = TokenizedFileWriter.write_tokenized_dataset


def test_files_are_those_of_modalities_and_its_faults_with_the_largest_id_are_mended(
    tmp_path: Path, vectors: Path
) -> None:
    """Where no token size is given Modalities fails for the ids 0 and 256, and takes four bytes for id 1."""
    mended = {(0, 256): (2, "00000001"), (0, 1): (1, "0001"), (0,): (4, "00000000")}
    cases = json.loads((vectors / "writer.json").read_text())
    assert len(cases) == 11
    for case in cases:
        documents = [np.array(document, dtype=np.int64) for document in case["docs"]]
        path, size = tmp_path / "x.pbin", case["token_size_in_bytes"]
        ids = tuple(int(number) for document in documents for number in document)
        if size is None and ids in mended:
            write_tokenized_dataset(documents, path)
            with PackedFile(path) as file:
                assert (file.token_size_in_bytes, bytes(file.data).hex()) == mended[ids]
        elif "error" in case:
            with pytest.raises(ValueError, match=r"dataset|bytes"):
                write_tokenized_dataset(documents, path, token_size_in_bytes=size)
        else:
            write_tokenized_dataset(documents, path, token_size_in_bytes=size)
            assert path.read_bytes().hex() == case["hex"]


@pytest.mark.parametrize(
    ("largest_id", "token_size"), [(1, 1), (255, 1), (256, 2), (65535, 2), (65536, 4), (2**32 - 1, 4)]
)
@pytest.mark.parametrize("write_batch_size", [1, 3, 10_000])
def test_the_token_size_holds_the_largest_id_and_a_generator_is_read_once(
    tmp_path: Path,
    read_documents: Callable[[Path], list[list[int]]],
    largest_id: int,
    token_size: int,
    write_batch_size: int,
) -> None:
    documents = [[1, 0], [], [largest_id], [1]]

    def generated() -> Iterator[np.ndarray]:
        yield from (np.array(document, dtype=np.int64) for document in documents)

    manifest = write_tokenized_dataset(generated(), tmp_path / "x.pbin", write_batch_size)
    assert read_documents(tmp_path / "x.pbin") == documents
    with PackedFile(tmp_path / "x.pbin") as file:
        assert file.token_size_in_bytes == token_size
    assert manifest is not None
    assert manifest.counts == {"num_documents": 4, "num_tokens": 4}


def test_batches_are_bounded_in_tokens_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_documents: Callable[[Path], list[list[int]]]
) -> None:
    monkeypatch.setattr(tokenized_file_writer, "_MAX_BATCH_IN_TOKENS", 5)
    documents = [[number] * 2 for number in range(20)]
    for token_size in (None, 2):
        write_tokenized_dataset(map(np.array, documents), tmp_path / "x.pbin", token_size_in_bytes=token_size)
        assert read_documents(tmp_path / "x.pbin") == documents


@pytest.mark.parametrize(
    "wrong", [[-1], [2**32], [1.5], ["a"], [[1, 2]]], ids=["negative", "too large", "a float", "a string", "2-D"]
)
@pytest.mark.parametrize("token_size", [None, 4])
def test_a_wrong_document_is_named_and_leaves_the_old_file(
    tmp_path: Path, wrong: list[Any], token_size: int | None
) -> None:
    path = tmp_path / "x.pbin"
    write_tokenized_dataset([np.array([7])], path)
    before = path.read_bytes()
    with pytest.raises(DatasetFormatError, match=r"document 1\b"):
        write_tokenized_dataset([np.array([1]), np.array(wrong)], path, token_size_in_bytes=token_size)
    assert path.read_bytes() == before
    assert read_manifest(path) is not None
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_an_exception_of_the_source_passes_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.pbin"
    write_tokenized_dataset([np.array([7])], path)
    before = path.read_bytes()

    def failing() -> Iterator[np.ndarray]:
        yield np.array([1])
        raise ZeroDivisionError

    for token_size in (None, 1):
        with pytest.raises(ZeroDivisionError):
            write_tokenized_dataset(failing(), path, token_size_in_bytes=token_size)
        assert path.read_bytes() == before


def test_no_documents_or_impossible_sizes_are_refused_and_empty_documents_are_kept(
    tmp_path: Path, read_documents: Callable[[Path], list[list[int]]]
) -> None:
    """B013."""
    path = tmp_path / "x.pbin"
    for token_size in (None, 2):
        with pytest.raises(UserError, match="no documents"):
            write_tokenized_dataset([], path, token_size_in_bytes=token_size)
    with pytest.raises(UserError, match="1, 2 or 4"):
        write_tokenized_dataset([np.array([1])], path, token_size_in_bytes=3)
    for batch_size in (0, -1):
        with pytest.raises(UserError, match="write_batch_size"):
            write_tokenized_dataset([np.array([1])], path, batch_size)
    assert not path.exists()
    for token_size in (None, 2):
        write_tokenized_dataset([np.array([]), np.array([])], path, token_size_in_bytes=token_size)
        assert read_documents(path) == [[], []]
