"""Samplers: the global order, its parts per rank, and where a run goes on."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from modalities_pipeline.dataloading.datasets import DummyDataset
from modalities_pipeline.dataloading.samplers import (
    BatchSamplerConfig,
    ResumableDistributedSampler,
    ResumableDistributedSamplerConfig,
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


@pytest.mark.parametrize("num_replicas", [1, 2, 4])
def test_a_resumed_run_sees_what_is_left_in_the_same_order_with_any_number_of_ranks(num_replicas):
    """See B031 and B036."""
    whole = _global_order(_samplers(24, 2, shuffle=True, seed=3))
    assert sorted(whole) == list(range(24))
    resumed = _samplers(24, num_replicas, shuffle=True, seed=3, skip_num_global_samples=8)
    assert _global_order(resumed) == whole[8:]


def test_epochs_and_seeds_change_the_order():
    orders = {
        tuple(_global_order(_samplers(16, 1, shuffle=True, seed=s, epoch=e))) for s, e in ((0, 0), (0, 1), (5, 0))
    }
    assert len(orders) == 3


def test_ranks_of_the_distributed_sampler_share_the_samples():
    dataset = DummyDataset(10, [])
    parts = [list(get_distributed_sampler(dataset, rank, 2, shuffle=True, seed=1)) for rank in range(2)]
    assert sorted(parts[0] + parts[1]) == list(range(10))


def test_batches_of_the_sequential_sampler_are_whole():
    batches = get_batch_sampler(get_sequential_sampler(range(7)), batch_size=3)
    assert list(batches) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 2}, r"rank \(2\) must be smaller than num_replicas \(2\)"),
        ({"num_replicas": 0}, "num_replicas"),
        ({"drop_last": False}, "drop_last"),
        ({"skip_num_global_samples": -1}, "skip_num_global_samples"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes, message):
    fields = {"dataset": DummyDataset(4, []), "rank": 0, "num_replicas": 2, **changes}
    with pytest.raises(ValidationError, match=message):
        ResumableDistributedSamplerConfig(**fields)


def test_a_batch_size_of_zero_is_refused():
    with pytest.raises(ValidationError, match="batch_size"):
        BatchSamplerConfig(sampler=get_sequential_sampler(range(7)), batch_size=0)
