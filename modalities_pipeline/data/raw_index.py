"""Stage raw_index: where every JSON line of a raw file starts, and how long it is."""

import array
import functools
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity, is_intact, read_manifest
from modalities_pipeline.data.production import produce
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.data.raw.json_lines import FAULT_REASONS, find_fault
from modalities_pipeline.data.raw.raw_source import RawSource
from modalities_pipeline.data.raw_files import RawFile
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError

logger = logging.getLogger(__name__)

STAGE = "raw_index"
CODE_VERSION = "2"

_MAX_REPORTED_LINES = 100


def identity(src_digest: str, drop_faulty_entries: bool = False) -> StageIdentity:
    """Identity of the index of a raw file with the given digest."""
    return StageIdentity(STAGE, CODE_VERSION, {"drop_faulty_entries": drop_faulty_entries}, {"source": src_digest})


def default_index_path(raw_data_path: Path, index_path: Path | None = None) -> Path:
    """`index_path` if given, else the raw file's path with the last suffix replaced by `.idx`.

    Raises:
        DatasetNotFoundError: the raw file's path has no name (".", "/").
    """
    if not raw_data_path.name:
        raise DatasetNotFoundError(f"{raw_data_path} is a folder. Name a JSON-lines file.")
    return index_path if index_path is not None else raw_data_path.with_suffix(".idx")


def build_raw_index(
    src_path: Path,
    index_path: Path | None = None,
    file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR,
    listed: RawFile | None = None,
    drop_faulty_entries: bool = False,
) -> Manifest | None:
    """Index the lines of a JSON-lines file; lines end at LF only, blank lines are passed over and counted.

    The file is read once: checked, indexed and, unless its digest is known, hashed. Memory holds 16 bytes per document.

    Args:
        src_path: the raw file.
        index_path: the index; default: beside the raw file, with suffix `.idx`.
        file_existence_policy: what to do if the index exists.
        listed: the raw file's entry in the corpus' list; without one the file is hashed.
        drop_faulty_entries: leave lines that are no JSON out and count them, instead of failing.

    Raises:
        DatasetNotFoundError: there is no raw file.
        DatasetFormatError: the file holds no line, or (unless dropped) a line is not valid JSON in UTF-8; or the file
            is not what was listed, or changed while it was read.
            With the policy SKIP: the index that is there cannot be read, or is not that of the raw file.
        UserError: index and raw file are the same.
        OutputExistsError: the index exists and the policy is ERROR.
    """
    source = functools.cache(lambda: RawSource(src_path, listed))
    index_path = default_index_path(src_path, index_path)
    if file_existence_policy is FileExistencePolicy.SKIP and index_path.exists() and src_path.is_file():
        _refuse_unusable(index_path, source())
    return produce(
        index_path,
        [src_path],
        file_existence_policy,
        lambda: identity(source().known_digest or "taken while reading", drop_faulty_entries),
        lambda output_path: _build(source(), drop_faulty_entries, output_path),
    )


def _refuse_unusable(index_path: Path, source: RawSource) -> None:
    """What is kept by the policy SKIP has to be an index of the raw file, as far as can be told without reading it."""
    from modalities_pipeline.data.jsonl import LargeFileLinesReader

    advice = "Create the raw index again, with the file existence policy 'override'."
    manifest = read_manifest(index_path)
    if manifest is not None and (manifest.stage != STAGE or not is_intact(index_path, manifest)):
        raise DatasetFormatError(f"{index_path} is not the index that its manifest describes. {advice}")
    if manifest is not None and manifest.inputs.get("source") != source.digest:
        raise DatasetFormatError(f"{index_path} is out of date: {source.path} changed after it was indexed. {advice}")
    if manifest is not None and not source.size_in_bytes:
        return  # an empty index of an empty file
    try:
        with LargeFileLinesReader(source.path, index_path, encoding=None):
            pass
    except DatasetFormatError as error:
        raise DatasetFormatError(f"It cannot be kept: {error} Use the file existence policy 'override'.") from error


def _build(source: RawSource, drop_faulty_entries: bool, output_path: Path) -> BuildResult:
    # numpy is left to where it is used: Dagster loads this module with the definitions
    from modalities_pipeline.data.jsonl import write_index
    from modalities_pipeline.data.packed.offset_table import OffsetTable

    source.check_unchanged()
    if not source.size_in_bytes and not drop_faulty_entries:
        raise DatasetFormatError(f"{source.path} is empty. Remove it from the corpus, or write documents into it.")
    scan = _Scan(source, drop_faulty_entries)
    with (
        ProgressLog(logger, f"Indexing {source.path.name}", source.size_in_bytes, "bytes") as progress,
        source.lines(progress.update) as lines,
    ):
        scan.read(lines)
    result = scan.result()
    write_index(output_path, OffsetTable.from_arrays(scan.offsets, scan.lengths))
    return result


class _Scan:
    """The documents, blank lines and faulty lines of one file."""

    def __init__(self, source: RawSource, drop_faulty_entries: bool) -> None:
        self._source = source
        self._drop_faulty_entries = drop_faulty_entries
        self.offsets = array.array("q")
        self.lengths = array.array("q")
        self._num_lines = self._num_blank_lines = 0
        self._num_faulty_lines = dict.fromkeys(FAULT_REASONS, 0)
        self._faulty_lines: list[dict[str, Any]] = []

    def read(self, lines: Iterable[bytes]) -> None:
        """Look at the lines of the file, each with its LF."""
        offset = num_lines = 0
        line, is_document = b"", False
        parse, add_offset, add_length = orjson.loads, self.offsets.append, self.lengths.append
        for num_lines, line in enumerate(lines, start=1):
            try:
                parse(line)
                is_document = True
            except orjson.JSONDecodeError:
                is_document = self._is_document(line.removesuffix(b"\n"), num_lines, offset)
            length = len(line)
            if is_document:
                add_offset(offset)
                add_length(length - 1)
            offset += length
        if is_document and not line.endswith(b"\n"):
            self.lengths[-1] += 1
        self._num_lines = num_lines

    def _is_document(self, line: bytes, line_number: int, offset: int) -> bool:
        """Judge, and count, a line that the fast reader refuses; it may be blank, faulty, or neither."""
        if not line.strip():
            self._num_blank_lines += 1
            return False
        fault = find_fault(line)
        if fault is None:
            return True
        place = f"{self._source.path}, line {line_number} (byte {offset})"
        if not self._drop_faulty_entries:
            cut_off = offset + len(line) == self._source.size_in_bytes
            raise DatasetFormatError(
                f"{place}: {fault.message}. "
                + ("It has no line end: the file may have been cut off. " if cut_off else "")
                + "Mend the line, or set on_bad_sample: skip (in Python: drop_faulty_entries=True) to leave such "
                "lines out and count them."
            )
        self._num_faulty_lines[fault.reason] += 1
        if len(self._faulty_lines) < _MAX_REPORTED_LINES:
            self._faulty_lines.append({"line": line_number, "byte_offset": offset, "reason": fault.reason})
            logger.warning("%s left out: %s", place, fault.message)
        return False

    def result(self) -> BuildResult:
        """The counts; documents, blank and faulty lines must add up to the lines.

        Raises:
            DatasetFormatError: there is no document, and this is not tolerated.
        """
        num_faulty_lines = sum(self._num_faulty_lines.values())
        if len(self.offsets) + self._num_blank_lines + num_faulty_lines != self._num_lines:
            raise RuntimeError(f"{self._source.path}: lines were lost while indexing, a fault of this program.")
        if not len(self.offsets) and not self._drop_faulty_entries:
            raise DatasetFormatError(f"{self._source.path} holds blank lines only, no document.")
        if num_faulty_lines:
            logger.warning("%s: %d of %d lines left out", self._source.path, num_faulty_lines, self._num_lines)
        counts: dict[str, int | float] = {
            "num_documents": len(self.offsets),
            "num_lines": self._num_lines,
            "num_blank_lines": self._num_blank_lines,
            "num_faulty_lines": num_faulty_lines,
            **{f"num_faulty_lines_{reason}": number for reason, number in self._num_faulty_lines.items()},
            "source_size_in_bytes": self._source.size_in_bytes,
        }
        return BuildResult(counts, {"faulty_lines": self._faulty_lines}, {"source": self._source.digest})
