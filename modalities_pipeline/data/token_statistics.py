"""Statistics of packed tokens that need no model."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.exceptions import DatasetFormatError

_BLOCK_IN_TOKENS = 1 << 22


def unigram_cross_entropy(train_path: Path, validation_path: Path, vocab_size: int) -> float:
    """Cross entropy in nats per token, on the validation tokens, of a model that knows only how often tokens occur.

    The frequencies are those of the training tokens with one added to each of the `vocab_size` counts. A language model
    that learned anything from context has a lower loss.

    Raises:
        DatasetFormatError: a file has a token id that is not below `vocab_size`, or there are no validation tokens.
    """
    probabilities = _counts(train_path, vocab_size) + 1.0
    probabilities /= probabilities.sum()
    validation_counts = _counts(validation_path, vocab_size)
    num_tokens = int(validation_counts.sum())
    if not num_tokens:
        raise DatasetFormatError(f"{validation_path} holds no tokens, so no loss can be computed on it.")
    return float(-(validation_counts * np.log(probabilities)).sum() / num_tokens)


def _counts(path: Path, vocab_size: int) -> NDArray[np.int64]:
    """How often each token id occurs in a file, shape (vocab_size,)."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    with PackedFile(path) as file:
        for start in range(0, file.num_tokens, _BLOCK_IN_TOKENS):
            block = np.bincount(file.tokens[start : start + _BLOCK_IN_TOKENS], minlength=vocab_size)
            if len(block) > vocab_size:
                raise DatasetFormatError(
                    f"{path} holds token id {len(block) - 1}, but the vocabulary has only {vocab_size} tokens."
                )
            counts += block
    return counts
