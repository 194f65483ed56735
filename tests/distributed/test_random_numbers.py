"""What dropout draws is decided by the run's seed, its steps, and the samples of a rank."""

from types import SimpleNamespace

import pytest
import torch

from modalities_pipeline.distributed.random_numbers import seed_random_numbers


@pytest.fixture(autouse=True)
def _generator_put_back():
    with torch.random.fork_rng():
        yield


def _numbers(seed: int = 0, num_seen_steps: int = 0, mesh=None) -> list[float]:
    seed_random_numbers(seed, num_seen_steps, mesh)
    return torch.rand(3).tolist()


def test_equal_runs_draw_the_same_and_others_do_not():
    """W32: the masks of dropout were others at each start."""
    assert _numbers() == _numbers()
    assert len({tuple(_numbers(*given)) for given in ((0, 0), (1, 0), (0, 1))}) == 3


def _mesh(**places: tuple[int, int]) -> SimpleNamespace:
    """A mesh by the (rank, size) along each of its dimensions."""
    names, sizes = tuple(places), [size for _, size in places.values()]
    return SimpleNamespace(
        mesh_dim_names=names, size=lambda dimension: sizes[dimension], get_local_rank=lambda name: places[name][0]
    )


def test_ranks_draw_by_their_samples():
    """Those that share the work on a sample have to drop the same of it."""
    meshes = [_mesh(dp_replicate=(group, 2), dp_shard=(rank, 2)) for group in (0, 1) for rank in (0, 1)]
    assert len({tuple(_numbers(mesh=mesh)) for mesh in meshes}) == 4
    assert _numbers(mesh=meshes[2]) == _numbers(mesh=_mesh(dp_shard=(2, 4)))
    assert _numbers(mesh=_mesh(dp_shard=(1, 2), tp=(0, 2))) == _numbers(mesh=_mesh(dp_shard=(1, 2), tp=(1, 2)))
