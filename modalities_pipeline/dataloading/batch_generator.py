"""Random batches for measuring: as fast as possible, the same in every run."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch

from modalities_pipeline.batch import DatasetBatch
from modalities_pipeline.dataloading.configs import DataTypeEnum
from modalities_pipeline.distributed.env import default_device_type
from modalities_pipeline.exceptions import ConfigError


class DatasetBatchGeneratorIF(ABC):
    """Makes batches without a dataset."""

    @abstractmethod
    def get_dataset_batch(self) -> DatasetBatch:
        """The next batch."""


class RandomDatasetBatchGenerator(DatasetBatchGeneratorIF):
    """Batches of uniformly distributed numbers: sample "input_ids" and, drawn apart from it, target "target_ids"."""

    def __init__(self, dims: Mapping[str, int], data_type: DataTypeEnum | str, min_val: int, max_val: int) -> None:
        """Say what to draw.

        Args:
            dims: name -> size of each dimension; their order is that of the shape.
            data_type: float32, bfloat16 or int64.
            min_val: smallest number.
            max_val: what all numbers are below.

        Raises:
            ConfigError: there is no number between `min_val` and `max_val`.
        """
        if min_val >= max_val:
            raise ConfigError(f"dataset_batch_generator: min_val ({min_val}) must be smaller than max_val ({max_val}).")
        self._shape = tuple(dims.values())
        self._dtype: torch.dtype = getattr(torch, DataTypeEnum(data_type).value)
        self._min_val = min_val
        self._max_val = max_val
        self._device = torch.device(default_device_type())
        self._generator = torch.Generator(self._device).manual_seed(0)

    def get_dataset_batch(self) -> DatasetBatch:
        """The next batch, on the device of the run."""
        return DatasetBatch(samples={"input_ids": self._draw()}, targets={"target_ids": self._draw()})

    def _draw(self) -> torch.Tensor:
        if self._dtype == torch.int64:
            return torch.randint(
                self._min_val, self._max_val, self._shape, device=self._device, generator=self._generator
            )
        uniform = torch.rand(self._shape, dtype=self._dtype, device=self._device, generator=self._generator)
        return self._min_val + uniform * (self._max_val - self._min_val)
