"""Copies inside the kernel, and what happens where the kernel cannot."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.data import file_copy
from modalities_pipeline.data.file_copy import copy_range
from modalities_pipeline.exceptions import DatasetFormatError

_CONTENT = os.urandom(300_000)


def _copy(tmp_path: Path, offset: int, num_bytes: int) -> bytes:
    (tmp_path / "source").write_bytes(_CONTENT)
    with open(tmp_path / "source", "rb") as source, open(tmp_path / "target", "wb", buffering=0) as target:
        target.write(b"head")
        reports = [0]
        copy_range(source.fileno(), target.fileno(), offset, num_bytes, reports.append)
        assert reports == sorted(reports)
        assert reports[-1] == num_bytes
        target.write(b"tail")
    return (tmp_path / "target").read_bytes()


def _failing(code: int) -> Any:
    def fail(*_: Any, **__: Any) -> int:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
@pytest.mark.parametrize("unsupported", [[], ["copy_file_range"], ["copy_file_range", "sendfile"]])
def test_bytes_arrive_at_the_current_position_by_every_way_of_copying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unsupported: list[str], code: int
) -> None:
    monkeypatch.setattr(file_copy, "_MAX_KERNEL_COPY_IN_BYTES", 70_000)
    monkeypatch.setattr(file_copy, "_COPY_BLOCK_IN_BYTES", 1000)
    for name in unsupported:
        monkeypatch.setattr(os, name, _failing(code))
    assert _copy(tmp_path, 7, 250_000) == b"head" + _CONTENT[7:250_007] + b"tail"
    assert _copy(tmp_path, 0, 0) == b"headtail"


def test_a_way_of_copying_may_give_up_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_file_range, calls = os.copy_file_range, []

    def copy_a_little(source: int, destination: int, count: int, offset_src: int) -> int:
        calls.append(offset_src)
        if len(calls) > 2:
            raise OSError(errno.EXDEV, "another file system")
        return copy_file_range(source, destination, min(count, 1000), offset_src=offset_src)

    monkeypatch.setattr(os, "copy_file_range", copy_a_little)
    assert _copy(tmp_path, 5, 290_000) == b"head" + _CONTENT[5:290_005] + b"tail"
    assert calls == [5, 1005, 2005]


def test_real_failures_are_not_hidden_by_trying_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "copy_file_range", _failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        _copy(tmp_path, 0, 10)


def test_a_source_that_ends_too_early_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetFormatError, match="ends at byte 300000, 7 bytes too early"):
        _copy(tmp_path, 100, len(_CONTENT) - 93)
