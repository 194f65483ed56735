"""The list of a corpus' raw files."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.data import raw_files
from modalities_pipeline.data.files import digest_file
from modalities_pipeline.data.manifest import manifest_path
from modalities_pipeline.data.raw_files import build_raw_files, find_raw_files, read_raw_files
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, UserError


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are read for their digest."""
    names: list[str] = []

    def digest(path: Path) -> str:
        names.append(path.name)
        return digest_file(path)

    monkeypatch.setattr(raw_files, "digest_file", digest)
    return names


def test_patterns_find_files_sorted_and_once(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "sub/deep/c.jsonl", "[x].jsonl", "notes.txt"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text("1\n")

    def names(*patterns: str) -> list[str]:
        found = find_raw_files(patterns, tmp_path / "in")
        assert all(path.is_absolute() for path in found)
        return [path.name for path in found]

    assert names("*.jsonl", "a.jsonl", "../in/b.jsonl") == ["[x].jsonl", "a.jsonl", "b.jsonl"]
    assert names("**/*.jsonl") == ["[x].jsonl", "a.jsonl", "b.jsonl", "c.jsonl"]
    assert names("[x].jsonl") == ["[x].jsonl"]
    assert names(str(tmp_path / "in" / "a.jsonl")) == ["a.jsonl"]


def test_a_pattern_that_finds_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    with pytest.raises(UserError, match=r"'nowhere/\*\.jsonl'"):
        find_raw_files(["a.jsonl", "nowhere/*.jsonl"], tmp_path)


def test_two_files_whose_outputs_would_share_a_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name in ("a.jsonl", "d/a.json"):
        (tmp_path / name).write_text("1\n")
    with pytest.raises(UserError, match="same name"):
        find_raw_files(["a.jsonl", "d/*"], tmp_path)


def test_the_list_holds_size_and_digest_of_every_file(tmp_path: Path, write_lines: Callable[..., Path]) -> None:
    paths = [write_lines("a.jsonl", ["1"]), write_lines("b.jsonl", ["1", "2"])]
    manifest = build_raw_files(paths, tmp_path / "raw_files.json")
    files = read_raw_files(tmp_path / "raw_files.json")
    assert [(file.name, file.stem, file.path, file.size_in_bytes, file.digest) for file in files] == [
        ("a.jsonl", "a", paths[0], 2, digest_file(paths[0])),
        ("b.jsonl", "b", paths[1], 4, digest_file(paths[1])),
    ]
    assert manifest.counts == {"num_files": 2, "num_bytes": 6}


def test_only_files_that_changed_are_read_again(
    tmp_path: Path, write_lines: Callable[..., Path], hashed: list[str]
) -> None:
    paths = [write_lines("a.jsonl", ["1"]), write_lines("b.jsonl", ["2"])]
    output = tmp_path / "raw_files.json"
    first = build_raw_files(paths, output)
    written_at = output.stat().st_mtime_ns
    assert build_raw_files(paths, output) == first
    assert output.stat().st_mtime_ns == written_at
    assert hashed == ["a.jsonl", "b.jsonl"]
    write_lines("b.jsonl", ["2", "3"])
    assert build_raw_files(paths, output).digest != first.digest
    assert hashed == ["a.jsonl", "b.jsonl", "b.jsonl"]
    assert len(build_raw_files(paths[:1], output).inputs) == 1


def test_adding_a_file_to_a_thousand_reads_that_file_only(tmp_path: Path, hashed: list[str]) -> None:
    (tmp_path / "in").mkdir()
    for number in range(1000):
        (tmp_path / "in" / f"{number:04}.jsonl").write_text("1\n")
    build_raw_files(find_raw_files(["in/*"], tmp_path), tmp_path / "raw_files.json")
    assert len(hashed) == 1000
    hashed.clear()
    (tmp_path / "in" / "new.jsonl").write_text("2\n")
    paths = find_raw_files(["in/*"], tmp_path)
    manifest = build_raw_files(paths, tmp_path / "raw_files.json")
    assert hashed == ["new.jsonl"]
    assert manifest.counts["num_files"] == 1001
    assert build_raw_files(paths, tmp_path / "raw_files.json") == manifest
    assert hashed == ["new.jsonl"]


def test_touching_a_file_changes_nothing(tmp_path: Path, write_lines: Callable[..., Path], hashed: list[str]) -> None:
    paths = [write_lines("a.jsonl", ["1"])]
    first = build_raw_files(paths, tmp_path / "raw_files.json")
    os.utime(paths[0], ns=(1, 1))
    second = build_raw_files(paths, tmp_path / "raw_files.json")
    assert (second.digest, second.fingerprint) == (first.digest, first.fingerprint)
    build_raw_files(paths, tmp_path / "raw_files.json")
    assert hashed == ["a.jsonl", "a.jsonl"]


def test_missing_files_and_lists_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"nowhere\.jsonl.*lost\.jsonl"):
        build_raw_files([tmp_path / "nowhere.jsonl", tmp_path / "lost.jsonl"], tmp_path / "raw_files.json")
    with pytest.raises(UserError, match="no raw files"):
        build_raw_files([], tmp_path / "raw_files.json")
    with pytest.raises(DatasetNotFoundError, match="Materialize raw_files"):
        read_raw_files(tmp_path / "raw_files.json")


@pytest.mark.parametrize("content", ["", "{}x", '[{"name": "a"}]', "[1]"])
def test_a_damaged_list_is_refused_and_can_be_built_again(
    tmp_path: Path, write_lines: Callable[..., Path], content: str
) -> None:
    paths = [write_lines("a.jsonl", ["1"])]
    output = tmp_path / "raw_files.json"
    build_raw_files(paths, output)
    output.write_text(content)
    with pytest.raises(DatasetFormatError, match=r"raw_files\.json"):
        read_raw_files(output)
    build_raw_files(paths, output)
    assert len(read_raw_files(output)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="other systems demand UTF-8")
def test_names_that_are_not_utf8_are_listed_like_others(tmp_path: Path, hashed: list[str]) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xe9me.jsonl"))
    path.write_text("1\n")
    output = tmp_path / "raw_files.json"
    paths = find_raw_files(["*.jsonl"], tmp_path)
    first = build_raw_files(paths, output)
    assert [(file.path, file.name, file.digest) for file in read_raw_files(output)] == [
        (path, path.name, digest_file(path))
    ]
    assert output.read_bytes().isascii()
    assert build_raw_files(paths, output) == first
    assert hashed == [path.name]


def test_a_folder_that_a_pattern_cannot_look_into_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.jsonl", "closed/b.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    scandir = os.scandir

    def refuse(path: Path | str) -> Any:
        if str(path).rstrip("/").endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for pattern in ("**/*.jsonl", "*/*.jsonl", "closed/*"):
        with pytest.raises(DatasetNotFoundError, match=r"closed/? cannot be read: Permission denied"):
            find_raw_files([pattern], tmp_path)
    assert find_raw_files(["*.jsonl"], tmp_path) == [tmp_path / "a.jsonl"]


def test_what_matches_and_is_neither_file_nor_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    (tmp_path / "folder.jsonl").mkdir()
    assert find_raw_files(["*.jsonl"], tmp_path) == [tmp_path / "a.jsonl"]
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(UserError, match=r"pipe\.jsonl is no file"):
        find_raw_files(["*.jsonl"], tmp_path)
    with pytest.raises(DatasetNotFoundError, match="pipe"):
        build_raw_files([tmp_path / "pipe.jsonl"], tmp_path / "raw_files.json")
    (tmp_path / "pipe.jsonl").unlink()
    (tmp_path / "link.jsonl").symlink_to("nowhere")
    with pytest.raises(UserError, match=r"link\.jsonl is no file"):
        find_raw_files(["*.jsonl"], tmp_path)


@pytest.mark.parametrize("times", [None, 5, {"a": []}, {}])
def test_a_record_without_times_means_reading_the_files_again(
    tmp_path: Path, write_lines: Callable[..., Path], hashed: list[str], times: Any
) -> None:
    paths, output = [write_lines("a.jsonl", ["1"])], tmp_path / "raw_files.json"
    build_raw_files(paths, output)
    record = json.loads(manifest_path(output).read_text())
    record["details"] = {"modified_at_in_ns": times}
    manifest_path(output).write_text(json.dumps(record))
    assert read_raw_files(output)[0].modified_at_in_ns is None
    build_raw_files(paths, output)
    assert hashed == ["a.jsonl", "a.jsonl"]
    assert read_raw_files(output)[0].modified_at_in_ns == paths[0].stat().st_mtime_ns
