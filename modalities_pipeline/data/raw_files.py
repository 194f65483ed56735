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
    produce,
    read_manifest,
)
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
        UserError: a pattern matches no file, or two files have the same stem, so their outputs would have one name.
    """
    paths: set[Path] = set()
    resolve = functools.cache(Path.resolve)  # thousands of files share a few folders
    for pattern in patterns:
        files = {resolve(file.parent) / file.name for file in _matches(pattern, base_dir) if file.is_file()}
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
    return [Path(match) for match in glob.glob(absolute, recursive=True)]


def build_raw_files(paths: Sequence[Path], output_path: Path) -> Manifest:
    """Write the list of files with their digests; files unchanged in size and time are not read again.

    If the list is what it was, nothing is written and the old manifest is returned. The list holds no times, so its
    digest does not change when a file is merely touched.

    Raises:
        DatasetNotFoundError: files do not exist.
        UserError: there are no files.
    """
    if not paths:
        raise UserError(f"The corpus of {output_path} has no raw files. Name at least one.")
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise DatasetNotFoundError(f"Not there, or not a file: {', '.join(missing)}. Mend the corpus' files.")
    old = read_manifest(output_path)
    if old is not None and not is_intact(output_path, old):
        old = None
    known = _known_digests(output_path, old) if old is not None else {}
    files, times = [], {}
    for path in paths:
        status = path.stat()
        digest = known.get((str(path.absolute()), status.st_size, status.st_mtime_ns)) or digest_file(path)
        files.append(RawFile(path.name, path.absolute(), status.st_size, digest))
        times[str(path.absolute())] = status.st_mtime_ns
    identity = StageIdentity(STAGE, CODE_VERSION, {}, {file.name: file.digest for file in files})
    if old is not None and old.fingerprint == identity.fingerprint and old.details["modified_at_in_ns"] == times:
        return old

    def write(temporary: Path) -> BuildResult:
        temporary.write_text(
            json.dumps([_to_json(file) for file in files], indent=2, ensure_ascii=False) + "\n", "utf-8"
        )
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
        times = manifest.details["modified_at_in_ns"] if manifest is not None else {}
        return [
            RawFile(**{**entry, "path": Path(entry["path"]), "modified_at_in_ns": times.get(entry["path"])})
            for entry in entries
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise DatasetFormatError(
            f"{output_path} is no list of raw files ({error}). Materialize raw_files again."
        ) from error


def _known_digests(output_path: Path, manifest: Manifest) -> dict[tuple[str, int, int], str]:
    times = manifest.details["modified_at_in_ns"]
    return {
        (str(file.path), file.size_in_bytes, times[str(file.path)]): file.digest for file in read_raw_files(output_path)
    }


def _to_json(file: RawFile) -> dict[str, Any]:
    """An entry of the list; the time of change stands in the manifest."""
    return {"name": file.name, "path": str(file.path), "size_in_bytes": file.size_in_bytes, "digest": file.digest}
