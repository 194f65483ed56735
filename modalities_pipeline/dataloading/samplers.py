"""Samplers: in which order samples are read, and by which rank."""

from collections.abc import Iterator, Sequence, Sized

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.data import BatchSampler, Sampler, SequentialSampler

from modalities_pipeline.dataloading.data_parallel import rank_in_mesh
from modalities_pipeline.distributed.mesh import ParallelismDegrees
from modalities_pipeline.exceptions import ConfigError

_BLOCK_IN_SAMPLES = 65_536
_MAX_INT32 = 2**31 - 1


class ResumableDistributedSampler(Sampler[int]):
    """Goes through a dataset from a given sample on, every rank taking every `num_replicas`-th sample.

    The global order is that of `num_epochs` epochs one after the other, each shuffled by seed + its number or left as
    it is. It depends on neither the ranks nor the batch size, and the first `skip_num_global_samples` are left out of
    it after the shuffle: so a run may go on with other ranks and batches, and sees exactly what is left, later epochs
    in full. What cannot be shared out evenly at the very end is dropped, or with `drop_last` False filled up from the
    start of the last epoch.

    Memory: 4 bytes per sample of one epoch if shuffled (8 from 2^31 samples on), else none.
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
        num_epochs: int = 1,
    ) -> None:
        """Say which part of which order is wanted.

        Args:
            dataset: anything with a length.
            rank: of this process among the data parallel ranks.
            num_replicas: number of data parallel ranks.
            epoch: number of the first epoch.
            shuffle: whether each epoch has an order of its own; else samples come as they are stored.
            seed: of the shuffle.
            drop_last: whether to drop or to fill up what is left at the end.
            skip_num_global_samples: samples, of all ranks together, that were seen before.
            num_epochs: how often to go through the data.

        Raises:
            ConfigError: a number cannot be, or more samples are to be skipped than there are.
        """
        faults = {
            f"num_replicas is {num_replicas}, but has to be at least 1": num_replicas < 1,
            f"rank {rank} is not below num_replicas ({num_replicas})": not 0 <= rank < max(num_replicas, 1),
            f"num_epochs is {num_epochs}, but has to be at least 1": num_epochs < 1,
            f"epoch is {epoch}, but has to be at least 0": epoch < 0,
            f"skip_num_global_samples is {skip_num_global_samples}, below 0": skip_num_global_samples < 0,
        }
        if any(faults.values()):
            words = "; ".join(fault for fault, is_there in faults.items() if is_there)
            raise ConfigError(f"resumable_distributed_sampler: {words}.")
        num_samples = len(dataset) * num_epochs
        if skip_num_global_samples > num_samples:
            epochs = f" in {num_epochs} epochs" if num_epochs > 1 else ""
            raise ConfigError(
                f"resumable_distributed_sampler: skip_num_global_samples is {skip_num_global_samples}, but the dataset "
                f"has only {num_samples} samples{epochs}. The run it goes on from saw all of this data: use more data, "
                "or a higher num_epochs."
            )
        self.dataset = dataset
        self.rank = rank
        self.num_replicas = num_replicas
        self.epoch = epoch
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.skip_num_global_samples = skip_num_global_samples
        self.num_epochs = num_epochs

    def __len__(self) -> int:
        """Number of samples of this rank."""
        rest = len(self.dataset) * self.num_epochs - self.skip_num_global_samples
        return rest // self.num_replicas if self.drop_last else -(rest // -self.num_replicas)

    def __iter__(self) -> Iterator[int]:
        """This rank's sample indices."""
        num_samples = len(self.dataset)
        position = self.skip_num_global_samples + self.rank  # in the global order
        end = self.skip_num_global_samples + len(self) * self.num_replicas
        while position < end:
            epoch, start = divmod(position, num_samples)
            stop = min(end - epoch * num_samples, num_samples)
            yield from self._indices(
                self.epoch + min(epoch, self.num_epochs - 1), range(start, stop, self.num_replicas)
            )
            position += len(range(start, stop, self.num_replicas)) * self.num_replicas

    def _indices(self, epoch: int, positions: range) -> Iterator[int]:
        """The samples at these positions of an epoch's order."""
        if not self.shuffle:
            yield from positions
            return
        num_samples = len(self.dataset)
        generator = torch.Generator().manual_seed(self.seed + epoch)
        dtype = torch.int32 if num_samples <= _MAX_INT32 else torch.int64
        order = torch.randperm(num_samples, generator=generator, dtype=dtype)
        order = order[positions.start : positions.stop : positions.step]
        if positions.step > 1:
            order = order.clone()  # lets go of the other ranks' part
        for block in order.split(_BLOCK_IN_SAMPLES):
            yield from block.tolist()


def get_resumable_distributed_multi_dim_sampler(
    dataset: Sized,
    device_mesh: DeviceMesh,
    data_parallel_key: ParallelismDegrees | str | Sequence[ParallelismDegrees | str],
    epoch: int = 0,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = True,
    skip_num_global_samples: int = 0,
    num_epochs: int = 1,
) -> ResumableDistributedSampler:
    """The resumable sampler of this process in a device mesh; ranks that differ only along other dimensions agree.

    Raises:
        ConfigError: the mesh has no such dimension, or has another one over which data has to be split.
    """
    rank, num_replicas = rank_in_mesh(device_mesh, data_parallel_key)
    return ResumableDistributedSampler(
        dataset, rank, num_replicas, epoch, shuffle, seed, drop_last, skip_num_global_samples, num_epochs
    )


def get_distributed_sampler(
    dataset: Sized, rank: int, num_replicas: int, shuffle: bool, seed: int = 0, drop_last: bool = True
) -> Sampler[int]:
    """The samples in the order of torch's DistributedSampler, without its list of all of them."""
    return ResumableDistributedSampler(dataset, rank, num_replicas, shuffle=shuffle, seed=seed, drop_last=drop_last)


def get_sequential_sampler(data_source: Sized) -> Sampler[int]:
    """All samples in order, on every rank."""
    return SequentialSampler(data_source)


def get_batch_sampler(sampler: Sampler[int], batch_size: int, drop_last: bool = True) -> BatchSampler:
    """Groups the indices of a sampler into micro batches.

    Raises:
        ConfigError: the batch size is smaller than 1.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_sampler.default: batch_size is {batch_size}, but has to be at least 1.")
    return BatchSampler(sampler, batch_size=batch_size, drop_last=drop_last)
