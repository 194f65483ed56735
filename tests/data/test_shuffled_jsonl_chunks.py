"""Shares of JSON-lines files in random order."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.data import shuffled_jsonl_chunks
from modalities_pipeline.data.files import FileExistencePolicy, digest_file
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.data.raw import raw_lines
from modalities_pipeline.data.shuffled_jsonl_chunks import build_shuffled_jsonl_chunk, identity
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, UserError


def test_chunks_are_byte_for_byte_those_of_modalities(tmp_path: Path, vectors: Path, expected: dict[str, Any]) -> None:
    for chunk_id in range(4):
        vector = expected[f"chunk_jsonl/g5/c{chunk_id}"]
        inputs = [vectors / name for name in vector["inputs"]]
        output = tmp_path / f"{chunk_id}.jsonl"
        build_shuffled_jsonl_chunk(inputs, output, chunk_id, 4, global_seed=5)
        assert output.read_bytes().decode() == vector["expect"]["text"]


@pytest.mark.parametrize("num_chunks", range(1, 10))
def test_all_chunks_together_hold_every_line_once(
    num_chunks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B001, B029: the last lines have no line end."""
    monkeypatch.setattr(raw_lines, "_MAX_OPEN_FILES", 2)
    monkeypatch.setattr(shuffled_jsonl_chunks, "_BLOCK_IN_LINES", 2)
    contents = ["a\nb\nc\nd", "", "e\n\ng", "h\n"]
    inputs = [tmp_path / f"{number}.jsonl" for number in range(4)]
    for path, content in zip(inputs, contents, strict=True):
        path.write_text(content)
    lines = []
    for chunk_id in range(num_chunks):
        output = tmp_path / f"out_{chunk_id}.jsonl"
        if chunk_id < 4:
            build_shuffled_jsonl_chunk(inputs, output, chunk_id, num_chunks, global_seed=1)
            lines += output.read_text().split("\n")[:-1]
        else:
            with pytest.raises(UserError, match=r"the largest of the 4 inputs has 4\. Use at most 4 chunks"):
                build_shuffled_jsonl_chunk(inputs, output, chunk_id, num_chunks, global_seed=1)
            assert not output.exists()
    assert sorted(lines) == ["", "a", "b", "c", "d", "e", "g", "h"]


def test_chunks_have_orders_of_their_own_and_the_seed_decides_them(
    tmp_path: Path, write_lines: Callable[..., Path]
) -> None:
    """B028."""
    inputs = [write_lines(f"{name}.jsonl", [str(number) for number in range(100)]) for name in "ab"]

    def chunk(chunk_id: int, seed: int) -> list[str]:
        output = tmp_path / "out.jsonl"
        build_shuffled_jsonl_chunk(inputs, output, chunk_id, 2, FileExistencePolicy.OVERRIDE, seed)
        return output.read_text().split()

    assert chunk(0, 1) == chunk(0, 1) != chunk(0, 2)
    assert sorted(chunk(0, 1)) == sorted(chunk(0, 2))
    assert [int(line) - 50 for line in chunk(1, 1)] != [int(line) for line in chunk(0, 1)]


def test_a_file_named_twice_counts_twice(tmp_path: Path, write_lines: Callable[..., Path]) -> None:
    source = write_lines("a.jsonl", ["1", "2"])
    manifest = build_shuffled_jsonl_chunk([source, source], tmp_path / "out.jsonl", 0, 1, global_seed=1)
    assert manifest is not None
    assert sorted((tmp_path / "out.jsonl").read_text().split()) == ["1", "1", "2", "2"]
    assert manifest.counts == {"num_lines": 4, "num_files": 2}
    assert manifest.fingerprint == identity([digest_file(source)] * 2, 0, 1, 1).fingerprint


@pytest.mark.parametrize(("chunk_id", "num_chunks"), [(-1, 2), (2, 2), (0, 0)])
def test_impossible_chunk_numbers_are_refused(
    tmp_path: Path, write_lines: Callable[..., Path], chunk_id: int, num_chunks: int
) -> None:
    """B029."""
    with pytest.raises(UserError, match="chunk"):
        build_shuffled_jsonl_chunk([write_lines("a.jsonl", ["1"])], tmp_path / "out.jsonl", chunk_id, num_chunks)


def test_inputs_that_do_not_exist_are_all_named(tmp_path: Path, write_lines: Callable[..., Path]) -> None:
    inputs = [write_lines("a.jsonl", ["1"]), tmp_path / "nowhere.jsonl", tmp_path / "lost.jsonl"]
    with pytest.raises(DatasetNotFoundError, match=r"nowhere\.jsonl.*lost\.jsonl"):
        build_shuffled_jsonl_chunk(inputs, tmp_path / "out.jsonl", 0, 1)
    with pytest.raises(UserError, match="Name at least one input"):
        build_shuffled_jsonl_chunk([], tmp_path / "out.jsonl", 0, 1)


def test_an_input_is_never_overwritten(tmp_path: Path, write_lines: Callable[..., Path]) -> None:
    """B008."""
    inputs = [write_lines("a.jsonl", ["1"]), write_lines("b.jsonl", ["2"])]
    (tmp_path / "link.jsonl").symlink_to(inputs[1])
    with pytest.raises(UserError, match="also an input"):
        build_shuffled_jsonl_chunk(inputs, tmp_path / "link.jsonl", 0, 1, FileExistencePolicy.OVERRIDE)
    assert inputs[1].read_text() == "2\n"


def test_empty_inputs_are_refused(tmp_path: Path) -> None:
    """B010."""
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(UserError, match=r"has no lines.*Write documents"):
        build_shuffled_jsonl_chunk([tmp_path / "a.jsonl"], tmp_path / "out.jsonl", 0, 1)


def test_an_input_that_changes_after_its_lines_were_found_is_refused(
    write_lines: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [write_lines("a.jsonl", ["1"] * 2000), write_lines("b.jsonl", ["2"] * 2000)]

    class Shorten(ProgressLog):
        def update(self, done: int) -> None:
            if self._title.startswith("Writing"):
                os.truncate(inputs[1], 100)

    monkeypatch.setattr(shuffled_jsonl_chunks, "ProgressLog", Shorten)
    output = inputs[0].with_name("out.jsonl")
    with pytest.raises(DatasetFormatError, match=r"b\.jsonl changed while it was read"):
        build_shuffled_jsonl_chunk(inputs, output, 0, 1, global_seed=1)
    assert not output.exists()
