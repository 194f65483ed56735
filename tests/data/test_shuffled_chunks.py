"""Shuffled chunks."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import digest_of
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.data.shuffled_chunks import (
    build_shuffled_chunk,
    calculate_hashed_seed,
    chunk_range,
    identity,
)
from modalities_pipeline.exceptions import DatasetNotFoundError, UserError

ReadDocuments = Callable[[Path], list[list[int]]]


def test_chunks_are_byte_for_byte_those_of_modalities(tmp_path: Path, vectors: Path, expected: dict[str, Any]) -> None:
    for chunk_id in range(4):
        vector = expected[f"chunk_pbin/g5/c{chunk_id}"]
        inputs = [vectors / name for name in vector["inputs"]]
        output = tmp_path / f"{chunk_id}.pbin"
        build_shuffled_chunk(inputs, output, chunk_id, 4, global_seed=5)
        assert output.read_bytes() == (vectors / vector["expect"]["file"]).read_bytes()


def test_chunks_that_modalities_refuses_are_refused(tmp_path: Path, vectors: Path, expected: dict[str, Any]) -> None:
    """B029, B014."""
    for name, message in (("no_samples", "Use at most 2 chunks"), ("mixed_token_sizes", "bytes per token")):
        vector = expected[f"chunk_pbin/{name}"]
        assert vector["expect"]["error"] == "ValueError"
        inputs = [vectors / input_name for input_name in vector["inputs"]]
        parameters = {key: vector["params"][key] for key in ("chunk_id", "num_chunks", "global_seed")}
        with pytest.raises(ValueError, match=message):
            build_shuffled_chunk(inputs, tmp_path / "x.pbin", **parameters)


def test_seeds_and_orders_are_those_of_modalities(expected: dict[str, Any]) -> None:
    """B028: numpy does not promise its streams, so a version that changes them is noticed here."""
    for strings, seed in expected["hashed_seed"]["expect"]["table"]:
        assert calculate_hashed_seed(strings) == seed
    assert calculate_hashed_seed(["42", "1"], max_seed=1000) == 668
    for length, seed, order in expected["list_shuffle"]["expect"]["table"]:
        positions = np.arange(length)
        np.random.default_rng(seed).shuffle(positions)
        assert positions.tolist() == order


def test_cuts_are_those_of_modalities(vectors: Path) -> None:
    for num_chunks, num_samples, ranges in json.loads((vectors / "chunk_ranges.json").read_text()):
        cuts = [list(chunk_range(num_chunks, num_samples, chunk_id)) for chunk_id in range(num_chunks)]
        assert cuts == ranges


@pytest.mark.parametrize("num_chunks", range(1, 10))
def test_all_chunks_together_hold_every_document_once(
    num_chunks: int, tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments
) -> None:
    """B029."""
    inputs = [write_pbin("a.pbin", [[1], [2, 2], [3], [4]]), write_pbin("b.pbin", [[5, 5], [6], [7]])]
    documents = []
    for chunk_id in range(num_chunks):
        output = tmp_path / f"chunk_{chunk_id}.pbin"
        if chunk_id >= 4:
            with pytest.raises(UserError, match="at most 4 chunks"):
                build_shuffled_chunk(inputs, output, chunk_id, num_chunks, global_seed=1)
            assert not output.exists()
            continue
        build_shuffled_chunk(inputs, output, chunk_id, num_chunks, global_seed=1)
        documents += read_documents(output)
    assert sorted(documents) == [[1], [2, 2], [3], [4], [5, 5], [6], [7]]


@pytest.mark.parametrize(("chunk_id", "num_chunks"), [(-1, 2), (2, 2), (0, 0)])
def test_impossible_chunk_numbers_are_refused(
    chunk_id: int, num_chunks: int, tmp_path: Path, write_pbin: Callable[..., Path]
) -> None:
    """B029."""
    with pytest.raises(UserError, match="chunk"):
        build_shuffled_chunk([write_pbin("a.pbin", [[1]])], tmp_path / "x.pbin", chunk_id, num_chunks)


def test_the_order_depends_on_the_seed_and_the_chunk_and_nothing_else(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments
) -> None:
    """B028."""
    source = write_pbin("a.pbin", [[number] for number in range(100)])
    code = (
        "import sys; from pathlib import Path; from modalities_pipeline.data.shuffled_chunks import *;"
        "build_shuffled_chunk([Path(sys.argv[1])], Path(sys.argv[2]), 0, 2, global_seed=1)"
    )

    def order(name: str, chunk_id: int, seed: int) -> list[list[int]]:
        build_shuffled_chunk([source], tmp_path / name, chunk_id, 2, global_seed=seed)
        return read_documents(tmp_path / name)

    first = order("first.pbin", 0, 1)
    state = np.random.get_state()[1].tolist()
    assert order("again.pbin", 0, 1) == first
    assert order("seed.pbin", 0, 2) != first
    assert np.random.get_state()[1].tolist() == state
    second_half = [[document[0] - 50] for document in order("chunk.pbin", 1, 1)]
    assert second_half != first
    other_process = tmp_path / "process.pbin"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", code, source, other_process], check=True, env=environment, timeout=60)
    assert read_documents(other_process) == first


def test_without_a_seed_the_order_changes(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments
) -> None:
    source = write_pbin("a.pbin", [[number] for number in range(100)])
    orders = []
    for name in ("x.pbin", "y.pbin"):
        build_shuffled_chunk([source], tmp_path / name, 0, 1)
        orders.append(read_documents(tmp_path / name))
    assert orders[0] != orders[1]


def test_token_sizes_must_agree_and_are_kept(tmp_path: Path, vectors: Path, write_pbin: Callable[..., Path]) -> None:
    """B014."""
    with pytest.raises(UserError, match="bytes per token"):
        build_shuffled_chunk([vectors / "chunk_2.pbin", vectors / "continuous_4.pbin"], tmp_path / "x.pbin", 0, 1)
    build_shuffled_chunk([write_pbin("a.pbin", [[1], [2]], 4)], tmp_path / "x.pbin", 0, 1)
    with PackedFile(tmp_path / "x.pbin") as file:
        assert file.token_size_in_bytes == 4


def test_an_input_is_never_deleted_or_overwritten(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    """B008."""
    source = write_pbin("a.pbin", [[1]])
    content = source.read_bytes()
    with pytest.raises(UserError, match="also an input"):
        build_shuffled_chunk([source], tmp_path / ".." / tmp_path.name / "a.pbin", 0, 1, FileExistencePolicy.OVERRIDE)
    assert source.read_bytes() == content


def test_a_missing_input_is_named_and_the_old_output_stays(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    old = write_pbin("x.pbin", [[1]])
    content = old.read_bytes()
    with pytest.raises(DatasetNotFoundError, match=r"nowhere\.pbin"):
        build_shuffled_chunk([tmp_path / "nowhere.pbin"], old, 0, 1, FileExistencePolicy.OVERRIDE)
    assert old.read_bytes() == content


def test_the_manifest_has_the_published_identity(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    source = write_pbin("a.pbin", [[1], [2]])
    manifest = build_shuffled_chunk([source], tmp_path / "x.pbin", 1, 2, global_seed=3)
    assert manifest is not None
    assert manifest.fingerprint == identity([digest_of(source)], 1, 2, 3).fingerprint
    assert manifest.counts == {"num_documents": 1, "num_tokens": 1}


@pytest.mark.parametrize("num_chunks", [1, 2, 3])
def test_chunks_that_are_not_shuffled_hold_the_documents_in_their_order(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments, num_chunks: int
) -> None:
    first, second = [[number] for number in range(7)], [[number] for number in range(7, 12)]
    sources = [write_pbin("a.pbin", first), write_pbin("b.pbin", second)]
    documents = []
    for chunk_id in range(num_chunks):
        output = tmp_path / f"chunk_{chunk_id}.pbin"
        manifest = build_shuffled_chunk(sources, output, chunk_id, num_chunks, shuffle=False)
        assert manifest is not None
        digests = [digest_of(source) for source in sources]
        assert manifest.fingerprint != identity(digests, chunk_id, num_chunks).fingerprint
        documents += read_documents(output)
    assert documents == first + second
