"""Collators: from samples to the inputs and targets of a batch."""

from abc import ABC, abstractmethod

import numpy as np
import torch

from modalities_pipeline.batch import DatasetBatch
from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.dataloading.datasets import Sample


class CollateFnIF(ABC):
    """Makes a batch from samples."""

    @abstractmethod
    def __call__(self, batch: list[Sample]) -> DatasetBatch:
        """The batch of these samples."""


class GPT2LLMCollateFnConfig(ComponentConfig):
    """Fields of `gpt_2_llm_collator`."""

    sample_key: str
    target_key: str


class GPT2LLMCollateFn(CollateFnIF):
    """Next-token prediction: inputs are all tokens but the last, targets all but the first."""

    def __init__(self, sample_key: str, target_key: str) -> None:
        self.sample_key = sample_key
        self.target_key = target_key

    def __call__(self, batch: list[Sample]) -> DatasetBatch:
        """Inputs and targets of shape (batch, T - 1) from samples of T tokens each; int32 or int64.

        Raises:
            ValueError: the samples differ in length, or there is none.
        """
        tokens = torch.from_numpy(np.stack([np.asarray(sample[self.sample_key]) for sample in batch]))
        if tokens.dtype == torch.uint8:
            # Embeddings do not take bytes.
            tokens = tokens.to(torch.int32)
        return DatasetBatch(samples={self.sample_key: tokens[:, :-1]}, targets={self.target_key: tokens[:, 1:]})
