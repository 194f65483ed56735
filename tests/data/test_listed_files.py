"""Lists of input files: what a line means, and one clear error for each that means nothing."""

import os
from pathlib import Path

import pytest

from modalities_pipeline.data.listed_files import listed_files
from modalities_pipeline.exceptions import ConfigError, DatasetNotFoundError


def test_names_in_a_list_mean_the_file_that_is_there(tmp_path):
    for name in ("a.pbin", "b.v1.pbin", "sub/c.pbin", "b.pbin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = tmp_path / "names.txt"
    names.write_text("a.jsonl\n\n  b.v1 \r\nsub/c.pbin\n", encoding="utf-8")
    assert listed_files(names, tmp_path, ".pbin") == [
        tmp_path / "a.pbin",
        tmp_path / "b.v1.pbin",
        tmp_path / "sub" / "c.pbin",
    ]


def test_all_names_without_a_file_are_told_with_their_lines(tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("\nnope\nneither.jsonl\n", encoding="utf-8")
    with pytest.raises(DatasetNotFoundError) as caught:
        listed_files(names, tmp_path, ".pbin")
    told = str(caught.value).splitlines()
    assert [line.partition(": ")[0] for line in told] == [f"{names}, line 2", f"{names}, line 3"]
    names.write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="names no file"):
        listed_files(names, tmp_path, ".pbin")


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    (tmp_path / "a.pbin").touch()
    (tmp_path / "names.txt").write_bytes(b"\xef\xbb\xbfa.pbin\r\n")
    assert listed_files(tmp_path / "names.txt", tmp_path, ".pbin") == [tmp_path / "a.pbin"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/", "'/' is the name of a folder"),
        (".", "is the name of a folder"),
        ("..", "is the name of a folder"),
        ("sub/", "is the name of a folder"),
        ("x" * 300, "cannot be read: File name too long"),
        ("a/" * 3000 + "b", "cannot be read: File name too long"),
        ("nul\0byte", "null byte"),
        ("folder.pbin", r"folder\.pbin is not a file"),
        ("pipe.pbin", r"pipe\.pbin is not a file"),
        ("loop.pbin", r"loop\.pbin cannot be read: Too many levels"),
        ("names.txt/x", r"there is no .*names\.txt/x\.pbin"),
    ],
)
def test_a_line_that_names_no_file_is_told_with_its_number(line, message, tmp_path):
    (tmp_path / "folder.pbin").mkdir()
    os.mkfifo(tmp_path / "pipe.pbin")
    (tmp_path / "loop.pbin").symlink_to("loop.pbin")
    names = tmp_path / "names.txt"
    names.write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(DatasetNotFoundError, match=rf"names\.txt, line 2: .*{message}") as caught:
        listed_files(names, tmp_path, ".pbin")
    assert len(str(caught.value).splitlines()) == 1


def test_a_list_that_is_no_readable_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, message in (("", "is not a file"), ("pipe", "is not a file"), ("nope", "cannot be read: No such file")):
        with pytest.raises(DatasetNotFoundError, match=message):
            listed_files(tmp_path / name, tmp_path, ".pbin")
    (tmp_path / "latin").write_bytes(b"\xef\xbb\xbfn\xe9")
    with pytest.raises(ConfigError, match=r"not UTF-8 \(byte 4\)"):
        listed_files(tmp_path / "latin", tmp_path, ".pbin")


def test_a_root_that_is_no_folder_to_look_into_is_one_error(tmp_path, monkeypatch):
    names = tmp_path / "names.txt"
    names.write_text("a\nb\n")
    for root in (tmp_path / "nope", names):
        with pytest.raises(DatasetNotFoundError, match=f"No file can be found in {root}") as caught:
            listed_files(names, root, ".pbin")
        assert "line" not in str(caught.value)
    stat = os.stat

    def closed(path: str | Path) -> os.stat_result:
        if os.fspath(path).startswith(f"{tmp_path}/closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path)

    monkeypatch.setattr(os, "stat", closed)
    with pytest.raises(DatasetNotFoundError, match="closed: Permission denied"):
        listed_files(names, tmp_path / "closed", ".pbin")
