"""The data loader: batches from a dataset in the order of a batch sampler."""

from collections.abc import Callable
from typing import Any

import torch.utils.data
from torch.utils.data import BatchSampler, DataLoader


class LLMDataLoader(DataLoader[Any]):
    """torch's data loader with a tag, under which its results are reported."""

    def __init__(
        self,
        dataloader_tag: str,
        dataset: torch.utils.data.Dataset[Any],
        batch_sampler: BatchSampler,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        super().__init__(
            dataset=dataset,
            batch_sampler=batch_sampler,
            collate_fn=collate_fn,
            num_workers=num_workers,
            pin_memory=pin_memory,
        )
        self._dataloader_tag = dataloader_tag

    @property
    def dataloader_tag(self) -> str:
        """Name of the loader in reports."""
        return self._dataloader_tag
