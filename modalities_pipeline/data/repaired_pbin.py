"""Stage repaired_pbin: a `.pbin` file that Modalities merged, with a right index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity, input_digest_of
from modalities_pipeline.data.packed.packed_inputs import packed_details, tokenizer_inputs
from modalities_pipeline.data.production import produce
from modalities_pipeline.exceptions import DatasetFormatError, UserError

if TYPE_CHECKING:
    from modalities_pipeline.data.pbin import PackedFile

STAGE = "repaired_pbin"
CODE_VERSION = "1"


def identity(input_digest: str, tokenizer: Mapping[str, str] | None = None) -> StageIdentity:
    """Identity of the repaired version of an input; `tokenizer` is its `tokenizer_inputs`."""
    return StageIdentity(STAGE, CODE_VERSION, {}, {"source": input_digest, **(tokenizer or {})})


def build_repaired_pbin(
    input_path: Path,
    output_path: Path,
    file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR,
) -> Manifest | None:
    """Rebuild the document offsets of a file whose lengths are right, as running sums of the lengths.

    Modalities' merge writes the offsets of the second and later inputs too low, by 12 bytes per preceding input; the
    tokens and the lengths of the documents are right. Only files with this very fault are repaired.

    Raises:
        DatasetNotFoundError, DatasetFormatError: the input is missing, or damaged in another way.
        UserError: there is nothing to repair (so that nobody keeps a second copy for nothing), or the output is the
            input.
        OutputExistsError: the output exists and the policy is ERROR.
    """
    return produce(
        output_path,
        [input_path],
        file_existence_policy,
        lambda: identity(input_digest_of(input_path), tokenizer_inputs([input_path])),
        lambda temporary: _build(input_path, temporary),
    )


def _build(input_path: Path, output_path: Path) -> BuildResult:
    from modalities_pipeline.data.packed.document_index import is_shifted_by_merge
    from modalities_pipeline.data.pbin import PackedFile, PackedFileWriter

    with PackedFile(input_path) as file:
        if not is_shifted_by_merge(file.index, file.data_length_in_bytes):
            _refuse(file)
        details = packed_details([file])
        with PackedFileWriter(output_path, details["token_size_in_bytes"], file.data_length_in_bytes) as writer:
            writer.write_file_back_to_back(file)
    counts = {"num_documents": writer.num_documents, "num_tokens": writer.num_tokens}
    return BuildResult(dict(counts), details, output_digest=writer.digest)


def _refuse(file: PackedFile) -> NoReturn:
    try:
        file.check_index()
    except DatasetFormatError as error:
        raise DatasetFormatError(
            f"{file.path} cannot be repaired: its offsets are not those of Modalities' merge, or the lengths of its "
            f"documents do not add up to its data ({error})"
        ) from error
    raise UserError(f"{file.path} is sound, there is nothing to repair. Use it as it is.")
