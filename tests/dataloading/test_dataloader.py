"""The data loader with the collator: inputs, shifted targets, the same batches whoever reads them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from modalities_pipeline.dataloading.collators import GPT2LLMCollateFn
from modalities_pipeline.dataloading.dataloader import LLMDataLoader
from modalities_pipeline.dataloading.datasets import PackedMemMapDatasetContinuous
from modalities_pipeline.dataloading.samplers import get_batch_sampler, get_sequential_sampler

VECTORS = Path(__file__).parent / "vectors"
COLLATE = GPT2LLMCollateFn(sample_key="input_ids", target_key="target_ids")


def _loader(num_workers: int = 0) -> LLMDataLoader:
    dataset = PackedMemMapDatasetContinuous(VECTORS / "continuous_2.pbin", 4, "input_ids")
    batch_sampler = get_batch_sampler(get_sequential_sampler(dataset), batch_size=2)
    return LLMDataLoader("train", dataset, batch_sampler, COLLATE, num_workers=num_workers)


def test_targets_are_the_tokens_after_the_inputs():
    batch = COLLATE([{"input_ids": np.array([1, 2, 3, 4])}, {"input_ids": np.array([5, 6, 7, 8])}])
    assert batch.samples["input_ids"].tolist() == [[1, 2, 3], [5, 6, 7]]
    assert batch.targets["target_ids"].tolist() == [[2, 3, 4], [6, 7, 8]]
    assert len(batch) == 2


@pytest.mark.parametrize(
    ("dtype", "expected"), [("uint8", torch.int32), ("int32", torch.int32), ("int64", torch.int64)]
)
def test_tokens_come_in_a_type_that_embeddings_take(dtype, expected):
    batch = COLLATE([{"input_ids": np.array([1, 2, 3], dtype=dtype)}])
    assert batch.samples["input_ids"].dtype == expected
    torch.nn.Embedding(4, 2)(batch.samples["input_ids"])


def test_samples_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="same shape"):
        COLLATE([{"input_ids": np.arange(3)}, {"input_ids": np.arange(4)}])


def test_the_loader_yields_whole_batches_and_knows_its_tag():
    loader = _loader()
    assert (loader.dataloader_tag, len(loader)) == ("train", 2)
    assert [batch.samples["input_ids"].shape for batch in loader] == [(2, 4)] * 2


def test_worker_processes_yield_the_same_batches():
    pairs = zip(_loader(), _loader(num_workers=2), strict=True)
    assert all(torch.equal(one.targets["target_ids"], two.targets["target_ids"]) for one, two in pairs)
