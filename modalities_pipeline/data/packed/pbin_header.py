"""The first bytes of a `.pbin` file (see `pbin_layout`), read without numpy: enough to count its tokens."""

import dataclasses
import os
import struct
from pathlib import Path

from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError

HEADER = struct.Struct("<QI")
TOKEN_SIZES_IN_BYTES = (1, 2, 4)

FileVersion = tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class PbinHeader:
    """What the header says, and the version of the file that says it."""

    data_length_in_bytes: int
    token_size_in_bytes: int
    version: FileVersion

    @property
    def num_tokens(self) -> int:
        """Number of tokens in the data section."""
        return self.data_length_in_bytes // self.token_size_in_bytes


def read_header(path: Path) -> PbinHeader:
    """Read and check the header of a `.pbin` file.

    Raises:
        DatasetNotFoundError: there is no such file.
        DatasetFormatError: it is not a complete `.pbin` file.
    """
    if not path.is_file():
        raise DatasetNotFoundError(f"{path} does not exist or is not a file.")
    with open(path, "rb") as file:
        version = version_of(file.fileno())
        size = os.fstat(file.fileno()).st_size
        content = file.read(HEADER.size)
    if len(content) < HEADER.size:
        raise DatasetFormatError(f"{path} has {size} bytes, fewer than a .pbin header. Build it again.")
    data_length_in_bytes, token_size_in_bytes = HEADER.unpack(content)
    header = PbinHeader(data_length_in_bytes, token_size_in_bytes, version)
    _check(header, size, path)
    return header


def version_of(descriptor: int) -> FileVersion:
    """What changes when a file is replaced or written to."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _check(header: PbinHeader, size: int, path: Path) -> None:
    if header.token_size_in_bytes not in TOKEN_SIZES_IN_BYTES:
        raise DatasetFormatError(
            f"{path}: the header says {header.token_size_in_bytes} bytes per token; only 1, 2 and 4 exist. "
            "It is not a .pbin file, or damaged: build it again."
        )
    if HEADER.size + header.data_length_in_bytes >= size:
        raise DatasetFormatError(
            f"{path}: the header promises {header.data_length_in_bytes} bytes of tokens and an index, but the "
            f"file has only {size} bytes. It was cut off: build it again."
        )
    if header.data_length_in_bytes % header.token_size_in_bytes:
        raise DatasetFormatError(
            f"{path}: {header.data_length_in_bytes} bytes of data are no multiple of the token size "
            f"{header.token_size_in_bytes}. The file is damaged: build it again."
        )
