"""Merging packed files."""

import itertools
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, StageIdentity, digest_of, record
from modalities_pipeline.data.merged_pbin import build_merged_pbin, identity
from modalities_pipeline.data.pbin import PackedFile, PackedFileWriter
from modalities_pipeline.data.production import produce
from modalities_pipeline.data.shuffled_chunks import build_shuffled_chunk
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, OutputExistsError, UserError

ReadDocuments = Callable[[Path], list[list[int]]]


def test_the_merged_file_has_the_data_of_modalities_and_the_right_index(
    tmp_path: Path, vectors: Path, expected: dict[str, Any]
) -> None:
    """B023."""
    inputs = [vectors / name for name in expected["merge/three"]["inputs"]]
    build_merged_pbin(inputs, tmp_path / "x.pbin")
    assert (tmp_path / "x.pbin").read_bytes() == (vectors / "merged_intended.pbin").read_bytes()


def test_documents_of_all_files_come_back_in_order(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments
) -> None:
    """B023, also for inputs without documents."""
    groups = [[[97, 97, 97], [98, 98]], [], [[99] * 4, [100], [101, 101]], [[102] * 3]]
    inputs = [write_pbin(f"{number}.pbin", documents) for number, documents in enumerate(groups)]
    build_merged_pbin(inputs, tmp_path / "x.pbin")
    assert read_documents(tmp_path / "x.pbin") == [document for documents in groups for document in documents]


def test_one_input_is_copied_byte_for_byte(tmp_path: Path, vectors: Path) -> None:
    build_merged_pbin([vectors / "chunk_0.pbin"], tmp_path / "x.pbin")
    assert (tmp_path / "x.pbin").read_bytes() == (vectors / "chunk_0.pbin").read_bytes()


def test_a_merged_file_of_modalities_is_refused_with_the_advice_to_repair_it(
    tmp_path: Path, vectors: Path, write_pbin: Callable[..., Path]
) -> None:
    """B023: offsets of the second input are 12 bytes too low, in the first file here below zero."""
    path = write_pbin("a.pbin", [[1], [2]])
    path.write_bytes(path.read_bytes()[:16] + pickle.dumps([(0, 2), (-10, 2)], protocol=4))
    for source in (path, vectors / "merged_upstream.pbin"):
        with pytest.raises(DatasetFormatError, match=r"[Rr]epair it"):
            build_merged_pbin([source], tmp_path / "x.pbin")
        with pytest.raises(DatasetFormatError, match=r"[Rr]epair it"):
            build_shuffled_chunk([source], tmp_path / "x.pbin", 0, 1)
    assert not (tmp_path / "x.pbin").exists()


@pytest.mark.parametrize("token_size", [1, 2, 4])
def test_the_token_size_is_kept(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments, token_size: int
) -> None:
    """B014."""
    build_merged_pbin([write_pbin("a.pbin", [[1], [2]], token_size)], tmp_path / "x.pbin")
    with PackedFile(tmp_path / "x.pbin") as file:
        assert file.token_size_in_bytes == token_size
    assert read_documents(tmp_path / "x.pbin") == [[1], [2]]


def test_a_file_that_is_listed_and_lies_in_a_listed_folder_is_taken_twice(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments
) -> None:
    (tmp_path / "in").mkdir()
    path = write_pbin("in/a.pbin", [[1], [2]])
    build_merged_pbin([path, tmp_path / "in"], tmp_path / "x.pbin")
    assert read_documents(tmp_path / "x.pbin") == [[1], [2], [1], [2]]


def test_large_and_small_indices_are_merged_and_memory_holds_neither(tmp_path: Path) -> None:
    """B009, B023."""
    sizes = [70_000, 10, 66_000]
    for number, size in enumerate(sizes):
        with PackedFileWriter(tmp_path / f"{number}.pbin", 2) as writer:
            lengths = np.arange(size, dtype=np.int64) % 3
            writer.write_flat(np.full(int(lengths.sum()), number, dtype=np.uint16), lengths)
    build_merged_pbin([tmp_path / f"{number}.pbin" for number in range(3)], tmp_path / "x.pbin")
    with PackedFile(tmp_path / "x.pbin") as file:
        file.check_index()
        assert file.num_documents == sum(sizes)
        starts = [0, *itertools.accumulate(sizes)]
        for number, (start, size) in enumerate(zip(starts, sizes, strict=False)):
            for position in (0, 2, size - 1):
                assert file.document(start + position).tolist() == [number] * (position % 3)
    assert len(pickle.loads((tmp_path / "x.pbin").read_bytes()[12 + file.data_length_in_bytes :])) == sum(sizes)


def test_a_folder_stands_for_its_files_sorted_by_path(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B027."""
    (tmp_path / "in" / "sub").mkdir(parents=True)
    for number, name in enumerate(["b.pbin", "a.pbin", "10.pbin", "2.pbin", "sub/c.pbin"]):
        write_pbin(f"in/{name}", [[number]])
    (tmp_path / "in" / "notes.txt").write_text("no pack")
    build_merged_pbin([tmp_path / "in"], tmp_path / "x.pbin")
    walk = os.walk
    monkeypatch.setattr(
        os, "walk", lambda *a, **k: [(folder, [], names[::-1]) for folder, _, names in reversed(list(walk(*a, **k)))]
    )
    build_merged_pbin([tmp_path / "in"], tmp_path / "y.pbin")
    assert read_documents(tmp_path / "x.pbin") == [[2], [3], [1], [0], [4]]
    assert (tmp_path / "x.pbin").read_bytes() == (tmp_path / "y.pbin").read_bytes()


def test_nothing_to_merge_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for sources in ([], [tmp_path / "in"]):
        with pytest.raises(UserError, match=r"No \.pbin file"):
            build_merged_pbin(sources, tmp_path / "x.pbin")
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        build_merged_pbin([tmp_path / "nowhere"], tmp_path / "x.pbin")


def test_a_folder_that_cannot_be_read_is_an_error_and_no_empty_one(
    tmp_path: Path, write_pbin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in" / "closed").mkdir(parents=True)
    write_pbin("in/a.pbin", [[1]])
    scandir = os.scandir

    def refuse(path: Path | str) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DatasetNotFoundError, match=r"closed cannot be searched for \.pbin files: Permission denied"):
        build_merged_pbin([tmp_path / "in"], tmp_path / "x.pbin")


def test_pipes_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "in" / "a.pbin")
    for source in (tmp_path / "in", tmp_path / "in" / "a.pbin"):
        with pytest.raises(UserError, match=r"a\.pbin is neither a file nor a folder"):
            build_merged_pbin([source], tmp_path / "x.pbin")


def test_token_sizes_must_agree(tmp_path: Path, vectors: Path) -> None:
    """B026."""
    with pytest.raises(UserError, match="bytes per token"):
        build_merged_pbin([vectors / "chunk_0.pbin", vectors / "continuous_4.pbin"], tmp_path / "x.pbin")


def test_an_existing_target_or_an_input_is_never_replaced(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    """B008."""
    first, second = write_pbin("a.pbin", [[1]]), write_pbin("b.pbin", [[2]])
    with pytest.raises(FileExistsError):
        build_merged_pbin([first], second)
    with pytest.raises(OutputExistsError):
        build_merged_pbin([first], second)
    with pytest.raises(UserError, match="also an input"):
        build_merged_pbin([first, second], second, FileExistencePolicy.OVERRIDE)


def _packed_with(path: Path, fingerprint: str) -> Path:
    """Give a pack a manifest that names its tokenizer."""
    content = path.read_bytes()
    details = {
        "tokenizer_fingerprint": fingerprint,
        "vocab_size": 100,
        "num_token_ids": 101,
        "eod_token": "<eod>",
        "eod_token_id": 0,
        "token_size_in_bytes": 2,
        "skipped": [],
    }

    def build(temporary: Path) -> BuildResult:
        temporary.write_bytes(content)
        return BuildResult({}, details)

    identity = StageIdentity("tokenized_pack", "1", {}, {})
    produce(path, [], FileExistencePolicy.OVERRIDE, lambda: identity, build)
    return path


def test_packs_of_different_tokenizers_are_not_mixed(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    """B022, B026."""
    first = _packed_with(write_pbin("a.pbin", [[1]]), "sha256:one")
    second = _packed_with(write_pbin("b.pbin", [[2]]), "sha256:two")
    with pytest.raises(UserError, match=r"sha256:one.*sha256:two"):
        build_merged_pbin([first, second], tmp_path / "x.pbin")
    with pytest.raises(UserError, match=r"sha256:one.*sha256:two"):
        build_shuffled_chunk([first, second], tmp_path / "y.pbin", 0, 1)
    assert not list(tmp_path.glob("[xy].pbin"))


def test_what_is_known_of_the_tokenizer_is_handed_on(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    """A foreign file without a manifest has no say."""
    packs = [_packed_with(write_pbin(f"{name}.pbin", [[1], [2]]), "sha256:one") for name in "ab"]
    foreign = write_pbin("c.pbin", [[3]])
    chunk = build_shuffled_chunk([*packs, foreign], tmp_path / "chunk.pbin", 0, 1, global_seed=1)
    merged = build_merged_pbin([tmp_path / "chunk.pbin"], tmp_path / "x.pbin")
    assert chunk is not None
    assert merged is not None
    assert chunk.details == merged.details
    assert merged.details == {
        "tokenizer_fingerprint": "sha256:one",
        "vocab_size": 100,
        "num_token_ids": 101,
        "eod_token": "<eod>",
        "eod_token_id": 0,
        "token_size_in_bytes": 2,
    }
    assert merged.counts == {"num_documents": 5, "num_tokens": 5, "num_files": 1}


def test_the_manifest_has_the_published_identity(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    """The order of inputs is part of it."""
    first, second = write_pbin("a.pbin", [[1]]), write_pbin("b.pbin", [[2]])
    manifest = build_merged_pbin([first, second], tmp_path / "x.pbin")
    assert manifest is not None
    digests = [digest_of(first), digest_of(second)]
    assert manifest.fingerprint == identity(digests).fingerprint
    assert manifest.fingerprint != identity(digests[::-1]).fingerprint


def test_another_tokenizer_changes_the_identity_even_if_the_tokens_are_the_same(
    tmp_path: Path, write_pbin: Callable[..., Path]
) -> None:
    source = write_pbin("a.pbin", [[1]])
    fingerprints = set()
    for details in ({"eod_token": "<eod>"}, {"eod_token": "<end>"}, {"eod_token": "<end>", "num_token_ids": 9}):
        result = BuildResult({}, {"tokenizer_fingerprint": "sha256:one", **details})
        record(StageIdentity("tokenized_pack", "1", {}, {}), source, result, 0.0)
        merged = build_merged_pbin([source], tmp_path / "x.pbin", FileExistencePolicy.OVERRIDE)
        chunk = build_shuffled_chunk([source], tmp_path / "y.pbin", 0, 1, FileExistencePolicy.OVERRIDE)
        assert merged is not None
        assert chunk is not None
        assert merged.details["eod_token"] == chunk.details["eod_token"] == details["eod_token"]
        fingerprints |= {merged.fingerprint, chunk.fingerprint}
    assert len(fingerprints) == 6
