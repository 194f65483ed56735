"""Indexing raw files that change meanwhile, or hold very many documents."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data import raw_index
from modalities_pipeline.data.jsonl import read_index
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.data.raw import raw_source
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.exceptions import DatasetFormatError


def _append(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"{}\n")


def _shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


def _replace(path: Path) -> None:
    other = path.with_name("other.jsonl")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)


def _overwrite(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"[]")


@pytest.mark.parametrize("change", [_append, _shorten, _replace, _overwrite, Path.unlink])
def test_a_file_that_changes_while_it_is_read_is_refused(
    write_lines: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    source = write_lines("a.jsonl", ["{}"] * 50)
    time_of_change = source.stat().st_mtime_ns - 10**9
    os.utime(source, ns=(time_of_change, time_of_change))
    monkeypatch.setattr(raw_source, "_BLOCK_IN_BYTES", 60)

    class ChangeAtOnce(ProgressLog):
        def update(self, done: int) -> None:
            if done == 60:
                change(source)

    monkeypatch.setattr(raw_index, "ProgressLog", ChangeAtOnce)
    with pytest.raises(DatasetFormatError, match=r"a\.jsonl changed while it was read"):
        build_raw_index(source)
    assert {path.name for path in source.parent.iterdir()} - {"a.jsonl"} <= {".a.idx.lock"}


def test_a_file_that_grows_without_end_is_refused_at_once(
    write_lines: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines("a.jsonl", ["{}"] * 50)
    monkeypatch.setattr(raw_source, "_BLOCK_IN_BYTES", 60)
    reports: list[int] = []

    class Grow(ProgressLog):
        def update(self, done: int) -> None:
            reports.append(done)
            source.write_bytes(source.read_bytes() * 2)

    monkeypatch.setattr(raw_index, "ProgressLog", Grow)
    with pytest.raises(DatasetFormatError, match="changed while it was read"):
        build_raw_index(source)
    assert reports == [60, 120]


_UNDER_A_LIMIT = """
import resource, sys
from pathlib import Path
limit = 500 << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from modalities_pipeline.data.raw_index import build_raw_index
print(build_raw_index(Path(sys.argv[1])).counts["num_documents"])
"""


@pytest.mark.slow
def test_millions_of_documents_are_indexed_in_little_memory(tmp_path: Path) -> None:
    """B009."""
    source = tmp_path / "a.jsonl"
    source.write_bytes(b'{"text": "a"}\n' * 2_000_000)
    command = [sys.executable, "-c", _UNDER_A_LIMIT, str(source)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # each thread reserves memory
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout) == (0, "2000000\n"), done.stderr
    index = read_index(source.with_suffix(".idx"))
    assert (len(index), index[-1]) == (2_000_000, (14 * 1_999_999, 13))
