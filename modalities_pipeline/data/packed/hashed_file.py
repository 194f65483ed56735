"""A file that is hashed while it is written, which saves reading it again."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from modalities_pipeline.data.files import digest_of_hash

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class HashedFile(io.BufferedWriter):
    """A new file, written from its first to its last byte."""

    def __init__(self, path: Path, buffer_size_in_bytes: int) -> None:
        """Start it, replacing an existing one; writes below the buffer's size are gathered."""
        super().__init__(io.FileIO(path, "wb"), buffer_size_in_bytes)
        self._content = xxhash.xxh3_128()

    def write(self, content: "ReadableBuffer") -> int:
        """Append bytes; returns their number."""
        self._content.update(content)
        return super().write(content)

    def seek(self, target: int, whence: int = 0) -> int:
        """Refused: the digest is that of bytes in the order in which they were written."""
        raise io.UnsupportedOperation("a file that is hashed is written from its first to its last byte")

    @property
    def digest(self) -> str:
        """That of all bytes written so far."""
        return digest_of_hash(self._content)
