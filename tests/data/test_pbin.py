"""Reading `.pbin` files."""

import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modalities_pipeline.data.pbin import PackedFile, PackedFileWriter, token_size_for_vocab
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, UserError


def _pbin(data: bytes, index: object, token_size: int = 2, data_length: int | None = None) -> bytes:
    length = len(data) if data_length is None else data_length
    return struct.pack("<QI", length, token_size) + data + pickle.dumps(index, protocol=4)


def test_a_file_without_documents_is_valid_and_has_17_bytes(
    write_pbin: Callable[..., Path], read_documents: Callable[[Path], list[list[int]]]
) -> None:
    path = write_pbin("empty.pbin", [], 1)
    assert path.read_bytes() == bytes(8) + b"\x01\0\0\0" + b"\x80\x04]\x94."
    assert read_documents(path) == []


@pytest.mark.parametrize(("token_size", "largest"), [(1, 255), (2, 65535), (4, 2**32 - 1)])
def test_documents_come_back_as_they_were_written_at_every_token_size(
    write_pbin: Callable[..., Path],
    read_documents: Callable[[Path], list[list[int]]],
    token_size: int,
    largest: int,
) -> None:
    documents = [[0, largest, 7], [], [largest], [5]]
    path = write_pbin("x.pbin", documents, token_size)
    assert read_documents(path) == documents
    with PackedFile(path) as file:
        assert (file.num_tokens, file.num_documents, file.token_size_in_bytes) == (5, 4, token_size)
        assert file.tokens.dtype == np.dtype(f"<u{token_size}")
        extents_in_tokens = [(0, 3), (3, 0), (3, 1), (4, 1)]
        assert list(file.index) == [(offset * token_size, length * token_size) for offset, length in extents_in_tokens]
        assert file.document(-1).tolist() == [5]
        with pytest.raises(ValueError, match="read-only"):
            file.tokens[0] = 1
        with pytest.raises(IndexError):
            file.document(4)


def test_token_size_follows_the_vocabulary(expected: dict[str, Any]) -> None:
    """B013."""
    for vocab_size, outcome in expected["token_size_from_vocab"]["expect"]["table"]:
        if isinstance(outcome, int):
            assert token_size_for_vocab(vocab_size) == outcome, vocab_size
        else:
            with pytest.raises(UserError):
                token_size_for_vocab(vocab_size)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes"),
        (bytes(11), "11 bytes"),
        (_pbin(bytes(4), [(0, 4)])[:-1], "index cannot be read"),
        (_pbin(bytes(4), [])[:16], "cut off"),
        (_pbin(bytes(4), [(0, 4)], data_length=400), "cut off"),
        (_pbin(bytes(4), [(0, 4)], token_size=3), "3 bytes per token"),
        (_pbin(bytes(4), [(0, 4)], token_size=0), "0 bytes per token"),
        (_pbin(bytes(5), [(0, 4)]), "no multiple"),
        (_pbin(bytes(4), [(0, 6)]), "beyond the 4 bytes"),
        (_pbin(bytes(4), [(1, 2)]), "cuts a token"),
        (_pbin(bytes(4), [(-2, 4)]), "negative"),
        (_pbin(bytes(4), [(0, -2)]), "negative"),
        (_pbin(bytes(4), [(-(2**63), 4)]), "negative"),
        (_pbin(bytes(4), [(2, 2**63 - 1)]), "beyond the 4 bytes"),
        (_pbin(bytes(8), [(12, 2), (2, 2), (18, 2)]), "very old versions"),
        (_pbin(bytes(4), {"a": 1}), "not a list"),
        (_pbin(bytes(4), [(0, 2.0)]), "not a list"),
        (_pbin(bytes(4), [(0, True)]), "not a list"),
        (_pbin(bytes(4), [[0, 4]]), "not a list"),
        (_pbin(bytes(4), [(0, 4, 4)]), "not a list"),
        (_pbin(bytes(4), [(0, 2**70)]), "2\\^63"),
    ],
)
def test_a_damaged_file_is_refused_with_its_name_and_the_reason(tmp_path: Path, content: bytes, message: str) -> None:
    """B013."""
    path = tmp_path / "damaged.pbin"
    path.write_bytes(content)
    with pytest.raises(DatasetFormatError, match=message) as caught, PackedFile(path) as file:
        file.check_index()
    assert str(path) in str(caught.value)


def test_opening_reads_no_index_and_reading_a_document_checks_only_its_own_entry(tmp_path: Path) -> None:
    path = tmp_path / "x.pbin"
    path.write_bytes(_pbin(bytes(4), [(0, 2), (2, 200), (1, 2), (2, 2), (0, 0)]))
    with PackedFile(path) as file:
        assert file.num_tokens == 2
        assert "index" not in vars(file)
        assert file.document(0).tolist() == [0]
        assert file.document_bytes(-2) == bytes(2)
        for position, message in ((1, r"document 1.*beyond"), (2, r"document 2.*cuts"), (-3, "cuts")):
            for read in (file.document, file.document_bytes):
                with pytest.raises(DatasetFormatError, match=message):
                    read(position)
    path.write_bytes(_pbin(bytes(4), "no index"))
    with PackedFile(path) as file:
        assert file.tokens.tolist() == [0, 0]
        with pytest.raises(DatasetFormatError, match="not a list"):
            _ = file.num_documents


def test_offsets_counted_from_the_start_of_the_file_are_converted(tmp_path: Path) -> None:
    """The layout of very old versions of Modalities."""
    path = tmp_path / "x.pbin"
    path.write_bytes(_pbin(bytes(range(8)), [(12, 2), (14, 4), (18, 2)]))
    with PackedFile(path) as file:
        file.check_index()
        assert list(file.index) == [(0, 2), (2, 4), (6, 2)]
        assert bytes(file.document_bytes(1)) == bytes([2, 3, 4, 5])


def test_documents_may_lie_in_any_order_and_overlap(tmp_path: Path) -> None:
    path = tmp_path / "x.pbin"
    path.write_bytes(_pbin(bytes(range(8)), [(4, 4), (0, 4), (2, 4), (8, 0)]))
    with PackedFile(path) as file:
        file.check_index()
        assert [bytes(file.document_bytes(position))[:1] for position in range(4)] == [b"\4", b"\0", b"\2", b""]


def test_a_file_merged_by_modalities_is_not_trusted_even_where_its_index_is_possible(vectors: Path) -> None:
    """B023."""
    with PackedFile(vectors / "merged_upstream.pbin") as file, pytest.raises(DatasetFormatError, match="Repair it"):
        file.check_index()


@pytest.mark.parametrize("number", [100, 70_000])
def test_views_outlive_the_file_and_a_closed_file_comes_back_when_it_is_used(tmp_path: Path, number: int) -> None:
    with PackedFileWriter(tmp_path / "x.pbin", 2) as writer:
        writer.write_flat(np.full(number, 7, dtype=np.uint16), np.ones(number, dtype=np.int64))
    with PackedFile(tmp_path / "x.pbin") as file:
        first, table = file.document(0), file.index
    assert not {"tokens", "index"} & vars(file).keys()
    assert (first.tolist(), table[-1]) == ([7], (2 * number - 2, 2))
    assert (file.document(-1).tolist(), file.num_documents, len(file.tokens)) == ([7], number, number)


def test_a_file_that_was_replaced_since_it_was_opened_is_not_mixed_with_the_new_one(
    tmp_path: Path, write_pbin: Callable[..., Path]
) -> None:
    """B007."""
    file = PackedFile(write_pbin("a.pbin", [[1]]))
    write_pbin("b.pbin", [[2, 2]]).replace(tmp_path / "a.pbin")
    with pytest.raises(DatasetFormatError, match=r"a\.pbin changed while it was read"):
        file.document(0)
    (tmp_path / "a.pbin").unlink()
    with pytest.raises(DatasetNotFoundError, match=r"a\.pbin was deleted while it was read"):
        _ = file.tokens


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"nowhere\.pbin"):
        PackedFile(tmp_path / "nowhere.pbin")


def test_a_packed_file_can_be_sent_to_another_process(write_pbin: Callable[..., Path]) -> None:
    path = write_pbin("x.pbin", [[1, 2], [3]])
    with pickle.loads(pickle.dumps(PackedFile(path))) as copy:
        assert copy.tokens.tolist() == [1, 2, 3]
