"""Lists of files: a text file that names one input per line."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from modalities_pipeline.exceptions import ConfigError, DatasetNotFoundError

_DATA_SUFFIXES = (".jsonl", ".pbin", ".idx")
_BYTE_ORDER_MARK = "\ufeff"


def listed_files(list_path: Path, root_path: Path, suffix: str) -> list[Path]:
    """The files that a list names, one per line, relative to `root_path`; blank lines are passed over.

    A name may have the suffix of another file of the same data (`a.jsonl` for `a.pbin`) or none; one list then serves
    all formats.

    Raises:
        DatasetNotFoundError: the list or the root folder cannot be read, or files that the list names; all are told.
        ConfigError: the list names no file, or is not UTF-8.
    """
    lines = _read(list_path).removeprefix(_BYTE_ORDER_MARK).split("\n")
    _check_root(root_path)
    paths, faults = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            paths.append(_find(root_path, line.strip(), suffix))
        except ValueError as error:
            faults.append(f"{list_path}, line {number}: {error}")
    if faults:
        raise DatasetNotFoundError("\n".join(faults))
    if not paths:
        raise ConfigError(f"{list_path} names no file. Write one path per line, relative to {root_path}.")
    return paths


def _read(list_path: Path) -> str:
    try:
        is_file = stat.S_ISREG(os.stat(list_path).st_mode)
        content = list_path.read_bytes() if is_file else b""
    except OSError as error:
        raise DatasetNotFoundError(
            f"{list_path} cannot be read: {error.strerror}. Name a text file with one path per line."
        ) from None
    if not is_file:
        raise DatasetNotFoundError(f"{list_path} is not a file. Name a text file with one path per line.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{list_path} is not UTF-8 (byte {error.start}). Save it as UTF-8 text.") from None


def _check_root(root_path: Path) -> None:
    try:
        os.stat(os.path.join(root_path, "."))  # needs the right to look up names in the folder
    except OSError as error:
        raise DatasetNotFoundError(
            f"No file can be found in {root_path}: {error.strerror}. Name the folder that the list is relative to."
        ) from None


def _find(root_path: Path, name: str, suffix: str) -> Path:
    """The file that a line means; raises `ValueError` where there is none."""
    if name.rpartition("/")[2] in ("", ".", ".."):
        raise ValueError(f"'{name}' is the name of a folder, not of a file")
    candidates = _candidates(root_path / name, suffix)
    for path in candidates:
        try:
            if stat.S_ISREG(os.stat(path).st_mode):
                return path
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        raise ValueError(f"{path} is not a file")
    raise ValueError(f"there is no {' or '.join(map(str, candidates))}")


def _candidates(path: Path, suffix: str) -> Sequence[Path]:
    if path.suffix == suffix:
        return (path,)
    appended = path.with_name(path.name + suffix)
    return (path.with_suffix(suffix), appended) if path.suffix in _DATA_SUFFIXES else (appended,)
