"""The device mesh: degrees that make up the world, and those that cannot."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from modalities_pipeline.dataloading.data_parallel import rank_in_mesh
from modalities_pipeline.distributed.configs import ParallelismDegrees
from modalities_pipeline.distributed.mesh import (
    get_data_parallel_mesh,
    get_device_mesh,
    get_mesh_for_parallelism_method,
    get_parallel_degree,
    get_parallel_rank,
    has_parallelism_method,
)
from modalities_pipeline.exceptions import ConfigError, RunningEnvError


def test_the_shard_dimension_is_always_there(process_group):
    mesh = get_device_mesh(-1, 1)
    assert mesh.mesh_dim_names == ("dp_shard",)
    assert get_parallel_degree(mesh, [ParallelismDegrees.DP_REPLICATE, ParallelismDegrees.DP_SHARD]) == 1


def test_the_mesh_is_on_the_device_of_the_run(process_group, monkeypatch):
    monkeypatch.setenv("MODALITIES_PIPELINE_DEVICE", "cpu")
    assert get_device_mesh(1, 1).device_type == "cpu"


@pytest.fixture
def make_mesh():
    """Function degrees -> mesh of rank 13 of 16; there is no communication over it."""

    def make(**degrees: int) -> DeviceMesh:
        dist.init_process_group("fake", store=FakeStore(), rank=13, world_size=16)
        return get_device_mesh(**{"data_parallel_shard_degree": -1, "world_size": 16, "device_type": "cpu", **degrees})

    yield make
    dist.destroy_process_group()


def test_dimensions_have_the_order_of_modalities_and_only_those_larger_than_one_are_there(make_mesh):
    mesh = make_mesh(data_parallel_replicate_degree=2, tensor_parallel_degree=2, pipeline_parallel_degree=2)
    assert mesh.mesh_dim_names == ("pp", "dp_replicate", "dp_shard", "tp")
    assert mesh.mesh.tolist() == torch.arange(16).view(2, 2, 2, 2).tolist()
    assert [get_parallel_rank(mesh, method) for method in ("pp", "dp_replicate", "dp_shard", "tp")] == [1, 1, 0, 1]
    assert get_data_parallel_mesh(mesh).mesh.tolist() == [[9, 11], [13, 15]]
    assert get_parallel_degree(mesh, ["dp_replicate", "dp_shard"]) == 4


def test_ranks_of_one_tensor_parallel_group_read_the_same_samples(make_mesh):
    mesh = make_mesh(tensor_parallel_degree=4)
    assert mesh.mesh_dim_names == ("dp_shard", "tp")
    tensor_parallel = get_mesh_for_parallelism_method(mesh, ParallelismDegrees.TP)
    assert tensor_parallel.mesh.tolist() == [12, 13, 14, 15]
    assert rank_in_mesh(mesh, ["dp_replicate", "dp_shard"]) == (3, 4)


def test_a_dimension_that_is_not_there_is_named_with_those_that_are(make_mesh):
    mesh = make_mesh(tensor_parallel_degree=2)
    assert has_parallelism_method(mesh, ParallelismDegrees.TP)
    assert not has_parallelism_method(mesh, ParallelismDegrees.PP)
    assert not has_parallelism_method(None, ParallelismDegrees.TP)
    with pytest.raises(ConfigError, match=r"no dimension pp \(it has: dp_shard, tp\)"):
        get_parallel_rank(mesh, ParallelismDegrees.PP)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data_parallel_shard_degree": 2}, "1 x data_parallel_shard_degree 2 is not world_size 4"),
        (
            {"data_parallel_shard_degree": 3, "data_parallel_replicate_degree": -1},
            "is not a multiple of data_parallel_shard_degree 3",
        ),
        ({"data_parallel_shard_degree": -1, "data_parallel_replicate_degree": -1}, "only one .* may be -1"),
        ({"data_parallel_shard_degree": 0}, "degree is 0"),
        ({"tensor_parallel_degree": 3}, "world_size 4 is not a multiple of .*tensor_parallel_degree 3"),
        ({"context_parallel_degree": 2}, "context_parallel_degree is 2, but there is no context parallelism"),
        ({"enable_loss_parallel": True, "tensor_parallel_degree": 2}, "enable_loss_parallel is true, but every rank"),
    ],
)
def test_degrees_that_cannot_be_are_refused(settings, message):
    """W18: context and loss parallelism, which there are not, are not ignored."""
    with pytest.raises(ConfigError, match=message):
        get_device_mesh(**{"data_parallel_shard_degree": -1, "world_size": 4, **settings})


def test_a_world_size_that_is_not_the_runs_is_refused(process_group):
    with pytest.raises(RunningEnvError, match="world_size is 4, but the run has 1 processes"):
        get_device_mesh(-1, 4)


def test_without_a_process_group_there_is_no_mesh():
    with pytest.raises(RunningEnvError, match="needs a process group"):
        get_device_mesh(-1, 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_is_refused(process_group):
    with pytest.raises(ConfigError, match="torch sees no GPU here"):
        get_device_mesh(-1, 1, device_type="cuda")
