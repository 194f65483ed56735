"""Packed files without the documents that a function rejects."""

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.filtered_pbin import build_filtered_pbin, filter_dataset, identity
from modalities_pipeline.data.manifest import digest_of, read_manifest
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.exceptions import DatasetFormatError, OutputExistsError, UserError

ReadDocuments = Callable[[Path], list[list[int]]]


def _is_even(position: int) -> bool:
    return position % 2 == 0


def test_filtered_files_are_byte_for_byte_those_of_modalities(
    tmp_path: Path, vectors: Path, expected: dict[str, Any]
) -> None:
    vector = expected["filter/even"]
    source, content = vectors / vector["inputs"][0], (vectors / vector["expect"]["file"]).read_bytes()
    build_filtered_pbin(source, _is_even, tmp_path / "x.pbin")
    filter_dataset(source, tmp_path / "y.pbin", lambda item: _is_even(item[0]))
    assert (tmp_path / "x.pbin").read_bytes() == (tmp_path / "y.pbin").read_bytes() == content


def test_keeping_nothing_is_an_error_or_an_empty_file_as_in_modalities(
    tmp_path: Path, vectors: Path, expected: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    source = vectors / expected["filter/none"]["inputs"][0]
    with pytest.raises(UserError, match=r"No document of .*chunk_0\.pbin is kept by .*lambda"):
        build_filtered_pbin(source, lambda _: False, tmp_path / "x.pbin")
    assert not (tmp_path / "x.pbin").exists()
    with caplog.at_level(logging.WARNING):
        filter_dataset(source, tmp_path / "y.pbin", lambda _: False)
    assert "is empty" in caplog.text
    assert (tmp_path / "y.pbin").read_bytes().hex() == expected["filter_dataset/none"]["expect"]["hex"]


@pytest.mark.parametrize("token_size", [1, 2, 4])
def test_functions_see_the_tokens_and_the_token_size_is_kept(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments, token_size: int
) -> None:
    """B014."""
    source = write_pbin("a.pbin", [[1, 2], [], [200], [3]], token_size)
    seen = []

    def keeps(item: tuple[int, dict[str, Any]]) -> np.bool_:
        position, sample = item
        seen.append((position, sample["input_ids"].dtype, sample["input_ids"].tolist()))
        return np.bool_(sample["input_ids"].sum() < 100)

    filter_dataset(source, tmp_path / "x.pbin", keeps)
    assert seen == [(0, np.int64, [1, 2]), (1, np.int64, []), (2, np.int64, [200]), (3, np.int64, [3])]
    assert read_documents(tmp_path / "x.pbin") == [[1, 2], [], [3]]
    with PackedFile(tmp_path / "x.pbin") as file:
        assert file.token_size_in_bytes == token_size


def test_an_exception_of_the_function_passes_and_leaves_what_was_there(
    tmp_path: Path, write_pbin: Callable[..., Path]
) -> None:
    source, output = write_pbin("a.pbin", [[1], [2]]), write_pbin("x.pbin", [[3]])
    before = output.read_bytes()

    def fails(position: Any) -> bool:
        raise ZeroDivisionError(position)

    with pytest.raises(ZeroDivisionError):
        build_filtered_pbin(source, fails, output, FileExistencePolicy.OVERRIDE)
    with pytest.raises(ZeroDivisionError):
        filter_dataset(source, output, fails)
    assert output.read_bytes() == before


def test_the_identity_follows_from_what_is_kept_not_from_the_function(
    tmp_path: Path, write_pbin: Callable[..., Path]
) -> None:
    source = write_pbin("a.pbin", [[1], [1], [2], [2]])

    def manifest(routine: Callable[[int], bool]) -> Any:
        return build_filtered_pbin(source, routine, tmp_path / "x.pbin", FileExistencePolicy.OVERRIDE)

    even, same, odd = manifest(_is_even), manifest(lambda position: position in (0, 2)), manifest(lambda p: p % 2 == 1)
    assert even.fingerprint == same.fingerprint != odd.fingerprint
    assert even.digest == odd.digest
    assert even.fingerprint == identity(digest_of(source), even.inputs["kept_documents"]).fingerprint
    assert even.details["filter"] == "_is_even"
    assert even.counts == {"num_documents": 2, "num_tokens": 2, "num_documents_in": 4}


def test_the_output_is_never_the_input_and_an_old_one_is_replaced_only_if_asked(
    tmp_path: Path, write_pbin: Callable[..., Path], read_documents: ReadDocuments
) -> None:
    """B008."""
    source, output = write_pbin("a.pbin", [[1], [2]]), write_pbin("x.pbin", [[3]])
    with pytest.raises(UserError, match="also an input"):
        filter_dataset(source, source, lambda _: True)
    with pytest.raises(UserError, match="also an input"):
        build_filtered_pbin(source, _is_even, source, FileExistencePolicy.OVERRIDE)
    with pytest.raises(OutputExistsError):
        build_filtered_pbin(source, _is_even, output)
    filter_dataset(source, output, lambda item: item[0] == 1)
    assert read_documents(output) == [[2]]
    manifest = read_manifest(output)
    assert manifest is not None
    assert manifest.counts["num_documents"] == 1


def test_damaged_documents_are_refused_before_the_function_sees_any(tmp_path: Path, vectors: Path) -> None:
    """B023."""
    with pytest.raises(DatasetFormatError, match="merged by Modalities"):
        build_filtered_pbin(vectors / "merged_upstream.pbin", lambda _: pytest.fail("seen"), tmp_path / "x.pbin")


def test_a_file_that_is_cut_off_while_the_function_runs_is_an_error_and_does_not_kill_the_process(
    tmp_path: Path, write_pbin: Callable[..., Path]
) -> None:
    source = write_pbin("a.pbin", [[1] * 50_000] * 5)
    code = """
import os, sys
from pathlib import Path
from modalities_pipeline.data.filtered_pbin import filter_dataset

folder = Path(sys.argv[1])
filter_dataset(folder / "a.pbin", folder / "x.pbin", lambda item: os.truncate(folder / "a.pbin", 4096) is None)
"""
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1, result
    assert f"DatasetFormatError: {source} changed while it was read." in result.stderr
    assert not (tmp_path / "x.pbin").exists()
