"""Ending each of many documents with exactly one end-of-document token, without a loop over them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.tokenization.encoders import FlatTokens


def end_documents(
    tokens: FlatTokens, eod_token_id: int, padded_length: int | None, dtype: np.dtype[Any]
) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int64]]:
    """Append the end-of-document token where a document does not end with it already.

    A document of exactly `padded_length` ids was padded or cut to that length and keeps it: its last id is replaced,
    since one more token would shift all later blocks of fixed length.

    Args:
        tokens: documents of at least one id each; all ids fit `dtype`.
        eod_token_id: the token.
        padded_length: number of ids to which every text is padded or cut; None if lengths vary.
        dtype: of the result.

    Returns:
        All ids, shape (num_tokens,), of `dtype`; and the length of each document, shape (num_documents,), int64.
    """
    ids, lengths = tokens
    ends = np.cumsum(lengths)
    lacking = ids[ends - 1] != eod_token_id
    cut = lacking & (lengths == padded_length) if padded_length is not None else np.zeros_like(lacking)
    appended = lacking & ~cut
    new_lengths = lengths + appended
    ended = np.empty(len(ids) + int(np.count_nonzero(appended)), dtype=dtype)
    new_ends = np.cumsum(new_lengths)
    is_appended = np.zeros(len(ended), dtype=bool)
    is_appended[new_ends[appended] - 1] = True
    ended[~is_appended] = ids
    ended[new_ends[lacking] - 1] = eod_token_id
    return ended, new_lengths
