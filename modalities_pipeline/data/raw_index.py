"""Stage raw_index: where every JSON line of a raw file starts, and how long it is."""

import array
import functools
import json
import logging
import mmap
from collections.abc import Iterator
from pathlib import Path

import orjson

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity, produce
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.data.raw_files import RawFile
from modalities_pipeline.data.raw_source import RawSource
from modalities_pipeline.exceptions import DatasetFormatError

logger = logging.getLogger(__name__)

STAGE = "raw_index"
CODE_VERSION = "1"

_LF = 10
_SCAN_BLOCK_IN_BYTES = 16 << 20
_MAX_REPORTED_LINES = 100


def identity(src_digest: str, drop_faulty_entries: bool = False) -> StageIdentity:
    """Identity of the index of a raw file with the given digest."""
    return StageIdentity(STAGE, CODE_VERSION, {"drop_faulty_entries": drop_faulty_entries}, {"source": src_digest})


def default_index_path(raw_data_path: Path, index_path: Path | None = None) -> Path:
    """`index_path` if given, else the raw file's path with the last suffix replaced by `.idx`."""
    return index_path if index_path is not None else raw_data_path.with_suffix(".idx")


def build_raw_index(
    src_path: Path,
    index_path: Path | None = None,
    file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR,
    listed: RawFile | None = None,
    drop_faulty_entries: bool = False,
) -> Manifest | None:
    """Index the lines of a JSON-lines file; lines end at LF only, blank lines are passed over and counted.

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
        UserError: index and raw file are the same.
        OutputExistsError: the index exists and the policy is ERROR.
    """
    index_path = default_index_path(src_path, index_path)
    source = functools.cache(lambda: RawSource(src_path, listed))
    return produce(
        index_path,
        [src_path],
        file_existence_policy,
        lambda: identity(source().digest, drop_faulty_entries),
        lambda output_path: _build(source(), drop_faulty_entries, output_path),
    )


def _build(source: RawSource, drop_faulty_entries: bool, output_path: Path) -> BuildResult:
    source.check_unchanged()
    result = _index(source.path, drop_faulty_entries, output_path)
    source.check_unchanged()
    return result


def _index(src_path: Path, drop_faulty_entries: bool, output_path: Path) -> BuildResult:
    size = src_path.stat().st_size
    if not size and not drop_faulty_entries:
        raise DatasetFormatError(f"{src_path} is empty. Remove it from the corpus, or write documents into it.")
    offsets, lengths, faulty_lines = array.array("q"), array.array("q"), []
    num_lines = num_blank_lines = 0
    progress = ProgressLog(logger, f"Indexing {src_path.name}", size, "bytes")
    for offset, line in _lines(src_path, size):
        num_lines += 1
        if not line.strip():
            num_blank_lines += 1
            continue
        fault = _fault(line)
        if fault is None:
            offsets.append(offset)
            lengths.append(len(line))
        elif drop_faulty_entries:
            faulty_lines.append(num_lines)
            logger.warning("%s, line %d (byte %d) left out: %s", src_path, num_lines, offset, fault)
        else:
            raise DatasetFormatError(
                f"{src_path}, line {num_lines} (byte {offset}): not valid JSON: {fault}. Mend the line, or set "
                "on_bad_sample: skip (drop_faulty_entries) to leave such lines out and count them."
            )
        progress.update(offset + len(line))
    if not len(offsets) and not drop_faulty_entries:
        raise DatasetFormatError(f"{src_path} holds blank lines only, no document.")
    import numpy as np

    from modalities_pipeline.data.jsonl import write_index

    write_index(output_path, np.array([offsets, lengths], dtype=np.int64).T)
    counts: dict[str, int | float] = {
        "num_documents": len(offsets),
        "num_lines": num_lines,
        "num_blank_lines": num_blank_lines,
        "num_faulty_lines": len(faulty_lines),
        "source_size_in_bytes": size,
    }
    return BuildResult(counts, {"faulty_lines": faulty_lines[:_MAX_REPORTED_LINES]})


def _lines(path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes (without LF) of every line; a last line without LF counts, the end of the file is no line."""
    import numpy as np

    if not size:
        return
    with open(path, "rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
        start = 0
        for block_start in range(0, size, _SCAN_BLOCK_IN_BYTES):
            block = np.frombuffer(content[block_start : block_start + _SCAN_BLOCK_IN_BYTES], dtype=np.uint8)
            for line_end in (np.flatnonzero(block == _LF) + block_start).tolist():
                yield start, content[start:line_end]
                start = line_end + 1
        if start < size:
            yield start, content[start:]


def _fault(line: bytes) -> str | None:
    """Why a line is no JSON text in UTF-8, or None; what `orjson` refuses and `json` takes (NaN, a BOM) is no fault."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            json.loads(line.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            return f"byte {error.start} of the line is not UTF-8"
        except (ValueError, RecursionError) as error:
            return str(error)
    return None
