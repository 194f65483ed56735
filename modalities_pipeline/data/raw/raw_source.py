"""A raw file while a stage reads it: its bytes must stay those that the stage's digest stands for."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from modalities_pipeline.data.files import digest_file, digest_of_hash
from modalities_pipeline.data.manifest import input_digest_of, read_manifest
from modalities_pipeline.data.raw_files import RawFile
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK_IN_BYTES = 256 << 10  # hashing, searching and parsing a block of this size stay within a core's own cache


class RawSource:
    """One raw file of a stage.

    Attributes:
        path: the file.
        size_in_bytes: size of the content that the stage's output is recorded for.
    """

    def __init__(self, path: Path, listed: RawFile | None = None) -> None:
        """Take size, time of change and digest from the corpus' list, or without one from the file as it is now.

        Raises:
            DatasetNotFoundError: there is no such file.
            DatasetFormatError: it has a manifest, but is not what that describes.
        """
        if not path.is_file():
            raise DatasetNotFoundError(f"{path} does not exist or is not a file.")
        self.path = path
        self._is_listed = listed is not None
        self._digest: str | None
        if listed is not None:
            self._state = (listed.size_in_bytes, listed.modified_at_in_ns)
            self._digest = listed.digest
        else:
            self._state = _state_of(path)
            self._digest = input_digest_of(path) if read_manifest(path) is not None else None
        self.size_in_bytes = self._state[0]

    @property
    def known_digest(self) -> str | None:
        """The digest if it need not be computed: listed, recorded in a manifest, or taken already."""
        return self._digest

    @property
    def digest(self) -> str:
        """`xxh128:<hex>` of the content that the stage's output is recorded for."""
        if self._digest is None:
            self._digest = digest_file(self.path)
        return self._digest

    def check_unchanged(self) -> None:
        """Compare size and time of change, else the digest; to be called before and after reading.

        Raises:
            DatasetNotFoundError: the file is gone.
            DatasetFormatError: it has other bytes.
        """
        try:
            state = _state_of(self.path)
            if state == self._state:
                return
            same = state[0] == self._state[0] and digest_file(self.path) == self._digest
        except FileNotFoundError:
            raise DatasetNotFoundError(f"{self.path} does not exist any more.") from None
        if not same:
            raise self.changed()
        self._state = state

    def changed(self) -> DatasetFormatError:
        """The error to raise when the file is found to have changed."""
        return DatasetFormatError(
            f"{self.path} changed since raw_files listed it; materialize raw_files again."
            if self._is_listed
            else f"{self.path} changed while it was read. Run again when nothing writes to it."
        )

    def unreadable(self, error: OSError) -> DatasetFormatError:
        """The error to raise when the system refuses to read the file."""
        return DatasetFormatError(f"{self.path} cannot be read: {error.strerror}. Mend that, then run again.")

    @contextlib.contextmanager
    def lines(self, on_progress: Callable[[int], None]) -> Iterator[io.BufferedReader]:
        """Read the file once, to its end, line by line, and take its digest on the way unless that is known.

        Yields an iterator of lines, each with its LF; the last one may lack it. `on_progress` is told the number of
        bytes read so far.

        Raises:
            DatasetFormatError: the file cannot be read, or has become longer or shorter.
        """
        with self._open() as file:
            reading = _Reading(file, self, on_progress)
            yield io.BufferedReader(reading, _BLOCK_IN_BYTES)
            if reading.num_bytes != self.size_in_bytes:
                raise self.changed()
            if self._digest is None:
                self._digest = reading.digest()

    def _open(self) -> io.FileIO:
        try:
            return open(self.path, "rb", buffering=0)
        except OSError as error:
            raise self.unreadable(error) from error


class _Reading(io.RawIOBase):
    """One pass over a raw file, for a buffered reader to ask for block after block."""

    def __init__(self, file: io.FileIO, source: RawSource, on_progress: Callable[[int], None]) -> None:
        self._file = file
        self._source = source
        self._on_progress = on_progress
        self._hasher = xxhash.xxh3_128() if source.known_digest is None else None
        self.num_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, block: WriteableBuffer) -> int:
        """Fill a block; a file that has more bytes than expected is refused at once, as it may grow without end."""
        try:
            num_bytes = self._file.readinto(block)
        except OSError as error:
            raise self._source.unreadable(error) from error
        self.num_bytes += num_bytes
        if self.num_bytes > self._source.size_in_bytes:
            raise self._source.changed()
        if self._hasher is not None:
            self._hasher.update(memoryview(block)[:num_bytes])
        self._on_progress(self.num_bytes)
        return num_bytes

    def digest(self) -> str:
        """`xxh128:<hex>` of what was read."""
        assert self._hasher is not None
        return digest_of_hash(self._hasher)


def _state_of(path: Path) -> tuple[int, int | None]:
    """Size in bytes and time of change in ns."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns
