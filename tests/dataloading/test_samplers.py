"""Samplers: the global order, its parts per rank, and where a run goes on."""

import json
import tracemalloc
from itertools import islice
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from torch.utils.data import DistributedSampler

from modalities_pipeline.dataloading.configs import BatchSamplerConfig, ResumableDistributedSamplerConfig
from modalities_pipeline.dataloading.datasets import DummyDataset
from modalities_pipeline.dataloading.samplers import (
    ResumableDistributedSampler,
    get_batch_sampler,
    get_distributed_sampler,
    get_sequential_sampler,
)
from modalities_pipeline.exceptions import ConfigError

CASES = json.loads((Path(__file__).parent / "vectors" / "sampler_resumable.json").read_text("utf-8"))


def _samplers(num_samples: int, num_replicas: int, **settings) -> list[ResumableDistributedSampler]:
    return [
        ResumableDistributedSampler(range(num_samples), rank, num_replicas, **settings) for rank in range(num_replicas)
    ]


def _global_order(samplers: list[ResumableDistributedSampler]) -> list[int]:
    return [index for indices in zip(*samplers, strict=True) for index in indices]


@pytest.mark.parametrize("case", CASES)
def test_orders_match_modalities(case):
    settings = {key: case[key] for key in ("drop_last", "skip_num_global_samples", "shuffle", "seed", "epoch")}
    if "error" in case:
        with pytest.raises(ConfigError, match=r"skip_num_global_samples is 11, but the dataset has only 10 samples"):
            _samplers(case["N"], case["num_replicas"], **settings)
        return
    samplers = _samplers(case["N"], case["num_replicas"], **settings)
    assert [list(sampler) for sampler in samplers] == case["per_rank"]
    assert [len(sampler) for sampler in samplers] == [case["len"]] * case["num_replicas"]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("num_samples", "num_replicas"), [(10, 3), (12, 4), (3, 5), (1, 1), (70_001, 2)])
def test_the_distributed_sampler_is_that_of_torch(num_samples, num_replicas, shuffle, drop_last):
    dataset = range(num_samples)
    for rank in range(num_replicas):
        theirs = DistributedSampler(dataset, num_replicas, rank, shuffle=shuffle, seed=5, drop_last=drop_last)
        ours = get_distributed_sampler(dataset, rank, num_replicas, shuffle, seed=5, drop_last=drop_last)
        assert list(ours) == list(theirs)
        assert len(ours) == len(theirs)


@pytest.mark.parametrize("num_replicas", [1, 2, 4])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_resumed_run_sees_what_is_left_in_the_same_order_with_any_number_of_ranks(num_replicas, shuffle):
    """See B031 and B036."""
    whole = _global_order(_samplers(24, 2, shuffle=shuffle, seed=3))
    assert sorted(whole) == list(range(24))
    resumed = _samplers(24, num_replicas, shuffle=shuffle, seed=3, skip_num_global_samples=8)
    assert _global_order(resumed) == whole[8:]


def test_steps_after_a_resume_have_the_samples_of_the_uninterrupted_run():
    """B031: 10 steps of 2 ranks x 3 samples, stopped after step 4."""

    def steps(skip: int) -> list[list[list[int]]]:
        samplers = _samplers(60, 2, shuffle=True, seed=1, skip_num_global_samples=skip)
        return [list(step) for step in zip(*(get_batch_sampler(sampler, 3) for sampler in samplers), strict=True)]

    uninterrupted = steps(0)
    assert len(uninterrupted) == 10
    assert steps(4 * 2 * 3) == uninterrupted[4:]


def test_the_position_is_counted_in_samples_so_the_batch_size_may_change():
    """B037: 8 steps of batch 2, then batches of 4."""
    (sampler,) = _samplers(32, 1, skip_num_global_samples=8 * 2)
    assert next(iter(get_batch_sampler(sampler, 4))) == [16, 17, 18, 19]


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_resume_leaves_samples_out_of_its_own_epoch_only(shuffle):
    """B033: 10 samples, resumed at 6, two more epochs."""
    whole = _global_order(_samplers(10, 1, shuffle=shuffle, num_epochs=3))
    resumed = _global_order(_samplers(10, 1, shuffle=shuffle, num_epochs=3, skip_num_global_samples=6))
    assert resumed == whole[6:]
    assert sorted(resumed[4:14]) == sorted(resumed[14:]) == list(range(10))


def test_epochs_have_orders_of_their_own_and_a_resume_in_a_later_one_goes_on_there():
    """B035: two and a half epochs, with another number of ranks after the resume in the second epoch."""
    whole = _global_order(_samplers(10, 1, shuffle=True, seed=2, num_epochs=3))
    for epoch in range(3):
        alone = _global_order(_samplers(10, 1, shuffle=True, seed=2, epoch=epoch))
        assert whole[10 * epoch : 10 * epoch + 10] == alone
    assert whole[:10] != whole[10:20]
    for num_replicas in (1, 2, 3, 4):
        resumed = _samplers(10, num_replicas, shuffle=True, seed=2, num_epochs=3, skip_num_global_samples=14)
        shared = 16 // num_replicas * num_replicas
        assert _global_order(resumed) == whole[14 : 14 + shared]


def test_sample_numbers_of_many_long_epochs_do_not_overflow():
    """B025: 200 M samples, 20 epochs, and no list of them."""
    num_samples, num_epochs = 200_000_000, 20
    tracemalloc.start()
    samplers = _samplers(num_samples, 3, num_epochs=num_epochs, skip_num_global_samples=num_samples * num_epochs - 9)
    assert _global_order(samplers) == list(range(num_samples - 9, num_samples))
    (first,) = _samplers(num_samples, 1, num_epochs=num_epochs)
    assert len(first) == 4_000_000_000
    assert list(islice(first, 3)) == [0, 1, 2]
    _, peak_in_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_in_bytes < 1_000_000


def test_the_narrow_order_is_the_one_of_64_bits():
    order = torch.randperm(100_000, generator=torch.Generator().manual_seed(7 + 2))
    (sampler,) = _samplers(100_000, 1, shuffle=True, seed=7, epoch=2)
    assert list(sampler) == order.tolist()


def test_no_generator_but_the_samplers_own_is_touched():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    list(_samplers(100, 1, shuffle=True, seed=9)[0])
    assert torch.equal(torch.rand(3), expected)


def test_epochs_and_seeds_change_the_order():
    orders = {
        tuple(_global_order(_samplers(16, 1, shuffle=True, seed=s, epoch=e))) for s, e in ((0, 0), (0, 1), (5, 0))
    }
    assert len(orders) == 3


def test_batches_of_the_sequential_sampler_are_whole(build_component):
    batches = get_batch_sampler(get_sequential_sampler(range(7)), batch_size=3)
    assert list(batches) == [[0, 1, 2], [3, 4, 5]]
    sequential = build_component("sampler", "sequential_sampler", data_source=DummyDataset(10, []))
    default = build_component("batch_sampler", "default", sampler=sequential, batch_size=4)
    assert (list(default), len(default)) == ([[0, 1, 2, 3], [4, 5, 6, 7]], 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 2}, r"rank\n.*has to be smaller than num_replicas \(2\)"),
        ({"num_replicas": 0}, "num_replicas"),
        ({"drop_last": False}, "drop_last"),
        ({"skip_num_global_samples": -1}, "skip_num_global_samples"),
        ({"shuffle": True, "seed": None}, "name a number"),
        ({"num_epochs": 0}, "num_epochs"),
        ({"rank": True}, "rank"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes, message):
    fields = {"dataset": DummyDataset(4, []), "rank": 0, "num_replicas": 2, **changes}
    with pytest.raises(ValidationError, match=message):
        ResumableDistributedSamplerConfig(**fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 2}, r"rank 2 is not below num_replicas \(2\)"),
        ({"rank": -1}, r"rank -1 is not below num_replicas \(2\)"),
        ({"num_replicas": 0}, "num_replicas is 0, but has to be at least 1"),
        ({"skip_num_global_samples": -1}, "skip_num_global_samples is -1, below 0"),
        ({"skip_num_global_samples": 5}, "skip_num_global_samples is 5, but the dataset has only 4 samples"),
        ({"num_epochs": 2, "skip_num_global_samples": 9}, "only 8 samples in 2 epochs"),
    ],
)
def test_a_sampler_that_cannot_work_is_not_built(changes, message):
    with pytest.raises(ConfigError, match=message):
        ResumableDistributedSampler(**{"dataset": range(4), "rank": 0, "num_replicas": 2, **changes})


def test_a_batch_size_of_zero_is_refused():
    with pytest.raises(ValidationError, match="batch_size"):
        BatchSamplerConfig(sampler=get_sequential_sampler(range(7)), batch_size=0)
    with pytest.raises(ConfigError, match="batch_size is 0"):
        get_batch_sampler(get_sequential_sampler(range(7)), 0)
