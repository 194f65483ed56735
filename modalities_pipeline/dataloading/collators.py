"""Collators: from samples to the inputs and targets of a batch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from modalities_pipeline.batch import DatasetBatch
from modalities_pipeline.dataloading.collator_configs import fault_of_text_keys
from modalities_pipeline.dataloading.datasets import Sample
from modalities_pipeline.exceptions import BatchStateError, ConfigError, UserError

# Embeddings take int32 and int64 only.
_WIDER_DTYPES = {torch.uint8: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}


class CollateFnIF(ABC):
    """Makes a batch from samples."""

    @abstractmethod
    def __call__(self, batch: list[Sample]) -> DatasetBatch:
        """The batch of these samples."""


class GPT2LLMCollateFn(CollateFnIF):
    """Next-token prediction: inputs are all tokens but the last, targets all but the first."""

    def __init__(self, sample_key: str, target_key: str) -> None:
        self.sample_key = sample_key
        self.target_key = target_key

    def __call__(self, batch: list[Sample]) -> DatasetBatch:
        """Inputs and targets of shape (batch, T - 1) from samples of T tokens each; int32 or int64.

        Both are views of one tensor.

        Raises:
            BatchStateError: a sample has no `sample_key`.
            UserError: the samples differ in length, or there is none.
        """
        tokens = stacked(batch, self.sample_key)
        tokens = tokens.to(_WIDER_DTYPES.get(tokens.dtype, tokens.dtype))
        return DatasetBatch(samples={self.sample_key: tokens[:, :-1]}, targets={self.target_key: tokens[:, 1:]})


class CoCaCollatorFn(CollateFnIF):
    """Images with captions: all keys stacked, and the text shifted for next-token prediction.

    The targets are those of `target_keys` and, under `text_target_key`, all tokens of the text but the first; the
    text among the samples loses its last token.
    """

    def __init__(
        self, sample_keys: list[str], target_keys: list[str], text_sample_key: str, text_target_key: str
    ) -> None:
        """Name the keys.

        Raises:
            ConfigError: `text_sample_key` is not among the sample keys, or `text_target_key` is among the target keys.
        """
        fault = fault_of_text_keys(sample_keys, target_keys, text_sample_key, text_target_key)
        if fault:
            raise ConfigError(f"collate_fn.coca_collator: {fault}.")
        self.sample_keys = sample_keys
        self.target_keys = target_keys
        self.text_sample_key = text_sample_key
        self.text_target_key = text_target_key

    def __call__(self, batch: list[Sample]) -> DatasetBatch:
        """Tensors of shape (batch, ...) in the samples' dtypes; tokens are int32 or int64.

        Raises:
            BatchStateError: a sample lacks a key.
            UserError: the samples differ in shape, or there is none.
        """
        samples = {key: stacked(batch, key) for key in self.sample_keys}
        targets = {key: stacked(batch, key) for key in self.target_keys}
        text = samples[self.text_sample_key]
        text = text.to(_WIDER_DTYPES.get(text.dtype, text.dtype))
        samples[self.text_sample_key] = text[:, :-1].clone()
        targets[self.text_target_key] = text[:, 1:].clone()
        return DatasetBatch(samples=samples, targets=targets)


def stacked(batch: Sequence[Sample], key: str) -> torch.Tensor:
    """The arrays of all samples under one key, shape (batch, *shape of one).

    Raises:
        BatchStateError: a sample has no such key.
        UserError: the arrays differ in shape, or there is no sample.
    """
    if not batch:
        raise UserError("A batch needs at least one sample.")
    try:
        arrays = [np.asarray(sample[key]) for sample in batch]
    except KeyError:
        found = sorted({", ".join(sample) or "nothing" for sample in batch if key not in sample})
        raise BatchStateError(
            f"A sample has no '{key}' (it has: {found[0]}). Let dataset and collator use the same key."
        ) from None
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise UserError(
            f"The samples of a batch must have the same shape, but those under '{key}' have {sorted(shapes)}. Use a "
            "dataset of samples of equal length, such as packed_mem_map_dataset_continuous."
        )
    return torch.from_numpy(np.stack(arrays))
