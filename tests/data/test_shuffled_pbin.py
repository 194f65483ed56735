"""Packed files in random order."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import digest_of
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.data.shuffled_pbin import build_shuffled_pbin, identity, shuffled_positions
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, OutputExistsError, UserError

ReadDocuments = Callable[[Path], list[list[int]]]


@pytest.mark.parametrize("seed", [0, 42])
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_shuffled_files_are_byte_for_byte_those_of_modalities_whatever_the_batch_size(
    tmp_path: Path, vectors: Path, expected: dict[str, Any], seed: int, batch_size: int
) -> None:
    vector = expected[f"shuffle_tokenized/{seed}"]
    build_shuffled_pbin(vectors / vector["inputs"][0], tmp_path / "x.pbin", batch_size, seed=seed)
    assert (tmp_path / "x.pbin").read_bytes() == (vectors / vector["expect"]["file"]).read_bytes()


def test_the_order_is_that_in_which_python_shuffles_a_list() -> None:
    for number in (0, 1, 2, 1000):
        positions = list(range(number))
        random.Random(7).shuffle(positions)
        assert list(shuffled_positions(number, 7)) == positions


def test_equal_seeds_give_equal_orders_and_no_global_state_is_touched(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments
) -> None:
    """B028."""
    source = write_pbin("a.pbin", [[number] for number in range(100)])

    def order(seed: int | None) -> list[list[int]]:
        build_shuffled_pbin(source, tmp_path / "x.pbin", 10, FileExistencePolicy.OVERRIDE, seed)
        return read_documents(tmp_path / "x.pbin")

    state = random.getstate()
    assert order(1) == order(1) != order(2)
    assert order(None) != order(None)
    assert sorted(order(3)) == read_documents(source)
    assert random.getstate() == state


@pytest.mark.parametrize("token_size", [1, 2, 4])
def test_the_token_size_is_kept(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments, token_size: int
) -> None:
    """B014."""
    documents = [[1], [], [2, 3], [5] * 300]
    source = write_pbin("a.pbin", documents, token_size)
    manifest = build_shuffled_pbin(source, tmp_path / "x.pbin", seed=1)
    with PackedFile(tmp_path / "x.pbin") as file:
        assert file.token_size_in_bytes == token_size
    assert sorted(read_documents(tmp_path / "x.pbin")) == sorted(documents)
    assert manifest is not None
    assert manifest.counts == {"num_documents": 4, "num_tokens": 303}


def test_the_header_tells_the_data_that_are_there(
    tmp_path: Path, vectors: Path, read_documents: ReadDocuments, write_pbin: Callable[..., Path]
) -> None:
    """Also where the input has bytes that belong to no document, which are not copied."""
    content = write_pbin("a.pbin", [[1, 2], [3]]).read_bytes()
    gap = bytes([8, 0, 0, 0, 0, 0, 0, 0]) + content[8:18] + b"\x09\x00" + content[18:]
    (tmp_path / "a.pbin").write_bytes(gap)
    build_shuffled_pbin(tmp_path / "a.pbin", tmp_path / "x.pbin", seed=1)
    assert sorted(read_documents(tmp_path / "x.pbin")) == [[1, 2], [3]]
    with PackedFile(tmp_path / "x.pbin") as file:
        assert file.num_tokens == 3


def test_a_file_without_documents_gives_one_without_documents(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments
) -> None:
    build_shuffled_pbin(write_pbin("a.pbin", []), tmp_path / "x.pbin")
    assert read_documents(tmp_path / "x.pbin") == []


def test_many_documents_are_shuffled_across_batches(
    tmp_path: Path, read_documents: ReadDocuments, write_pbin: Callable[..., Path]
) -> None:
    documents = [[number, number] for number in range(2500)]
    build_shuffled_pbin(write_pbin("a.pbin", documents), tmp_path / "x.pbin", seed=9)
    random.Random(9).shuffle(documents)
    assert read_documents(tmp_path / "x.pbin") == documents


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batch_sizes_below_one_are_refused(tmp_path: Path, write_pbin: Callable[..., Path], batch_size: int) -> None:
    with pytest.raises(UserError, match="batch_size"):
        build_shuffled_pbin(write_pbin("a.pbin", [[1]]), tmp_path / "x.pbin", batch_size)
    assert not (tmp_path / "x.pbin").exists()


def test_the_output_is_never_the_input_and_an_old_one_is_kept(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    """B008."""
    source, other = write_pbin("a.pbin", [[1]]), write_pbin("b.pbin", [[2]])
    before = source.read_bytes()
    (tmp_path / "d").mkdir()
    for spelling in (source, tmp_path / "d" / ".." / "a.pbin"):
        with pytest.raises(UserError, match="also an input"):
            build_shuffled_pbin(source, spelling, 100, FileExistencePolicy.OVERRIDE)
    with pytest.raises(OutputExistsError):
        build_shuffled_pbin(source, other)
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        build_shuffled_pbin(tmp_path / "nowhere.pbin", other, 100, FileExistencePolicy.OVERRIDE)
    assert build_shuffled_pbin(source, other, 100, FileExistencePolicy.SKIP) is None
    assert (source.read_bytes(), other.read_bytes()) == (before, before[:12] + b"\x02" + before[13:])


def test_a_damaged_input_is_refused_and_leaves_the_old_output(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    source, output = write_pbin("a.pbin", [[1], [2]]), write_pbin("x.pbin", [[3]])
    source.write_bytes(source.read_bytes()[:-3])
    before = output.read_bytes()
    with pytest.raises(DatasetFormatError, match=r"a\.pbin"):
        build_shuffled_pbin(source, output, 100, FileExistencePolicy.OVERRIDE)
    assert output.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".pbin") == ["a.pbin", "x.pbin"]


def test_the_manifest_has_the_published_identity(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    source = write_pbin("a.pbin", [[1], [2]])
    manifest = build_shuffled_pbin(source, tmp_path / "x.pbin", seed=4)
    assert manifest is not None
    assert manifest.fingerprint == identity(digest_of(source), 4).fingerprint
    assert manifest.fingerprint != identity(digest_of(source), 5).fingerprint
