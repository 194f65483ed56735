"""Tables of (byte offset, byte length), the content of `.idx` files and of the index of `.pbin` files.

On disk a table is a pickled list of 2-tuples of ints, protocol 4, as Modalities writes it. In memory it is an int64
array of shape (n, 2). Unpickling foreign files can run code, so tables are read by an unpickler that can build only
lists, tuples and ints.
"""

import io
import itertools
import pickle
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.exceptions import DatasetFormatError

_PICKLE_PROTOCOL = 4

OffsetTable = NDArray[np.int64]


class _PlainDataUnpickler(pickle.Unpickler):
    """Builds plain containers and numbers; refuses to look up any class or function."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it refers to {module_name}.{global_name}, which an index never needs")


def encode_offset_table(table: OffsetTable) -> bytes:
    """The bytes of a table, shape (n, 2); identical to Modalities' for equal entries."""
    offsets, lengths = table[:, 0].tolist(), table[:, 1].tolist()
    return pickle.dumps(list(zip(offsets, lengths, strict=True)), protocol=_PICKLE_PROTOCOL)


def decode_offset_table(content: bytes | memoryview, path: Path) -> OffsetTable:
    """Read a table, int64 of shape (n, 2); `path` is named in errors.

    Raises:
        DatasetFormatError: the content is not a pickled list of pairs of non-negative ints.
    """
    try:
        entries = _PlainDataUnpickler(io.BytesIO(content)).load()
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DatasetFormatError(f"{path}: the index cannot be read ({error}). Build the file again.") from error
    if not _is_list_of_pairs(entries):
        raise DatasetFormatError(f"{path}: the index is not a list of (offset, length) pairs. Build the file again.")
    numbers = itertools.chain.from_iterable(entries)
    try:
        table = np.fromiter(numbers, dtype=np.int64, count=2 * len(entries)).reshape(-1, 2)
    except OverflowError as error:
        raise DatasetFormatError(f"{path}: the index holds a number above 2^63. Build the file again.") from error
    if (table < 0).any():
        row = int(np.flatnonzero((table < 0).any(axis=1))[0])
        raise DatasetFormatError(
            f"{path}: entry {row} of the index is negative ({tuple(table[row].tolist())}); files merged by Modalities "
            "can have such an index. Merge the inputs again."
        )
    return table


def _is_list_of_pairs(entries: object) -> bool:
    return isinstance(entries, list) and all(
        type(entry) is tuple and len(entry) == 2 and type(entry[0]) is int and type(entry[1]) is int
        for entry in entries
    )
