"""Copies part of a file to another one inside the kernel, where that is possible."""

import errno
import os
from collections.abc import Callable

from modalities_pipeline.exceptions import DatasetFormatError

# What a file system or an old kernel answers where it cannot copy between these two files.
_UNSUPPORTED = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
_COPY_BLOCK_IN_BYTES = 1 << 20
_MAX_KERNEL_COPY_IN_BYTES = 256 << 20  # bounds the time between two reports

Report = Callable[[int], None]


def copy_range(source: int, destination: int, offset: int, num_bytes: int, report: Report) -> None:
    """Append `num_bytes` bytes of a file, from `offset` on, at the current position of another one.

    Args:
        source: descriptor to read from.
        destination: descriptor to write to.
        offset: first byte in the source.
        num_bytes: how many.
        report: is told how many bytes of these are copied, again and again.

    Raises:
        DatasetFormatError: the source ends too early.
    """
    done = 0
    for copy in (_copy_file_range, _sendfile, _read_and_write):
        while done < num_bytes:
            try:
                step = copy(source, destination, offset + done, min(num_bytes - done, _MAX_KERNEL_COPY_IN_BYTES))
            except OSError as error:
                if error.errno not in _UNSUPPORTED or copy is _read_and_write:
                    raise
                break
            if not step:
                break
            done += step
            report(done)
    if done < num_bytes:
        raise DatasetFormatError(
            f"The source ends at byte {offset + done}, {num_bytes - done} bytes too early: it changed meanwhile."
        )


def _copy_file_range(source: int, destination: int, offset: int, num_bytes: int) -> int:
    return os.copy_file_range(source, destination, num_bytes, offset_src=offset)


def _sendfile(source: int, destination: int, offset: int, num_bytes: int) -> int:
    return os.sendfile(destination, source, offset, num_bytes)


def _read_and_write(source: int, destination: int, offset: int, num_bytes: int) -> int:
    content = memoryview(os.pread(source, min(num_bytes, _COPY_BLOCK_IN_BYTES), offset))
    written = 0
    while written < len(content):
        written += os.write(destination, content[written:])
    return written
