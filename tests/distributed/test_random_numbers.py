"""What dropout draws is decided by the run's seed, its steps, and the samples of a rank."""

from types import SimpleNamespace

import pytest
import torch

from modalities_pipeline.distributed import random_numbers
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


def test_ranks_draw_by_their_samples(monkeypatch):
    """Those that share the work on a sample have to drop the same of it."""
    monkeypatch.setattr(random_numbers, "get_data_parallel_mesh", lambda mesh: mesh)
    meshes = [SimpleNamespace(shape=(2, 2), get_coordinate=lambda at=at: at) for at in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert len({tuple(_numbers(mesh=mesh)) for mesh in meshes}) == 4
    assert _numbers(mesh=meshes[2]) == _numbers(mesh=SimpleNamespace(shape=(4,), get_coordinate=lambda: (2,)))
