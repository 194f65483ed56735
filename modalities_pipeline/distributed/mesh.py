"""The device mesh: how the ranks of a run are arranged for parallelism."""

import math
from collections.abc import Collection

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from modalities_pipeline.distributed.configs import (
    DATA_PARALLEL,
    NO_CP,
    NO_LOSS_PARALLEL,
    ParallelismDegrees,
    fill_degrees,
)
from modalities_pipeline.distributed.env import default_device_type, get_rank, get_world_size
from modalities_pipeline.exceptions import ConfigError, RunningEnvError


def get_device_mesh(
    data_parallel_shard_degree: int,
    world_size: int,
    device_type: str | None = None,
    data_parallel_replicate_degree: int = 1,
    tensor_parallel_degree: int = 1,
    pipeline_parallel_degree: int = 1,
    context_parallel_degree: int = 1,
    enable_loss_parallel: bool | None = False,
) -> DeviceMesh:
    """A mesh over all ranks with the dimensions pp, dp_replicate, dp_shard, tp, in this order.

    `dp_shard` is always a dimension of it, the others only if larger than 1.

    Raises:
        ConfigError: the degrees do not make up the world size, or ask for parallelism that there is not.
        RunningEnvError: there is no process group, or it is of another size.
    """
    if context_parallel_degree != 1:
        raise ConfigError(f"device_mesh: context_parallel_degree is {context_parallel_degree}, but {NO_CP}.")
    if enable_loss_parallel:
        raise ConfigError(f"device_mesh: enable_loss_parallel is true, but {NO_LOSS_PARALLEL}.")
    given = {  # in the order of the mesh's dimensions
        ParallelismDegrees.PP: pipeline_parallel_degree,
        ParallelismDegrees.DP_REPLICATE: data_parallel_replicate_degree,
        ParallelismDegrees.DP_SHARD: data_parallel_shard_degree,
        ParallelismDegrees.TP: tensor_parallel_degree,
    }
    try:
        degrees = fill_degrees(given, world_size)
    except ValueError as error:
        raise ConfigError(f"device_mesh: {error}.") from None
    if not dist.is_initialized():
        raise RunningEnvError("A device mesh needs a process group. Build it inside distributed.env.DistributedEnv.")
    if dist.get_world_size() != world_size:
        raise RunningEnvError(
            f"device_mesh: world_size is {world_size}, but the run has {dist.get_world_size()} processes. Use "
            "${cuda_env:WORLD_SIZE}."
        )
    is_always_there = ParallelismDegrees.DP_SHARD
    dimensions = {kind.value: size for kind, size in degrees.items() if size > 1 or kind is is_always_there}
    return init_device_mesh(
        _checked_device_type(device_type), tuple(dimensions.values()), mesh_dim_names=tuple(dimensions)
    )


def get_parallel_degree(device_mesh: DeviceMesh, parallelism_methods: list[ParallelismDegrees]) -> int:
    """Product of the mesh's sizes along the given dimensions; one that it lacks counts as 1.

    Raises:
        ConfigError: the mesh's dimensions have no names.
    """
    names = device_mesh.mesh_dim_names
    if names is None:
        raise ConfigError("The device mesh has no named dimensions. Build it with device_mesh.default.")
    methods = {ParallelismDegrees(method).value for method in parallelism_methods}
    return math.prod(device_mesh.size(index) for index, name in enumerate(names) if name in methods)


def has_parallelism_method(device_mesh: DeviceMesh | None, parallelism_method: ParallelismDegrees) -> bool:
    """Whether there is a mesh, and it has a dimension for a kind of parallelism."""
    names = device_mesh.mesh_dim_names if device_mesh is not None else None
    return ParallelismDegrees(parallelism_method).value in (names or ())


def get_mesh_for_parallelism_method(device_mesh: DeviceMesh, parallelism_method: ParallelismDegrees) -> DeviceMesh:
    """The one-dimensional part of a mesh for a kind of parallelism.

    Raises:
        ConfigError: the mesh has no such dimension.
    """
    method = ParallelismDegrees(parallelism_method)
    if not has_parallelism_method(device_mesh, method):
        names = ", ".join(device_mesh.mesh_dim_names or ()) or "no names"
        raise ConfigError(f"The device mesh has no dimension {method.value} (it has: {names}).")
    return device_mesh[method.value]


def get_parallel_rank(device_mesh: DeviceMesh, parallelism_method: ParallelismDegrees) -> int:
    """This process' place along one dimension of a mesh; raises as `get_mesh_for_parallelism_method`."""
    return get_mesh_for_parallelism_method(device_mesh, parallelism_method).get_local_rank()


def get_data_parallel_degree(device_mesh: DeviceMesh | None) -> int:
    """Number of ranks that see different samples: those of the mesh's data parallel dimensions; all without a mesh."""
    if device_mesh is None:
        return get_world_size()
    return get_parallel_degree(device_mesh, list(DATA_PARALLEL))


def get_data_parallel_rank(device_mesh: DeviceMesh | None) -> int:
    """This process' place among the ranks that see different samples."""
    if device_mesh is None:
        return get_rank()
    return get_flat_rank(device_mesh, DATA_PARALLEL)


def get_flat_rank(device_mesh: DeviceMesh, parallelism_methods: Collection[str]) -> int:
    """This process' place along dimensions together, in the mesh's order; those that it lacks do not count."""
    rank = 0
    for dimension, name in enumerate(device_mesh.mesh_dim_names or ()):
        if name in parallelism_methods:
            rank = rank * device_mesh.size(dimension) + device_mesh.get_local_rank(name)
    return rank


def get_data_parallel_mesh(device_mesh: DeviceMesh) -> DeviceMesh:
    """The part of a mesh over which data is split: `dp_shard`, with `dp_replicate` before it if there is one.

    Raises:
        ConfigError: the mesh has no dimension `dp_shard`.
    """
    names = device_mesh.mesh_dim_names or ()
    if ParallelismDegrees.DP_SHARD.value not in names:
        raise ConfigError(f"The device mesh has no dimension dp_shard (it has: {', '.join(names) or 'no names'}).")
    return device_mesh[tuple(name.value for name in DATA_PARALLEL if name in names)]


def _checked_device_type(device_type: str | None) -> str:
    if device_type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device_mesh: device_type is 'cuda', but torch sees no GPU here. Leave it out, or use 'cpu'.")
    return device_type or default_device_type()
