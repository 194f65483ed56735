"""Stage shuffled_pbin: the documents of one `.pbin` file in random order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity, input_digest_of
from modalities_pipeline.data.packed.packed_inputs import tokenizer_inputs
from modalities_pipeline.data.permutations import shuffled_positions
from modalities_pipeline.data.production import produce
from modalities_pipeline.exceptions import UserError

STAGE = "shuffled_pbin"
CODE_VERSION = "1"


def identity(input_digest: str, seed: int | None = None, tokenizer: Mapping[str, str] | None = None) -> StageIdentity:
    """Identity of the shuffled version of an input; `tokenizer` is its `tokenizer_inputs`."""
    return StageIdentity(STAGE, CODE_VERSION, {"seed": seed}, {"source": input_digest, **(tokenizer or {})})


def build_shuffled_pbin(
    input_path: Path,
    output_path: Path,
    batch_size: int = 100,
    file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR,
    seed: int | None = None,
) -> Manifest | None:
    """Write the documents of a packed file in the order that Python's generator gives for the seed.

    Args:
        input_path: the file.
        output_path: the new file.
        batch_size: of Modalities' signature; has no effect on the output.
        file_existence_policy: what to do if the output exists.
        seed: without one the order is another one each time.

    Memory holds some 16 bytes per document.

    Raises:
        DatasetNotFoundError, DatasetFormatError: the input is missing or damaged.
        UserError: the output is the input, or the batch size is not positive.
        OutputExistsError: the output exists and the policy is ERROR.
    """
    if batch_size < 1:
        raise UserError(f"batch_size must be at least 1, not {batch_size}.")

    def build(temporary: Path) -> BuildResult:
        import numpy as np

        from modalities_pipeline.data.packed.document_copy import whole, write_documents
        from modalities_pipeline.data.pbin import PackedFile

        file = PackedFile(input_path)
        order = np.asarray(shuffled_positions(file.num_documents, seed))
        return write_documents([whole(file)], order, f"Shuffling {input_path.name}", temporary)

    return produce(
        output_path,
        [input_path],
        file_existence_policy,
        lambda: identity(input_digest_of(input_path), seed, tokenizer_inputs([input_path])),
        build,
    )
