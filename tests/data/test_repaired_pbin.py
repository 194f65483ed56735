"""Repair of files that Modalities merged."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import digest_of
from modalities_pipeline.data.merged_pbin import build_merged_pbin
from modalities_pipeline.data.repaired_pbin import build_repaired_pbin, identity
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, UserError

Documents = list[list[int]]


def merge_as_modalities(paths: list[Path], output_path: Path) -> Path:
    """Write the file that Modalities 0.5.0 makes of these files: offsets too low by 12 bytes per preceding input."""
    data, pairs, shift = b"", [], 0
    for path in paths:
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        pairs += [(offset + shift, size) for offset, size in pickle.loads(content[12 + length :])]
        data += content[12 : 12 + length]
        shift += length - 12
    token_size = paths[0].read_bytes()[8:12]
    output_path.write_bytes(len(data).to_bytes(8, "little") + token_size + data + pickle.dumps(pairs, protocol=4))
    return output_path


def test_the_file_that_modalities_merged_becomes_the_right_one(tmp_path: Path, vectors: Path) -> None:
    """B023."""
    inputs = [vectors / f"chunk_{number}.pbin" for number in range(3)]
    broken = merge_as_modalities(inputs, tmp_path / "broken.pbin")
    assert broken.read_bytes() == (vectors / "merged_upstream.pbin").read_bytes()
    manifest = build_repaired_pbin(broken, tmp_path / "x.pbin")
    assert (tmp_path / "x.pbin").read_bytes() == (vectors / "merged_intended.pbin").read_bytes()
    assert manifest is not None
    assert manifest.counts == {"num_documents": 14, "num_tokens": 28}
    assert manifest.fingerprint == identity(digest_of(broken)).fingerprint


@pytest.mark.parametrize(
    "groups",
    [
        [[[1]], [[2]]],
        [[[1]], [], [[2, 3], []], [[4]]],
        [[[]], [[]]],
        [[[1] * 50, [2] * 50], [[3] * 50], [[4] * 50]],
    ],
    ids=["negative offsets", "empty inputs", "no tokens", "all offsets possible"],
)
def test_repairing_equals_merging_again(
    tmp_path: Path, write_pbin: Callable[..., Path], groups: list[Documents]
) -> None:
    """B023."""
    inputs = [write_pbin(f"{number}.pbin", documents, 4) for number, documents in enumerate(groups)]
    build_repaired_pbin(merge_as_modalities(inputs, tmp_path / "broken.pbin"), tmp_path / "x.pbin")
    build_merged_pbin(inputs, tmp_path / "y.pbin")
    assert (tmp_path / "x.pbin").read_bytes() == (tmp_path / "y.pbin").read_bytes()


def test_merged_files_that_were_merged_again_are_repaired_too(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    """B023: the shifts of both mergers add up."""
    inputs = [write_pbin(f"{number}.pbin", [[number] * 40, [number]]) for number in range(4)]
    first = merge_as_modalities(inputs[:2], tmp_path / "first.pbin")
    second = merge_as_modalities(inputs[2:], tmp_path / "second.pbin")
    broken = merge_as_modalities([first, second, inputs[0]], tmp_path / "broken.pbin")
    build_repaired_pbin(broken, tmp_path / "x.pbin")
    build_merged_pbin([*inputs, inputs[0]], tmp_path / "y.pbin")
    assert (tmp_path / "x.pbin").read_bytes() == (tmp_path / "y.pbin").read_bytes()


def test_a_sound_file_needs_no_repair(tmp_path: Path, vectors: Path) -> None:
    for name in ("chunk_0.pbin", "merged_intended.pbin"):
        with pytest.raises(UserError, match="nothing to repair"):
            build_repaired_pbin(vectors / name, tmp_path / "x.pbin")
    assert not (tmp_path / "x.pbin").exists()


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 4), (-2, 4)],
        [(0, 4), (-8, 6)],
        [(0, 4), (4, 8)],
        [(0, 4), (4, -4), (0, 8)],
        [(1, 8)],
    ],
    ids=["another shift", "lengths too long", "beyond the data", "a negative length", "half a token"],
)
def test_files_damaged_in_another_way_are_refused(tmp_path: Path, pairs: list[tuple[int, int]]) -> None:
    source = tmp_path / "a.pbin"
    source.write_bytes(bytes([8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]) + bytes(8) + pickle.dumps(pairs, protocol=4))
    with pytest.raises(DatasetFormatError, match=r"a\.pbin cannot be repaired"):
        build_repaired_pbin(source, tmp_path / "x.pbin")
    assert not (tmp_path / "x.pbin").exists()


def test_the_input_is_never_replaced(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    """B008."""
    broken = merge_as_modalities([write_pbin("a.pbin", [[1]]), write_pbin("b.pbin", [[2]])], tmp_path / "x.pbin")
    with pytest.raises(UserError, match="also an input"):
        build_repaired_pbin(broken, broken, FileExistencePolicy.OVERRIDE)
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        build_repaired_pbin(tmp_path / "nowhere.pbin", tmp_path / "y.pbin")
