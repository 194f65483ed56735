"""The byte layout of `.pbin` files: tokenized documents and an index of them at the end.

| bytes      | content                                                                                        |
|------------|------------------------------------------------------------------------------------------------|
| 0..7       | u64, length L of the data section in bytes                                                     |
| 8..11      | u32, token size in bytes: 1, 2 or 4                                                            |
| 12..12+L-1 | tokens of all documents, unsigned little-endian                                                |
| 12+L..     | offset table: (offset, length) per document in bytes, offsets relative to the data section     |

For `pbin.PackedFile` and `packed_file_writer.PackedFileWriter` alone; all others use these two classes.
"""

from typing import Any

import numpy as np

from modalities_pipeline.data.packed.pbin_header import HEADER, TOKEN_SIZES_IN_BYTES
from modalities_pipeline.exceptions import UserError

__all__ = ["HEADER", "TOKEN_DTYPES", "token_size_for_vocab"]

TOKEN_DTYPES: dict[int, np.dtype[Any]] = {size: np.dtype(f"<u{size}") for size in TOKEN_SIZES_IN_BYTES}


def token_size_for_vocab(vocab_size: int) -> int:
    """Bytes per token that hold all ids below `vocab_size`: 1, 2 or 4 (and 4 for a vocabulary of one, as Modalities).

    Raises:
        UserError: the vocabulary is empty or has more than 2^32 tokens.
    """
    if vocab_size < 1:
        raise UserError(f"A vocabulary needs at least one token, this one has {vocab_size}.")
    if vocab_size == 1:
        return 4
    for size in TOKEN_DTYPES:
        if vocab_size <= 1 << (8 * size):
            return size
    raise UserError(f"A vocabulary of {vocab_size} tokens does not fit 4 bytes per token, the largest size of a .pbin.")
