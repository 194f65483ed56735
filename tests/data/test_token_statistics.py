"""Statistics of packed tokens."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data import token_statistics
from modalities_pipeline.data.token_statistics import unigram_cross_entropy
from modalities_pipeline.exceptions import DatasetFormatError


def test_the_unigram_loss_is_that_of_smoothed_training_frequencies(
    write_pbin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = write_pbin("train.pbin", [[0, 0, 0], [1]])
    validation = write_pbin("validation.pbin", [[0], [1, 2]])
    expected = -(math.log(4 / 7) + math.log(2 / 7) + math.log(1 / 7)) / 3
    assert unigram_cross_entropy(train, validation, 3) == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(token_statistics, "_BLOCK_IN_TOKENS", 1)
    assert unigram_cross_entropy(train, validation, 3) == pytest.approx(expected, rel=1e-12)


def test_ids_beyond_the_vocabulary_and_empty_files_are_refused(write_pbin: Callable[..., Path]) -> None:
    """B021."""
    train, empty = write_pbin("train.pbin", [[0, 5]]), write_pbin("empty.pbin", [])
    with pytest.raises(DatasetFormatError, match=r"train\.pbin holds token id 5.*only 5"):
        unigram_cross_entropy(train, train, 5)
    with pytest.raises(DatasetFormatError, match=r"empty\.pbin holds no tokens"):
        unigram_cross_entropy(train, empty, 6)
