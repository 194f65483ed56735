"""What the stages that read `.pbin` files have in common: opening them, and what they must agree in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modalities_pipeline.data.manifest import manifest_path, read_manifest
from modalities_pipeline.exceptions import DatasetFormatError, UserError

if TYPE_CHECKING:
    from modalities_pipeline.data.pbin import PackedFile

TOKENIZER_DETAILS = {
    "tokenizer_fingerprint": str,
    "vocab_size": int,
    "num_token_ids": int,
    "eod_token": str,
    "eod_token_id": int,
    "token_size_in_bytes": int,
}


def open_packed_files(paths: Sequence[Path]) -> list[PackedFile]:
    """Open files of one token size; however many, because none is mapped before it is used.

    Raises:
        DatasetNotFoundError, DatasetFormatError: a file is missing or damaged.
        UserError: there are no files, or their token sizes differ.
    """
    from modalities_pipeline.data.pbin import PackedFile

    files = [PackedFile(path) for path in paths]
    common_token_size(files)
    return files


def numbered_inputs(digests: Sequence[str]) -> dict[str, str]:
    """Name inputs by their position, because their order decides the output's bytes."""
    return {f"{position:06d}": digest for position, digest in enumerate(digests)}


def common_token_size(files: Sequence[PackedFile]) -> int:
    """Bytes per token of all files.

    Raises:
        UserError: there are no files, or their token sizes differ.
    """
    if not files:
        raise UserError("There are no .pbin files to read. Name at least one input.")
    for file in files:
        if file.token_size_in_bytes != files[0].token_size_in_bytes:
            raise UserError(
                f"{files[0].path} has {files[0].token_size_in_bytes} bytes per token, {file.path} has "
                f"{file.token_size_in_bytes}. Pack both with the same tokenizer."
            )
    return files[0].token_size_in_bytes


def common_tokenizer_details(paths: Sequence[Path]) -> dict[str, Any]:
    """What the files' manifests say about their tokenizer; files without a manifest have no say.

    Raises:
        UserError: two manifests name different tokenizers or end-of-document tokens.
        DatasetFormatError: a manifest was changed.
    """
    common: dict[str, Any] = {}
    first = None
    for path in paths:
        manifest = read_manifest(path)
        if manifest is None or "tokenizer_fingerprint" not in manifest.details:
            continue
        details = {name: manifest.details[name] for name in TOKENIZER_DETAILS if name in manifest.details}
        _check_types(path, details)
        if first is None:
            first, common = path, details
        elif details != common:
            raise UserError(
                f"{first} and {path} were packed with different tokenizers: "
                f"{_short(common)} and {_short(details)}. Pack both with the same one."
            )
    return common


def _check_types(path: Path, details: dict[str, Any]) -> None:
    for name, value in details.items():
        if type(value) is not TOKENIZER_DETAILS[name]:
            raise DatasetFormatError(
                f"{manifest_path(path)}: {name} is {value!r}, which is no {TOKENIZER_DETAILS[name].__name__}. It was "
                "changed: build the file again."
            )


def packed_details(files: Sequence[PackedFile]) -> dict[str, Any]:
    """Details of a pack made of these files: their token size, and what is known of their tokenizer.

    Raises:
        UserError: token sizes, tokenizers or end-of-document tokens differ, or there are no files.
    """
    tokenizer = common_tokenizer_details([file.path for file in files])
    return {**tokenizer, "token_size_in_bytes": common_token_size(files)}


def tokenizer_inputs(paths: Sequence[Path]) -> dict[str, str]:
    """`common_tokenizer_details` as inputs of a `StageIdentity`.

    Files packed with different tokenizers may have the same bytes; what reads them passes the details on, so its
    output changes with them.

    Raises:
        UserError: two manifests name different tokenizers or end-of-document tokens.
    """
    return {name: str(value) for name, value in common_tokenizer_details(paths).items()}


def _short(details: dict[str, Any]) -> str:
    return f"{details['tokenizer_fingerprint']} (end of document {details.get('eod_token')!r})"
