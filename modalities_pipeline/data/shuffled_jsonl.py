"""Stage shuffled_jsonl: the lines of a JSON-lines file in random order."""

import functools
import logging
from pathlib import Path

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity
from modalities_pipeline.data.permutations import shuffled_positions
from modalities_pipeline.data.production import produce
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.data.raw.raw_lines import find_line_bounds, write_lines
from modalities_pipeline.data.raw.raw_source import RawSource

logger = logging.getLogger(__name__)

STAGE = "shuffled_jsonl"
CODE_VERSION = "1"


def identity(src_digest: str, seed: int | None = None) -> StageIdentity:
    """Identity of the shuffled lines of a file with the given digest."""
    return StageIdentity(STAGE, CODE_VERSION, {"seed": seed}, {"source": src_digest})


def build_shuffled_jsonl(
    input_path: Path,
    output_path: Path,
    file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR,
    seed: int | None = None,
) -> Manifest | None:
    """Put the lines of a file into random order; without `seed` it is another one each time.

    Lines end at LF only and are copied as they are, blank ones too; they are not checked for being JSON. The order is
    that of Modalities, but a last line without line end gets one, and so is never glued to another line. The lines stay
    on disk; memory holds 16 bytes for each.

    Raises:
        DatasetNotFoundError: there is no input.
        DatasetFormatError: the input is damaged, or changed while it was read.
        UserError: the output is the input.
        OutputExistsError: the output exists and the policy is ERROR.
    """
    source = functools.cache(lambda: RawSource(input_path))
    return produce(
        output_path,
        [input_path],
        file_existence_policy,
        lambda: identity(source().known_digest or "taken while reading", seed),
        lambda temporary: _build(source(), seed, temporary),
    )


def _build(source: RawSource, seed: int | None, output_path: Path) -> BuildResult:
    name = source.path.name
    with ProgressLog(logger, f"Finding the lines of {name}", source.size_in_bytes, "bytes") as progress:
        bounds = find_line_bounds(source, progress.update)
    order = shuffled_positions(len(bounds) - 1, seed)
    places = ((0, bounds[position], bounds[position + 1]) for position in order)
    with ProgressLog(logger, f"Shuffling {name}", len(order), "lines") as progress:
        num_lines = write_lines([source], places, output_path, progress.update)
    return BuildResult({"num_lines": num_lines}, input_digests={"source": source.digest})
