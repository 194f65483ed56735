"""Stage raw_files: which files a corpus consists of, and the digest of each. Cheap, so it runs every time."""

import dataclasses
import functools
import glob
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from modalities_pipeline.data.files import FileExistencePolicy, digest_file
from modalities_pipeline.data.manifest import (
    BuildResult,
    Manifest,
    StageIdentity,
    input_digest_of,
    is_intact,
    read_manifest,
)
from modalities_pipeline.data.production import produce
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, UserError

STAGE = "raw_files"
CODE_VERSION = "1"


@dataclasses.dataclass(frozen=True)
class RawFile:
    """One raw file of a corpus.

    Attributes:
        name: file name.
        path: absolute path.
        size_in_bytes: size.
        digest: `xxh128:<hex>` of the content.
        modified_at_in_ns: time of change when the digest was taken, None where it is not known.
    """

    name: str
    path: Path
    size_in_bytes: int
    digest: str
    modified_at_in_ns: int | None = None

    @property
    def stem(self) -> str:
        """Name without its last suffix; outputs made from the file are named by it."""
        return self.path.stem


def find_raw_files(patterns: Sequence[str], base_dir: Path) -> list[Path]:
    """Files that match glob patterns (`**` for any depth) relative to `base_dir`, absolute, sorted, each once.

    Raises:
        UserError: a pattern matches no file, or something that is neither file nor folder, or two files have the same
            stem, so their outputs would have one name.
        DatasetNotFoundError: a folder in which a pattern looks for files cannot be read.
    """
    paths: set[Path] = set()
    resolve = functools.cache(Path.resolve)  # thousands of files share a few folders
    for pattern in patterns:
        try:
            files = {resolve(file.parent) / file.name for file in _matches(pattern, base_dir) if _is_raw_file(file)}
        except OSError as error:
            raise DatasetNotFoundError(
                f"{error.filename} cannot be read: {error.strerror}. The files that match '{pattern}' are not known."
            ) from error
        if not files:
            raise UserError(f"No file matches '{pattern}' (looked in {base_dir}). Mend the path in the corpus' files.")
        paths |= files
    by_stem: dict[str, Path] = {}
    for path in sorted(paths, key=Path.as_posix):
        other = by_stem.setdefault(path.stem, path)
        if other != path:
            raise UserError(f"{other} and {path} have the same name apart from folder and suffix. Rename one of them.")
    return list(by_stem.values())


def _matches(pattern: str, base_dir: Path) -> list[Path]:
    plain = base_dir / pattern
    if plain.is_file():
        return [plain]
    absolute = pattern if Path(pattern).is_absolute() else os.path.join(glob.escape(str(base_dir)), pattern)
    _refuse_unreadable_folders(absolute)
    return [Path(match) for match in glob.glob(absolute, recursive=True)]


def _refuse_unreadable_folders(pattern: str) -> None:
    """Raise `OSError` for a folder in which `glob` would, without a word, find nothing."""
    parts = Path(pattern).parts
    for position, part in enumerate(parts):
        if glob.has_magic(part):
            at_any_depth = ["**"] if part == "**" else []
            for folder in glob.iglob(os.path.join(*parts[:position], *at_any_depth, ""), recursive=True):
                os.scandir(folder).close()


def _is_raw_file(path: Path) -> bool:
    if path.is_file():
        return True
    if path.is_dir():
        return False
    raise UserError(f"{path} is no file: a broken link, a pipe or a device. Remove it, or mend the corpus' files.")


def build_raw_files(paths: Sequence[Path], output_path: Path) -> Manifest:
    """Write the list of files with their digests; files unchanged in size and time are not read again.

    If the list is what it was, nothing is written and the old manifest is returned. The list holds no times, so its
    digest does not change when a file is merely touched.

    Raises:
        DatasetNotFoundError: files do not exist, or cannot be read.
        UserError: there are no files.
    """
    if not paths:
        raise UserError(f"The corpus of {output_path} has no raw files. Name at least one.")
    missing = [str(path) for path in paths if not os.path.isfile(path)]  # False also where it cannot be told
    if missing:
        raise DatasetNotFoundError(f"Not there, or not a file: {', '.join(missing)}. Mend the corpus' files.")
    old = read_manifest(output_path)
    if old is not None and not is_intact(output_path, old):
        old = None
    known = _known_digests(output_path, old) if old is not None else {}
    files, times = [], {}
    for path in paths:
        try:
            status = path.stat()
            digest = known.get((str(path.absolute()), status.st_size, status.st_mtime_ns)) or digest_file(path)
        except OSError as error:
            raise DatasetNotFoundError(f"{path} cannot be read: {error.strerror}. Mend that.") from error
        files.append(RawFile(path.name, path.absolute(), status.st_size, digest))
        times[str(path.absolute())] = status.st_mtime_ns
    identity = StageIdentity(STAGE, CODE_VERSION, {}, {file.name: file.digest for file in files})
    if old is not None and old.fingerprint == identity.fingerprint and old.details.get("modified_at_in_ns") == times:
        return old

    def write(temporary: Path) -> BuildResult:
        content = json.dumps([_to_json(file) for file in files], indent=2, ensure_ascii=False) + "\n"
        # names that are not UTF-8 hold halves of surrogate pairs, which this writes as JSON does: \udc80
        temporary.write_text(content, "utf-8", errors="backslashreplace")
        counts = {"num_files": len(files), "num_bytes": sum(file.size_in_bytes for file in files)}
        return BuildResult(dict(counts), {"modified_at_in_ns": times})

    manifest = produce(output_path, paths, FileExistencePolicy.OVERRIDE, lambda: identity, write)
    assert manifest is not None  # only the policy SKIP gives None
    return manifest


def read_raw_files(output_path: Path) -> list[RawFile]:
    """The list that `build_raw_files` wrote.

    Raises:
        DatasetNotFoundError: there is no list.
        DatasetFormatError: it is damaged.
    """
    if not output_path.is_file():
        raise DatasetNotFoundError(f"{output_path} does not exist. Materialize raw_files first.")
    input_digest_of(output_path)  # refuses what is damaged
    try:
        entries = json.loads(output_path.read_text("utf-8"))
        manifest = read_manifest(output_path)
        times = _times_in(manifest) if manifest is not None else {}
        return [
            RawFile(**{**entry, "path": Path(entry["path"]), "modified_at_in_ns": times.get(entry["path"])})
            for entry in entries
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise DatasetFormatError(
            f"{output_path} is no list of raw files ({error}). Materialize raw_files again."
        ) from error


def _known_digests(output_path: Path, manifest: Manifest) -> dict[tuple[str, int, int | None], str]:
    times = _times_in(manifest)
    return {
        (str(file.path), file.size_in_bytes, times.get(str(file.path))): file.digest
        for file in read_raw_files(output_path)
    }


def _times_in(manifest: Manifest) -> dict[str, int]:
    """Path -> time of change; of a record that was changed, what of it can be used."""
    times = manifest.details.get("modified_at_in_ns")
    return {path: time for path, time in times.items() if type(time) is int} if isinstance(times, dict) else {}


def _to_json(file: RawFile) -> dict[str, Any]:
    """An entry of the list; the time of change stands in the manifest."""
    return {"name": file.name, "path": str(file.path), "size_in_bytes": file.size_in_bytes, "digest": file.digest}
