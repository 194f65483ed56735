"""Samplers: in which order samples are read, and by which rank."""

from collections.abc import Iterator, Sized
from typing import Annotated, Any, Literal, Self

import torch
import torch.utils.data
from pydantic import Field, model_validator
from torch.utils.data import BatchSampler, DistributedSampler, Sampler, SequentialSampler

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.exceptions import ConfigError

_Count = Annotated[int, Field(strict=True, ge=0)]
_Positive = Annotated[int, Field(strict=True, gt=0)]


class _DistributedConfig(ComponentConfig):
    """What all samplers that share samples among ranks have in common."""

    dataset: torch.utils.data.Dataset
    rank: _Count
    num_replicas: _Positive
    drop_last: Literal[True] = True

    @model_validator(mode="after")
    def _check_rank(self) -> Self:
        if self.rank >= self.num_replicas:
            raise ValueError(f"rank ({self.rank}) must be smaller than num_replicas ({self.num_replicas})")
        return self


class DistributedSamplerConfig(_DistributedConfig):
    """Fields of `distributed_sampler`."""

    shuffle: bool
    seed: int = 0


class ResumableDistributedSamplerConfig(_DistributedConfig):
    """Fields of `resumable_distributed_sampler`."""

    epoch: _Count = 0
    shuffle: bool = False
    seed: int = 0
    skip_num_global_samples: _Count = 0


class SequentialSamplerConfig(ComponentConfig):
    """Fields of `sequential_sampler`."""

    data_source: torch.utils.data.Dataset


class BatchSamplerConfig(ComponentConfig):
    """Fields of the batch sampler."""

    sampler: Sampler
    batch_size: _Positive
    drop_last: Literal[True] = True


class ResumableDistributedSampler(Sampler[int]):
    """Goes once through a dataset, from a given sample on, every rank taking every `num_replicas`-th sample.

    The order depends on seed and epoch only, and `skip_num_global_samples` are left out of it after the shuffle: so a
    run may go on with another number of ranks and sees exactly what is left. What cannot be shared out evenly at the
    end is dropped, or with `drop_last` False filled up from the start.

    Raises:
        ConfigError: more samples are to be skipped than there are.
    """

    def __init__(
        self,
        dataset: Sized,
        rank: int,
        num_replicas: int,
        epoch: int = 0,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = True,
        skip_num_global_samples: int = 0,
    ) -> None:
        if skip_num_global_samples > len(dataset):
            raise ConfigError(
                f"resumable_distributed_sampler: skip_num_global_samples is {skip_num_global_samples}, but the dataset "
                f"has only {len(dataset)} samples. The run it goes on from saw all of this data: use more data."
            )
        self.dataset = dataset
        self.rank = rank
        self.num_replicas = num_replicas
        self.epoch = epoch
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.skip_num_global_samples = skip_num_global_samples

    def __len__(self) -> int:
        """Number of samples of this rank."""
        rest = len(self.dataset) - self.skip_num_global_samples
        return rest // self.num_replicas if self.drop_last else -(rest // -self.num_replicas)

    def __iter__(self) -> Iterator[int]:
        """This rank's sample indices."""
        order = self._global_order()
        rest = order[self.skip_num_global_samples :]
        total = len(self) * self.num_replicas
        if total > len(rest):
            missing = total - len(rest)
            rest = torch.cat([rest, order.repeat(-(missing // -len(order)))[:missing]])
        return iter(rest[:total][self.rank :: self.num_replicas].tolist())

    def _global_order(self) -> torch.Tensor:
        if not self.shuffle:
            return torch.arange(len(self.dataset))
        return torch.randperm(len(self.dataset), generator=torch.Generator().manual_seed(self.seed + self.epoch))


def get_distributed_sampler(
    dataset: torch.utils.data.Dataset[Any],
    rank: int,
    num_replicas: int,
    shuffle: bool,
    seed: int = 0,
    drop_last: bool = True,
) -> Sampler[int]:
    """torch's DistributedSampler."""
    return DistributedSampler(
        dataset, num_replicas=num_replicas, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop_last
    )


def get_sequential_sampler(data_source: Sized) -> Sampler[int]:
    """All samples in order, on every rank."""
    return SequentialSampler(data_source)


def get_batch_sampler(sampler: Sampler[int], batch_size: int, drop_last: bool = True) -> BatchSampler:
    """Groups the indices of a sampler into micro batches."""
    return BatchSampler(sampler, batch_size=batch_size, drop_last=drop_last)
