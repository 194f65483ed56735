"""The device mesh: degrees that make up the world, and those that cannot."""

import pytest
import torch

from modalities_pipeline.distributed.configs import ParallelismDegrees
from modalities_pipeline.distributed.mesh import get_device_mesh, get_parallel_degree
from modalities_pipeline.exceptions import ConfigError, RunningEnvError


def test_the_shard_dimension_is_always_there(process_group):
    mesh = get_device_mesh(-1, 1)
    assert mesh.mesh_dim_names == ("dp_shard",)
    assert get_parallel_degree(mesh, [ParallelismDegrees.DP_REPLICATE, ParallelismDegrees.DP_SHARD]) == 1


def test_the_mesh_is_on_the_device_of_the_run(process_group, monkeypatch):
    monkeypatch.setenv("MODALITIES_PIPELINE_DEVICE", "cpu")
    assert get_device_mesh(1, 1).device_type == "cpu"


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
        ({"tensor_parallel_degree": 2}, "tensor_parallel_degree is 2"),
        ({"pipeline_parallel_degree": 2}, "pipeline_parallel_degree is 2"),
        ({"context_parallel_degree": 2}, "context_parallel_degree is 2"),
        ({"enable_loss_parallel": True}, "enable_loss_parallel"),
    ],
)
def test_degrees_that_cannot_be_are_refused(settings, message):
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
