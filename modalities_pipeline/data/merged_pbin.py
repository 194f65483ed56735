"""Stage merged_pbin: several `.pbin` files joined into one, documents in order."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity, input_digest_of
from modalities_pipeline.data.packed.packed_inputs import (
    numbered_inputs,
    open_packed_files,
    packed_details,
    tokenizer_inputs,
)
from modalities_pipeline.data.production import produce
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.exceptions import DatasetNotFoundError, UserError

if TYPE_CHECKING:
    from modalities_pipeline.data.pbin import PackedFile

logger = logging.getLogger(__name__)

STAGE = "merged_pbin"
CODE_VERSION = "2"


def identity(input_digests: Sequence[str], tokenizer: Mapping[str, str] | None = None) -> StageIdentity:
    """Identity of the merger of inputs with these digests, in order; `tokenizer` is their `tokenizer_inputs`."""
    return StageIdentity(STAGE, CODE_VERSION, {}, {**numbered_inputs(input_digests), **(tokenizer or {})})


def build_merged_pbin(
    src_paths: Sequence[Path],
    target_path: Path,
    file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR,
) -> Manifest | None:
    """Join `.pbin` files in the given order; a directory stands for all `.pbin` files below it, sorted by path.

    Unlike Modalities, whose index points 12 bytes too low per preceding file, the index is right.

    Raises:
        DatasetNotFoundError, DatasetFormatError: an input is missing or damaged, or a folder cannot be searched.
        UserError: there is no input, token sizes or tokenizers differ, or the target is an input.
        OutputExistsError: the target exists and the policy is ERROR.
    """
    paths = _expand(src_paths)
    if not paths:
        raise UserError(f"No .pbin file to merge into {target_path} (looked at: {', '.join(map(str, src_paths))}).")
    twice = sorted(str(path) for path, number in Counter(path.resolve() for path in paths).items() if number > 1)
    if twice:
        logger.warning("Taken more than once: %s. Its documents are there as often.", ", ".join(twice))
    return produce(
        target_path,
        paths,
        file_existence_policy,
        lambda: identity([input_digest_of(path) for path in paths], tokenizer_inputs(paths)),
        lambda temporary: _build(open_packed_files(paths), temporary),
    )


def _expand(src_paths: Sequence[Path]) -> list[Path]:
    """The files meant; folders are searched through, links to folders in them are not followed."""
    paths: list[Path] = []
    for path in src_paths:
        if os.path.isdir(path):
            files = (Path(folder, name) for folder, _, names in os.walk(path, onerror=_refuse_folder) for name in names)
            paths += sorted((file for file in files if file.suffix == ".pbin"), key=Path.as_posix)
        elif os.path.exists(path):
            paths.append(path)
        else:
            raise DatasetNotFoundError(
                f"{path} does not exist, or cannot be reached. Name .pbin files, or directories that hold some."
            )
    return paths


def _refuse_folder(error: OSError) -> NoReturn:
    raise DatasetNotFoundError(f"{error.filename} cannot be searched for .pbin files: {error.strerror}.") from error


def _build(files: list[PackedFile], output_path: Path) -> BuildResult:
    from modalities_pipeline.data.pbin import PackedFileWriter

    details = packed_details(files)
    total = sum(file.data_length_in_bytes for file in files)
    with (
        PackedFileWriter(output_path, details["token_size_in_bytes"], total) as writer,
        ProgressLog(logger, f"Merging {len(files)} files", total, "bytes") as progress,
    ):
        for file in files:
            writer.write_file(file, progress.update)
    counts: dict[str, int | float] = {
        "num_documents": writer.num_documents,
        "num_tokens": writer.num_tokens,
        "num_files": len(files),
    }
    return BuildResult(counts, details, output_digest=writer.digest)
