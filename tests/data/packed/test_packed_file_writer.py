"""Writing `.pbin` files."""

import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modalities_pipeline.data.packed import packed_file_writer
from modalities_pipeline.data.packed.packed_file_writer import PackedFileWriter, flatten_documents
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.exceptions import DatasetFormatError, UserError


def _write(path: Path, documents: list[Any], token_size: int) -> bytes:
    with PackedFileWriter(path, token_size) as writer:
        for document in documents:
            writer.write_document(document)
    return path.read_bytes()


def test_the_writer_makes_exactly_the_bytes_of_modalities(tmp_path: Path, vectors: Path) -> None:
    cases = [case for case in json.loads((vectors / "writer.json").read_text()) if case["token_size_in_bytes"]]
    good = [case for case in cases if "hex" in case]
    bad = [case for case in cases if "error" in case and case["docs"]]
    assert (len(good), len(bad)) == (3, 3)
    for case in good:
        assert _write(tmp_path / "x.pbin", case["docs"], case["token_size_in_bytes"]).hex() == case["hex"]
    for case in bad:
        with pytest.raises(ValueError, match=r"x\.pbin"):
            _write(tmp_path / "x.pbin", case["docs"], case["token_size_in_bytes"])


@pytest.mark.parametrize("token_size", [1, 2, 4])
def test_all_ways_of_writing_make_the_same_file(
    tmp_path: Path, token_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = random.Random(1)
    documents = [[generator.randrange(200) for _ in range(generator.choice([0, 1, 5, 900]))] for _ in range(300)]
    one_by_one = _write(tmp_path / "x.pbin", documents, token_size)
    with PackedFileWriter(tmp_path / "flat.pbin", token_size) as writer:
        for start in range(0, 300, 70):
            writer.write_flat(*flatten_documents(documents[start : start + 70], writer.dtype, ""))
        assert (writer.num_documents, writer.num_tokens) == (300, sum(map(len, documents)))
    assert (tmp_path / "flat.pbin").read_bytes() == one_by_one
    for largest_join in (8 << 20, 100):
        monkeypatch.setattr(packed_file_writer, "_MAX_JOIN_IN_BYTES", largest_join)
        with PackedFile(tmp_path / "x.pbin") as file, PackedFileWriter(tmp_path / "y.pbin", token_size) as writer:
            writer.write_bytes([file.document_bytes(position) for position in range(150)])
            writer.write_bytes([bytes(file.document_bytes(position)) for position in range(150, 300)])
        assert (tmp_path / "y.pbin").read_bytes() == one_by_one
    with PackedFile(tmp_path / "x.pbin") as file, PackedFileWriter(tmp_path / "y.pbin", token_size) as writer:
        writer.write_file(file)
    assert (tmp_path / "y.pbin").read_bytes() == one_by_one


def test_whole_files_and_single_documents_may_alternate(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: Callable[[Path], list[list[int]]]
) -> None:
    first, second = write_pbin("a.pbin", [[1, 2], [3]]), write_pbin("b.pbin", [[]])
    with PackedFileWriter(tmp_path / "x.pbin", 2) as writer:
        writer.write_document([7])
        for path in (first, second, first):
            writer.write_file(PackedFile(path))
            writer.write_document([8, 9])
        assert (writer.num_documents, writer.num_tokens) == (9, 13)
    assert read_documents(tmp_path / "x.pbin") == [[7], [1, 2], [3], [8, 9], [], [8, 9], [1, 2], [3], [8, 9]]


def test_gaps_between_documents_of_a_file_are_copied_and_stay_gaps(tmp_path: Path) -> None:
    content = (8).to_bytes(8, "little") + (1).to_bytes(4, "little") + bytes(range(8))
    (tmp_path / "a.pbin").write_bytes(content + pickle.dumps([(6, 2), (1, 3)], protocol=4))
    with PackedFileWriter(tmp_path / "x.pbin", 1) as writer:
        for _ in range(2):
            writer.write_file(PackedFile(tmp_path / "a.pbin"))
    with PackedFile(tmp_path / "x.pbin") as file:
        assert list(file.index) == [(6, 2), (1, 3), (14, 2), (9, 3)]
        assert bytes(file.data) == bytes(range(8)) * 2


def test_an_id_that_does_not_fit_the_token_size_is_refused_and_never_wrapped(tmp_path: Path) -> None:
    """B011."""
    for wrong in ([1, 70000], [-1], [2**40], np.array([2**64 - 1], dtype=np.uint64)):
        with pytest.raises(DatasetFormatError, match=r"x\.pbin: document 0 has token ids.*2 bytes per token"):
            _write(tmp_path / "x.pbin", [wrong], 2)
    with pytest.raises(DatasetFormatError, match="document 4 has token ids from 3 to 256"):
        flatten_documents([[1], [], [256, 3]], np.dtype("u1"), "", first_number=2)


@pytest.mark.parametrize("wrong", [[1.0], [True], ["1"], [[1, 2]], np.array(["a"])])
def test_ids_that_are_no_integers_in_a_row_are_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(DatasetFormatError, match="must be integers"):
        _write(tmp_path / "x.pbin", [wrong], 2)


def test_flat_tokens_must_fit_their_lengths_and_the_file(tmp_path: Path) -> None:
    with PackedFileWriter(tmp_path / "x.pbin", 2) as writer:
        for tokens, lengths in (([1, 2], [1]), ([1, 2], [3, -1]), ([], [1])):
            with pytest.raises(DatasetFormatError, match="do not make up"):
                writer.write_flat(np.array(tokens, dtype=np.uint16), np.array(lengths))
        with pytest.raises(DatasetFormatError, match="int64"):
            writer.write_flat(np.array([1]), np.array([1]))
        with pytest.raises(DatasetFormatError, match="no whole number of tokens"):
            writer.write_bytes([b"123"])
        assert writer.num_documents == 0


@pytest.mark.parametrize("token_size", [0, 3, 8, -1])
def test_other_token_sizes_do_not_exist(tmp_path: Path, token_size: int) -> None:
    """B013."""
    with pytest.raises(UserError, match="1, 2 or 4"):
        PackedFileWriter(tmp_path / "x.pbin", token_size)
    assert not list(tmp_path.iterdir())


def test_files_of_another_token_size_are_not_appended(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    source = PackedFile(write_pbin("a.pbin", [[1]], 4))
    with (
        PackedFileWriter(tmp_path / "x.pbin", 2) as writer,
        pytest.raises(DatasetFormatError, match="4 bytes per token"),
    ):
        writer.write_file(source)


def test_a_file_that_was_replaced_since_it_was_opened_is_not_appended(
    tmp_path: Path, write_pbin: Callable[..., Path]
) -> None:
    source = PackedFile(write_pbin("a.pbin", [[1]]))
    write_pbin("b.pbin", [[2]]).replace(tmp_path / "a.pbin")
    with PackedFileWriter(tmp_path / "x.pbin", 2) as writer, pytest.raises(DatasetFormatError, match="changed while"):
        writer.write_file(source)


def test_an_interrupted_writer_leaves_no_file_that_can_be_read(tmp_path: Path) -> None:
    def interrupted() -> None:
        with PackedFileWriter(tmp_path / "x.pbin", 2) as writer:
            writer.write_document([1, 2])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(DatasetFormatError):
        PackedFile(tmp_path / "x.pbin")


def test_views_of_wider_items_are_refused(tmp_path: Path) -> None:
    """Their length would count items, not bytes."""
    with pytest.raises(DatasetFormatError, match="no single bytes"), PackedFileWriter(tmp_path / "x", 2) as writer:
        writer.write_bytes([memoryview(bytes(8)).cast("I")])
