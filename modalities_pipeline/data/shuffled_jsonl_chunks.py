"""Stage shuffled_jsonl_chunks: a share of the lines of several JSON-lines files, in random order."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity
from modalities_pipeline.data.packed.packed_inputs import numbered_inputs
from modalities_pipeline.data.production import produce
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.data.raw.raw_lines import find_line_bounds, write_lines
from modalities_pipeline.data.raw.raw_source import RawSource
from modalities_pipeline.data.shuffled_chunks import calculate_hashed_seed, chunk_range
from modalities_pipeline.exceptions import UserError

logger = logging.getLogger(__name__)

STAGE = "shuffled_jsonl_chunks"
CODE_VERSION = "1"

_BLOCK_IN_LINES = 65_536


def identity(
    input_digests: Sequence[str], chunk_id: int, num_chunks: int, global_seed: int | None = None
) -> StageIdentity:
    """Identity of one chunk of inputs with these digests, in order."""
    settings = {"chunk_id": chunk_id, "num_chunks": num_chunks, "global_seed": global_seed}
    return StageIdentity(STAGE, CODE_VERSION, settings, numbered_inputs(input_digests))


def build_shuffled_jsonl_chunk(
    file_paths: Sequence[Path],
    output_path: Path,
    chunk_id: int,
    num_chunks: int,
    file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR,
    global_seed: int | None = None,
) -> Manifest | None:
    """Cut the lines of every input into `num_chunks` shares, join the `chunk_id`-th ones and shuffle them.

    All chunks together hold every line exactly once. Lines end at LF only and are copied as they are, blank ones too; a
    last line without line end gets one. Without `global_seed` the order is another one each time. The lines stay on
    disk; memory holds some 20 bytes for each of the chunk's and 8 for each of the longest file's.

    Raises:
        DatasetNotFoundError: an input is missing.
        DatasetFormatError: an input is damaged, or changed while it was read.
        UserError: there is no input, the chunk has no lines, the chunk number is impossible, or the output is an input.
        OutputExistsError: the output exists and the policy is ERROR.
    """
    chunk_range(num_chunks, 0, chunk_id)
    if not file_paths:
        raise UserError(f"There are no files to make {output_path} of. Name at least one input.")
    sources = functools.cache(lambda: [RawSource(path) for path in file_paths])

    def made_from() -> StageIdentity:
        digests = [source.known_digest or "taken while reading" for source in sources()]
        return identity(digests, chunk_id, num_chunks, global_seed)

    def build(temporary: Path) -> BuildResult:
        title = f"chunk {chunk_id} of {num_chunks}"
        chunk = _Chunk(sources(), chunk_id, num_chunks, title)
        seed = None if global_seed is None else calculate_hashed_seed([str(global_seed), str(chunk_id)])
        with ProgressLog(logger, f"Writing {title}", chunk.num_lines, "lines") as progress:
            num_lines = write_lines(sources(), chunk.places(seed), temporary, progress.update)
        digests = numbered_inputs([source.digest for source in sources()])
        return BuildResult({"num_lines": num_lines, "num_files": len(file_paths)}, input_digests=digests)

    return produce(output_path, file_paths, file_existence_policy, made_from, build)


class _Chunk:
    """The lines of one chunk, in the order of the files."""

    def __init__(self, sources: Sequence[RawSource], chunk_id: int, num_chunks: int, title: str) -> None:
        """Find them.

        Raises:
            UserError: there are none.
        """
        self._bounds = []  # of the lines of each file that belong to the chunk
        largest = done = 0
        total = sum(source.size_in_bytes for source in sources)
        with ProgressLog(logger, f"Finding the lines of {title}", total, "bytes") as progress:
            for source in sources:
                bounds = find_line_bounds(source, functools.partial(_add_and_report, progress, done))
                start, end = chunk_range(num_chunks, len(bounds) - 1, chunk_id)
                self._bounds.append(bounds[start : end + 1])
                largest = max(largest, len(bounds) - 1)
                done += source.size_in_bytes
        self.num_lines = sum(len(bounds) - 1 for bounds in self._bounds)
        if not self.num_lines:
            raise UserError(
                f"Chunk {chunk_id} of {num_chunks} has no lines: the largest of the {len(sources)} inputs has "
                f"{largest}. " + (f"Use at most {largest} chunks." if largest else "Write documents into them first.")
            )

    def places(self, seed: int | None) -> Iterator[tuple[int, int, int]]:
        """Number of the file, first byte and end of each line, in random order."""
        import numpy as np

        order = np.arange(self.num_lines)
        np.random.default_rng(seed).shuffle(order)
        firsts = np.cumsum([0, *(len(bounds) - 1 for bounds in self._bounds)])
        for start in range(0, self.num_lines, _BLOCK_IN_LINES):
            block = order[start : start + _BLOCK_IN_LINES]
            numbers = np.searchsorted(firsts, block, side="right") - 1
            for number, position in zip(numbers.tolist(), (block - firsts[numbers]).tolist(), strict=True):
                bounds = self._bounds[number]
                yield number, bounds[position], bounds[position + 1]


def _add_and_report(progress: ProgressLog, num_before: int, num_read: int) -> None:
    progress.update(num_before + num_read)
