"""Which part of the data a process of a device mesh reads."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from modalities_pipeline.dataloading.data_parallel import rank_in_mesh
from modalities_pipeline.dataloading.datasets import DummyDataset
from modalities_pipeline.exceptions import ConfigError


@contextmanager
def _mesh(rank: int, **sizes: int) -> Iterator[DeviceMesh]:
    """The mesh as the process `rank` of a run that does not exist sees it."""
    world_size = 1
    for size in sizes.values():
        world_size *= size
    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    try:
        yield init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    finally:
        dist.destroy_process_group()


def _places(key: str | list[str], **sizes: int) -> list[tuple[int, int]]:
    places, rank, world_size = [], 0, 1
    while rank < world_size:
        with _mesh(rank, **sizes) as mesh:
            places.append(rank_in_mesh(mesh, key))
            world_size = mesh.size()
        rank += 1
    return places


@pytest.mark.parametrize("key", ["dp_shard", ["dp_shard"], ["dp_replicate", "dp_shard"]])
def test_one_dimension_splits_the_data_and_the_others_agree(key):
    assert _places(key, pp=2, dp_shard=2, tp=2) == [(0, 2), (0, 2), (1, 2), (1, 2)] * 2


@pytest.mark.parametrize("key", [["dp_replicate", "dp_shard"], ["dp_shard", "dp_replicate"]])
def test_replicas_of_shards_do_not_repeat_the_data(key):
    """Unlike Modalities, where all replicas train on the same samples."""
    assert _places(key, dp_replicate=2, dp_shard=2, tp=2) == [(place, 4) for place in (0, 0, 1, 1, 2, 2, 3, 3)]


def test_replicas_that_would_repeat_the_data_are_refused():
    words = r"dp_replicate of the device mesh is not named, so its 2 ranks .* \[dp_replicate, dp_shard\]"
    with _mesh(0, dp_replicate=2, dp_shard=2) as mesh, pytest.raises(ConfigError, match=words):
        rank_in_mesh(mesh, "dp_shard")


def test_a_dimension_of_one_rank_need_not_be_named():
    assert _places("dp_shard", dp_replicate=1, dp_shard=3) == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("dp_replicate", "no dimension dp_replicate"),
        ("tp", "data is split over dp_replicate and dp_shard only, not over tp"),
        (["dp_shard", "cp"], "not over cp"),
        (["dp_shard", "dp_shard"], "twice"),
        ([], "not over nothing"),
    ],
)
def test_keys_that_cannot_split_the_data_are_refused(key, message):
    with _mesh(0, dp_shard=2, tp=2) as mesh, pytest.raises(ConfigError, match=message):
        rank_in_mesh(mesh, key)


@pytest.mark.parametrize("key", [["dp_replicate", "dp_shard"], "dp_shard"])
def test_the_sampler_of_a_mesh_is_built_from_a_config(key, build_component):
    sizes = {"dp_replicate": 2, "dp_shard": 2} if isinstance(key, list) else {"dp_shard": 4}
    parts = []
    for rank in range(4):
        with _mesh(rank, **sizes) as mesh:
            sampler = build_component(
                "sampler",
                "resumable_distributed_multi_dim_sampler",
                dataset=DummyDataset(13, []),
                device_mesh=mesh,
                data_parallel_key=key,
                skip_num_global_samples=4,
            )
            parts.append(list(sampler))
    assert parts == [[4, 8], [5, 9], [6, 10], [7, 11]]
