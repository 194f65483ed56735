"""A raw file while a stage reads it: its bytes must stay those that the stage's digest stands for."""

from pathlib import Path

from modalities_pipeline.data.files import digest_file
from modalities_pipeline.data.manifest import input_digest_of
from modalities_pipeline.data.raw_files import RawFile
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError


class RawSource:
    """One raw file of a stage.

    Attributes:
        path: the file.
        digest: `blake3:<hex>` of the content that the stage's output is recorded for.
    """

    def __init__(self, path: Path, listed: RawFile | None = None) -> None:
        """Take size, time of change and digest from the corpus' list, or without one from the file as it is now.

        Raises:
            DatasetNotFoundError: there is no such file.
            DatasetFormatError: it is damaged.
        """
        if not path.is_file():
            raise DatasetNotFoundError(f"{path} does not exist or is not a file.")
        self.path = path
        self._is_listed = listed is not None
        if listed is None:
            self._state = _state_of(path)
            self.digest = input_digest_of(path)
        else:
            self._state = (listed.size_in_bytes, listed.modified_at_in_ns)
            self.digest = listed.digest

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
            same = state[0] == self._state[0] and digest_file(self.path) == self.digest
        except FileNotFoundError:
            raise DatasetNotFoundError(f"{self.path} does not exist any more.") from None
        if not same:
            raise DatasetFormatError(
                f"{self.path} changed since raw_files listed it; materialize raw_files again."
                if self._is_listed
                else f"{self.path} changed while it was read. Run again when nothing writes to it."
            )
        self._state = state


def _state_of(path: Path) -> tuple[int, int | None]:
    """Size in bytes and time of change in ns."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns
