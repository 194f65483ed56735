"""Each document ends with exactly one end-of-document token."""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modalities_pipeline.data.packing.document_endings import end_documents
from modalities_pipeline.tokenization.encoders import flatten

EOD = 0


def _ended_one_by_one(document: list[int], padded_length: int | None) -> list[int]:
    if document[-1] == EOD:
        return document
    if len(document) == padded_length:
        return [*document[:-1], EOD]
    return [*document, EOD]


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=12),
    st.sampled_from([None, 1, 2, 3]),
    st.sampled_from(["<u1", "<u2", "<u4"]),
    st.sampled_from(["I", "q"]),
)
def test_it_is_what_a_loop_over_the_documents_gives(
    documents: list[list[int]], padded_length: int | None, dtype: str, typecode: Literal["I", "q"]
) -> None:
    """B015."""
    tokens, lengths = end_documents(flatten(documents, typecode), EOD, padded_length, np.dtype(dtype))
    expected = [_ended_one_by_one(document, padded_length) for document in documents]
    assert tokens.tolist() == [token_id for document in expected for token_id in document]
    assert lengths.tolist() == [len(document) for document in expected]
    assert (tokens.dtype, lengths.dtype) == (np.dtype(dtype), np.int64)


@pytest.mark.parametrize(("dtype", "largest"), [("<u1", 2**8 - 1), ("<u2", 2**16 - 1), ("<u4", 2**32 - 1)])
def test_the_largest_ids_of_a_width_survive(dtype: str, largest: int) -> None:
    """B011."""
    tokens, _ = end_documents(flatten([[largest, 1], [largest]], "I"), largest, None, np.dtype(dtype))
    assert tokens.tolist() == [largest, 1, largest, largest]
