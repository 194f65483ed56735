"""Stage filtered_pbin: the documents of one `.pbin` file that a Python function accepts, in their order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modalities_pipeline.data.files import FileExistencePolicy, digest_strings
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity, input_digest_of
from modalities_pipeline.data.packed.packed_inputs import tokenizer_inputs
from modalities_pipeline.data.production import produce
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.exceptions import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from modalities_pipeline.data.pbin import PackedFile

logger = logging.getLogger(__name__)

STAGE = "filtered_pbin"
CODE_VERSION = "1"


def identity(
    input_digest: str, kept_digest: str | None = None, tokenizer: Mapping[str, str] | None = None
) -> StageIdentity:
    """Identity of a filtered input.

    What a function does cannot be told from the function, so its decisions stand for it: `kept_digest` is the digest of
    the positions that it kept, known once it has run. `tokenizer` is the input's `tokenizer_inputs`.
    """
    kept = {"kept_documents": kept_digest} if kept_digest is not None else {}
    return StageIdentity(STAGE, CODE_VERSION, {}, {"source": input_digest, **kept, **(tokenizer or {})})


def build_filtered_pbin(
    input_path: Path,
    filter_routine: Callable[[int], bool],
    output_path: Path,
    file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR,
) -> Manifest | None:
    """Write the documents for whose position `filter_routine` is true.

    An exception of the routine passes through, and nothing is written.

    Raises:
        DatasetNotFoundError, DatasetFormatError: the input is missing or damaged.
        UserError: no document is kept, or the output is the input.
        OutputExistsError: the output exists and the policy is ERROR.
    """

    def keeps(_: PackedFile, position: int) -> bool:
        return filter_routine(position)

    def build(temporary: Path) -> BuildResult:
        result = _build(input_path, keeps, filter_routine, temporary)
        if not result.counts["num_documents"]:
            raise UserError(
                f"No document of {input_path} is kept by {result.details['filter']}. Mend the filter; an empty file "
                "would be of no use."
            )
        return result

    return _produce(input_path, output_path, file_existence_policy, build)


def filter_dataset(
    src_path: Path, dst_path: Path, filter_func: Callable[[tuple[int, dict[str, NDArray[np.int64]]]], bool]
) -> None:
    """Write the documents for which `filter_func((position, {"input_ids": tokens}))` is true, replacing `dst_path`.

    `tokens` has shape (length,). If no document is kept the file is valid and empty, and a warning is logged.

    Raises:
        DatasetNotFoundError, DatasetFormatError: the input is missing or damaged.
        UserError: the output is the input.
    """

    def keeps(file: PackedFile, position: int) -> bool:
        file.check_length()
        return filter_func((position, {"input_ids": file.document(position).astype("int64")}))

    def build(temporary: Path) -> BuildResult:
        result = _build(src_path, keeps, filter_func, temporary)
        if not result.counts["num_documents"]:
            logger.warning("No document of %s is kept by %s; %s is empty.", src_path, filter_func, dst_path)
        return result

    _produce(src_path, dst_path, FileExistencePolicy.OVERRIDE, build)


def _produce(
    input_path: Path, output_path: Path, policy: FileExistencePolicy, build: Callable[[Path], BuildResult]
) -> Manifest | None:
    return produce(
        output_path,
        [input_path],
        policy,
        lambda: identity(input_digest_of(input_path), tokenizer=tokenizer_inputs([input_path])),
        build,
    )


def _build(
    input_path: Path,
    keeps: Callable[[PackedFile, int], bool],
    routine: Callable[..., Any],
    output_path: Path,
) -> BuildResult:
    import numpy as np

    from modalities_pipeline.data.packed.document_copy import whole, write_documents
    from modalities_pipeline.data.pbin import PackedFile

    with PackedFile(input_path) as file:
        file.check_index()
        num_documents_in = file.num_documents
        decisions = np.zeros(num_documents_in, dtype=np.bool_)
        with ProgressLog(logger, f"Filtering {input_path.name}", num_documents_in, "documents") as progress:
            for position in range(num_documents_in):
                decisions[position] = bool(keeps(file, position))
                progress.update(position)
        result = write_documents([whole(file)], np.flatnonzero(decisions), f"Writing {output_path.name}", output_path)
    result.counts["num_documents_in"] = num_documents_in
    result.details["filter"] = getattr(routine, "__qualname__", type(routine).__qualname__)
    result.input_digests["kept_documents"] = digest_strings([np.packbits(decisions).tobytes().hex()])
    return result
