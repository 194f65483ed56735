"""Copies of documents in any order, of few and of thousands of files."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from modalities_pipeline.data.packed import document_copy
from modalities_pipeline.data.packed.document_copy import Share, whole, write_documents
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.exceptions import DatasetFormatError

ReadDocuments = Callable[[Path], list[list[int]]]


@pytest.fixture
def shares(write_pbin: Callable[..., Path]) -> list[Share]:
    """Parts of 20 files, some of them without documents; document i of all has the tokens i, i."""
    shares, number = [], 0
    for name, (size, start, end) in enumerate([(9, 2, 7), (0, 0, 0), (4, 0, 4), (3, 3, 3), (1, 0, 1)] * 4):
        documents = [[60_000]] * size
        for position in range(start, end):
            documents[position] = [number, number]
            number += 1
        shares.append(Share(PackedFile(write_pbin(f"{name}.pbin", documents)), start, end))
    return shares


@pytest.mark.parametrize("max_mapped_files", [20, 1])
@pytest.mark.parametrize("max_bytes", [1 << 20, 13, 1])
@pytest.mark.parametrize("max_documents", [1000, 7])
def test_documents_arrive_in_the_given_order_however_they_are_batched_and_mapped(
    tmp_path: Path,
    shares: list[Share],
    read_documents: ReadDocuments,
    monkeypatch: pytest.MonkeyPatch,
    max_mapped_files: int,
    max_bytes: int,
    max_documents: int,
) -> None:
    monkeypatch.setattr(document_copy, "_MAX_MAPPED_FILES", max_mapped_files)
    monkeypatch.setattr(document_copy, "_MAX_BATCH_IN_BYTES", max_bytes)
    monkeypatch.setattr(document_copy, "_BATCH_IN_DOCUMENTS", max_documents)
    monkeypatch.setattr(document_copy, "_BATCH_OF_MANY_FILES_IN_DOCUMENTS", max_documents)
    order = list(range(40)) * 2
    random.Random(5).shuffle(order)
    result = write_documents(shares, np.array(order), "Copying", tmp_path / "x.pbin")
    assert read_documents(tmp_path / "x.pbin") == [[number, number] for number in order]
    assert result.counts == {"num_documents": 80, "num_tokens": 160}
    assert result.details == {"token_size_in_bytes": 2}


def test_at_most_half_of_the_allowed_files_are_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, expected in ((100, 50), (-1, 10_000), (10**6, 10_000)):
        monkeypatch.setattr(document_copy.resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert document_copy._max_mapped_files() == expected


def test_all_indices_are_checked_before_anything_is_copied(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    sound, damaged = write_pbin("a.pbin", [[1], [2]]), write_pbin("b.pbin", [[3], [4]])
    damaged.write_bytes(damaged.read_bytes().replace(b"K\x02K\x02", b"K\x02K\x03"))
    shares = [whole(PackedFile(path)) for path in (sound, damaged)]
    with pytest.raises(DatasetFormatError, match=r"b\.pbin.*document 1"):
        write_documents(shares, np.array([0]), "Copying", tmp_path / "x.pbin")


_CUT_OFF = """
import os, sys
from pathlib import Path
import numpy as np
from modalities_pipeline.data.packed import document_copy
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.data.progress_log import ProgressLog

class Cutting(ProgressLog):
    def update(self, done):
        os.truncate(sys.argv[-1], 4096)

document_copy.ProgressLog = Cutting
shares = [document_copy.whole(PackedFile(Path(path))) for path in sys.argv[2:]]
order = np.arange(sum(share.num_documents for share in shares))
document_copy.write_documents(shares, order, "Copying", Path(sys.argv[1]))
"""


@pytest.mark.parametrize("num_files", [1, 2])
def test_a_file_that_is_cut_off_while_it_is_read_is_an_error_and_does_not_kill_the_process(
    tmp_path: Path, write_pbin: Callable[..., Path], num_files: int
) -> None:
    documents = [[number] * 50_000 for number in range(20)]
    paths = [str(write_pbin(f"{number}.pbin", documents)) for number in range(num_files)]
    command = [sys.executable, "-c", _CUT_OFF, str(tmp_path / "x.pbin"), *paths]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1, result
    assert f"DatasetFormatError: {paths[-1]} changed while it was read." in result.stderr
