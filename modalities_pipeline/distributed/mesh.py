"""The device mesh: how the ranks of a run are arranged for parallelism."""

import math
from enum import StrEnum
from typing import Annotated

import torch
import torch.distributed as dist
from pydantic import Field
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.distributed.env import default_device_type
from modalities_pipeline.exceptions import ConfigError, RunningEnvError

_Degree = Annotated[int, Field(strict=True, gt=0)]
_DataParallelDegree = Annotated[int, Field(strict=True, ge=-1)]


class ParallelismDegrees(StrEnum):
    """Dimensions of a mesh, by the kind of parallelism along them."""

    DP_REPLICATE = "dp_replicate"
    DP_SHARD = "dp_shard"
    CP = "cp"
    TP = "tp"
    PP = "pp"


class DeviceMeshConfig(ComponentConfig):
    """Fields of the mesh. Of the data parallel degrees one may be -1: whatever is left of `world_size`.

    The device type is the run's (see `distributed.env`) unless given.
    """

    device_type: str | None = None
    data_parallel_replicate_degree: _DataParallelDegree = 1
    data_parallel_shard_degree: _DataParallelDegree
    tensor_parallel_degree: _Degree = 1
    pipeline_parallel_degree: _Degree = 1
    context_parallel_degree: _Degree = 1
    enable_loss_parallel: bool | None = False
    world_size: _Degree


class ParallelDegreeConfig(ComponentConfig):
    """Fields of the number conversion `parallel_degree`."""

    device_mesh: DeviceMesh
    parallelism_methods: list[ParallelismDegrees]


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
    """A mesh over all ranks; `dp_replicate` is a dimension of it only if larger than 1, `dp_shard` always.

    Raises:
        ConfigError: the degrees do not make up the world size, or ask for parallelism that there is not.
        RunningEnvError: there is no process group, or it is of another size.
    """
    others = {
        "tensor_parallel_degree": tensor_parallel_degree,
        "pipeline_parallel_degree": pipeline_parallel_degree,
        "context_parallel_degree": context_parallel_degree,
    }
    for name, degree in others.items():
        if degree != 1:
            raise ConfigError(f"device_mesh: {name} is {degree}, but models are only data parallel here. Set it to 1.")
    if enable_loss_parallel:
        raise ConfigError("device_mesh: enable_loss_parallel needs tensor parallelism. Set it to false.")
    replicate, shard = _fill_degrees(data_parallel_replicate_degree, data_parallel_shard_degree, world_size)
    if not dist.is_initialized():
        raise RunningEnvError("A device mesh needs a process group. Build it inside distributed.env.DistributedEnv.")
    if dist.get_world_size() != world_size:
        raise RunningEnvError(
            f"device_mesh: world_size is {world_size}, but the run has {dist.get_world_size()} processes. Use "
            "${cuda_env:WORLD_SIZE}."
        )
    dimensions = {ParallelismDegrees.DP_REPLICATE.value: replicate, ParallelismDegrees.DP_SHARD.value: shard}
    if replicate == 1:
        del dimensions[ParallelismDegrees.DP_REPLICATE.value]
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


def get_data_parallel_mesh(device_mesh: DeviceMesh) -> DeviceMesh:
    """The part of a mesh over which data is split: `dp_shard`, with `dp_replicate` before it if there is one.

    Raises:
        ConfigError: the mesh has no dimension `dp_shard`.
    """
    names = device_mesh.mesh_dim_names or ()
    if ParallelismDegrees.DP_SHARD.value not in names:
        raise ConfigError(f"The device mesh has no dimension dp_shard (it has: {', '.join(names) or 'no names'}).")
    wanted = (ParallelismDegrees.DP_REPLICATE.value, ParallelismDegrees.DP_SHARD.value)
    return device_mesh[tuple(name for name in wanted if name in names)]


def _fill_degrees(replicate: int, shard: int, world_size: int) -> tuple[int, int]:
    if 0 in (replicate, shard):
        raise ConfigError("device_mesh: a data parallel degree is 0. Use 1 for none, -1 for whatever is left.")
    if replicate == shard == -1:
        raise ConfigError("device_mesh: only one data parallel degree may be -1.")
    if replicate == -1:
        replicate = world_size // shard
    if shard == -1:
        shard = world_size // replicate
    if replicate * shard != world_size:
        raise ConfigError(
            f"device_mesh: data_parallel_replicate_degree {replicate} x data_parallel_shard_degree {shard} is not "
            f"world_size {world_size}."
        )
    return replicate, shard


def _checked_device_type(device_type: str | None) -> str:
    if device_type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device_mesh: device_type is 'cuda', but torch sees no GPU here. Leave it out, or use 'cpu'.")
    return device_type or default_device_type()
