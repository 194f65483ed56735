"""The data loader: whole batches in the order of the sampler, the same whoever reads them."""

from pathlib import Path

import pytest
import torch

from modalities_pipeline.dataloading.collators import GPT2LLMCollateFn
from modalities_pipeline.dataloading.dataloader import LLMDataLoader
from modalities_pipeline.dataloading.packed_datasets import PackedMemMapDatasetContinuous
from modalities_pipeline.dataloading.samplers import (
    ResumableDistributedSampler,
    get_batch_sampler,
    get_sequential_sampler,
)
from modalities_pipeline.exceptions import ConfigError

VECTORS = Path(__file__).parent / "vectors"
COLLATE = GPT2LLMCollateFn(sample_key="input_ids", target_key="target_ids")


def _loader(num_workers: int = 0) -> LLMDataLoader:
    dataset = PackedMemMapDatasetContinuous(VECTORS / "continuous_2.pbin", 4, "input_ids")
    batch_sampler = get_batch_sampler(get_sequential_sampler(dataset), batch_size=2)
    return LLMDataLoader("train", dataset, batch_sampler, COLLATE, num_workers=num_workers)


def test_the_loader_yields_whole_batches_and_knows_its_tag():
    loader = _loader()
    assert (loader.dataloader_tag, len(loader)) == ("train", 2)
    assert [batch.samples["input_ids"].shape for batch in loader] == [(2, 4)] * 2


def test_worker_processes_yield_the_same_batches():
    pairs = zip(_loader(), _loader(num_workers=2), strict=True)
    assert all(torch.equal(one.targets["target_ids"], two.targets["target_ids"]) for one, two in pairs)


def test_a_loader_may_be_read_again_and_starts_where_its_sampler_does():
    """B031, B033: the samples that a resume leaves out are those of its sampler, and no others."""
    dataset = PackedMemMapDatasetContinuous(VECTORS / "continuous_2.pbin", 2, "input_ids")
    sampler = ResumableDistributedSampler(dataset, 0, 1, skip_num_global_samples=6, num_epochs=2)
    loader = LLMDataLoader("train", dataset, get_batch_sampler(sampler, 1), COLLATE)
    firsts = [[int(batch.samples["input_ids"][0, 0]) for batch in loader] for _ in range(2)]
    assert firsts == [[12, 14, 16, *range(0, 18, 2)]] * 2


def test_a_negative_number_of_workers_is_refused(build_component):
    loader = _loader()
    fields = {"dataloader_tag": "t", "dataset": loader.dataset, "batch_sampler": loader.batch_sampler}
    with pytest.raises(ConfigError, match="num_workers"):
        build_component("data_loader", "default", **fields, pin_memory=False, num_workers=-1)
    assert len(build_component("data_loader", "default", **fields, pin_memory=False, num_workers=0)) == 2
