"""The `.pbin` format."""

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modalities_pipeline.data.offset_table import decode_offset_table, encode_offset_table
from modalities_pipeline.data.pbin import PackedFile, PackedFileWriter, token_size_for_vocab
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, UserError


def _pbin(data: bytes, index: object, token_size: int = 2, data_length: int | None = None) -> bytes:
    length = len(data) if data_length is None else data_length
    return struct.pack("<QI", length, token_size) + data + pickle.dumps(index, protocol=4)


def _write(path: Path, documents: list[list[int]], token_size: int) -> bytes:
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
        assert file.index.dtype == np.int64
        assert file.document(-1).tolist() == [5]
        with pytest.raises(ValueError, match="read-only"):
            file.tokens[0] = 1
        with pytest.raises(IndexError):
            file.document(4)


def test_an_id_that_does_not_fit_the_token_size_is_refused_and_never_wrapped(tmp_path: Path) -> None:
    """B011."""
    with pytest.raises(DatasetFormatError, match="70000"):
        _write(tmp_path / "x.pbin", [[1, 70000]], 2)


def test_an_interrupted_writer_leaves_no_file_that_can_be_read(tmp_path: Path) -> None:
    def interrupted() -> None:
        with PackedFileWriter(tmp_path / "x.pbin", 2) as writer:
            writer.write_document([1, 2])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(DatasetFormatError):
        PackedFile(tmp_path / "x.pbin")


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
        (_pbin(bytes(4), [(0, 6)]), "beyond the data"),
        (_pbin(bytes(4), [(1, 2)]), "cuts a token"),
        (_pbin(bytes(4), [(-2, 4)]), "negative"),
        (_pbin(bytes(4), [(12, 2), (14, 2)]), "very old versions"),
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
        _ = file.index
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"nowhere\.pbin"):
        PackedFile(tmp_path / "nowhere.pbin")


class _Harmful:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


def test_reading_an_index_never_runs_code_from_the_file(tmp_path: Path) -> None:
    harmful = pickle.dumps([(0, _Harmful(tmp_path / "made_by_the_index"))], protocol=4)
    with pytest.raises(DatasetFormatError, match="never needs"):
        decode_offset_table(harmful, tmp_path / "x.idx")
    assert not (tmp_path / "made_by_the_index").exists()


def test_offsets_do_not_overflow_32_bits(tmp_path: Path) -> None:
    """B024."""
    table = np.array([[2**31 - 2, 4], [2**31 + 2, 2**40]], dtype=np.int64)
    content = encode_offset_table(table)
    assert pickle.loads(content) == [(2**31 - 2, 4), (2**31 + 2, 2**40)]
    assert decode_offset_table(content, tmp_path / "x").tolist() == table.tolist()


def test_a_packed_file_can_be_sent_to_another_process(write_pbin: Callable[..., Path]) -> None:
    path = write_pbin("x.pbin", [[1, 2], [3]])
    with pickle.loads(pickle.dumps(PackedFile(path))) as copy:
        assert copy.tokens.tolist() == [1, 2, 3]
