"""JSON-lines files in random order."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.data import shuffled_jsonl
from modalities_pipeline.data.files import FileExistencePolicy, digest_file
from modalities_pipeline.data.manifest import read_manifest
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.data.raw import raw_source
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.shuffled_jsonl import build_shuffled_jsonl, identity
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, OutputExistsError, UserError


def test_shuffled_files_are_byte_for_byte_those_of_modalities(
    tmp_path: Path, vectors: Path, expected: dict[str, Any]
) -> None:
    """B001: where Modalities glues a last line without line end to another one, they are what it should have made."""
    checked = 0
    for name, vector in expected.items():
        if name.startswith("shuffle_jsonl/"):
            output = tmp_path / f"{name.replace('/', '_')}.jsonl"
            build_shuffled_jsonl(vectors / vector["inputs"][0], output, seed=vector["params"]["seed"])
            right = vector["intended"] if vector["status"] == "upstream_bug" else vector["expect"]
            assert output.read_bytes().decode() == right["text"], name
            checked += 1
    assert checked == 4


@pytest.mark.parametrize("seed", range(10))
def test_a_last_line_without_line_end_stays_a_line_of_its_own(tmp_path: Path, seed: int) -> None:
    """B001."""
    source = tmp_path / "a.jsonl"
    source.write_text('{"text":"a"}\n{"text":"b"}\n{"text":"c"}')
    build_shuffled_jsonl(source, tmp_path / "out.jsonl", seed=seed)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["text"] for line in lines) == ["a", "b", "c"]
    manifest = build_raw_index(source)
    assert manifest is not None
    assert manifest.counts["num_documents"] == 3


def test_every_line_is_kept_as_it_is(tmp_path: Path) -> None:
    lines = [b'{"i": 1}\n', b"\n", b'{"i": 2}\r\n', b" \t\n", b"\xff\x00\n", "\u2028\n".encode(), b"{bad\n"] * 50
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    manifest = build_shuffled_jsonl(tmp_path / "a.jsonl", tmp_path / "out.jsonl", seed=3)
    assert manifest is not None
    assert manifest.counts == {"num_lines": 350}
    with open(tmp_path / "out.jsonl", "rb") as output:
        shuffled = list(output)
    assert shuffled != lines
    assert sorted(shuffled) == sorted(lines)


def test_the_same_seed_gives_the_same_order_in_every_process(write_lines: Callable[..., Path]) -> None:
    """B028."""
    source = write_lines("a.jsonl", [str(number) for number in range(100)])

    def shuffle(seed: int) -> bytes:
        output = source.with_name("out.jsonl")
        build_shuffled_jsonl(source, output, FileExistencePolicy.OVERRIDE, seed)
        return output.read_bytes()

    state = random.getstate()
    assert shuffle(1) == shuffle(1) != shuffle(2)
    assert random.getstate() == state
    code = (
        "from pathlib import Path; from modalities_pipeline.data.shuffled_jsonl import build_shuffled_jsonl; "
        f"build_shuffled_jsonl(Path({str(source)!r}), Path({str(source.with_name('other.jsonl'))!r}), seed=1)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONHASHSEED": "7"}, timeout=60)
    assert source.with_name("other.jsonl").read_bytes() == shuffle(1)


def test_an_empty_file_stays_empty(tmp_path: Path) -> None:
    """B010."""
    (tmp_path / "a.jsonl").touch()
    build_shuffled_jsonl(tmp_path / "a.jsonl", tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_the_input_is_never_overwritten_however_its_path_is_spelt(
    tmp_path: Path, write_lines: Callable[..., Path]
) -> None:
    """B008."""
    source = write_lines("x.jsonl", ["1", "2"])
    (tmp_path / "d").mkdir()
    (tmp_path / "link.jsonl").symlink_to(source)
    os.link(source, tmp_path / "hard.jsonl")
    for output in (source, tmp_path / "d" / ".." / "x.jsonl", tmp_path / "link.jsonl", tmp_path / "hard.jsonl"):
        with pytest.raises(UserError, match="also an input"):
            build_shuffled_jsonl(source, output, FileExistencePolicy.OVERRIDE, seed=1)
    assert source.read_text() == "1\n2\n"


def test_an_existing_output_is_refused_kept_or_replaced(tmp_path: Path, write_lines: Callable[..., Path]) -> None:
    source, output = write_lines("a.jsonl", ["1"]), tmp_path / "out.jsonl"
    output.write_text("old")
    with pytest.raises(OutputExistsError):
        build_shuffled_jsonl(source, output)
    assert build_shuffled_jsonl(source, output, FileExistencePolicy.SKIP) is None
    assert output.read_text() == "old"
    build_shuffled_jsonl(source, output, FileExistencePolicy.OVERRIDE)
    assert output.read_text() == "1\n"


def test_a_missing_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"nowhere\.jsonl"):
        build_shuffled_jsonl(tmp_path / "nowhere.jsonl", tmp_path / "out.jsonl")


@pytest.mark.parametrize("title", ["Finding the lines of a.jsonl", "Shuffling a.jsonl"])
@pytest.mark.parametrize("new_content", [b"", b"1\n" * 10_000, b"11\n" * 1000])
def test_an_input_that_changes_while_it_is_read_is_refused(
    write_lines: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, title: str, new_content: bytes
) -> None:
    source = write_lines("a.jsonl", ["22"] * 2000)
    monkeypatch.setattr(raw_source, "_BLOCK_IN_BYTES", 1000)

    class Change(ProgressLog):
        def update(self, done: int) -> None:
            if self._title == title:
                source.write_bytes(new_content)

    monkeypatch.setattr(shuffled_jsonl, "ProgressLog", Change)
    with pytest.raises(DatasetFormatError, match=r"a\.jsonl changed while it was read"):
        build_shuffled_jsonl(source, source.with_name("out.jsonl"), seed=1)
    assert {path.name for path in source.parent.iterdir()} == {"a.jsonl"}


def test_the_manifest_has_the_published_identity(write_lines: Callable[..., Path]) -> None:
    source = write_lines("a.jsonl", ["1", "2"])
    output = source.with_name("out.jsonl")
    build_shuffled_jsonl(source, output, seed=1)
    manifest = read_manifest(output)
    assert manifest is not None
    assert manifest.fingerprint == identity(digest_file(source), seed=1).fingerprint
    assert manifest.fingerprint != identity(digest_file(source), seed=2).fingerprint


def test_a_shuffled_file_is_not_hashed_again_by_what_reads_it(
    write_lines: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines("a.jsonl", ["1", "2"])
    first, second = source.with_name("first.jsonl"), source.with_name("second.jsonl")
    build_shuffled_jsonl(source, first, seed=1)
    digest = digest_file(first)
    monkeypatch.setattr(raw_source, "xxhash", None)
    manifest = build_shuffled_jsonl(first, second, seed=1)
    assert manifest is not None
    assert manifest.inputs == {"source": digest}
