"""Collators: which tensors a batch has, and which samples make none."""

import numpy as np
import pytest
import torch

from modalities_pipeline.dataloading.collators import CoCaCollatorFn, GPT2LLMCollateFn
from modalities_pipeline.exceptions import BatchStateError, ConfigError

COLLATE = GPT2LLMCollateFn(sample_key="input_ids", target_key="target_ids")


def test_targets_are_the_tokens_after_the_inputs(build_component):
    collate = build_component("collate_fn", "gpt_2_llm_collator", sample_key="s", target_key="t")
    batch = collate([{"s": np.array([1, 2, 3], np.int32)}, {"s": np.array([4, 5, 6], np.int32)}])
    assert batch.samples["s"].tolist() == [[1, 2], [4, 5]]
    assert batch.targets["t"].tolist() == [[2, 3], [5, 6]]
    assert batch.samples["s"].dtype == batch.targets["t"].dtype == torch.int32
    assert len(batch) == 2


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("uint8", torch.int32),
        ("uint16", torch.int32),
        ("uint32", torch.int64),
        ("int32", torch.int32),
        ("int64", torch.int64),
    ],
)
def test_tokens_come_in_a_type_that_embeddings_take(dtype, expected):
    batch = COLLATE([{"input_ids": np.array([1, 2, 3], dtype=dtype)}])
    assert batch.samples["input_ids"].dtype == expected
    torch.nn.Embedding(4, 2)(batch.samples["input_ids"])


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([{"input_ids": np.arange(3)}, {"input_ids": np.arange(4)}], ValueError, r"same shape.*\(3,\), \(4,\)"),
        ([{"input_ids": np.arange(3)}, {"text": np.arange(3)}], BatchStateError, r"no 'input_ids' \(it has: text\)"),
        ([], ValueError, "at least one sample"),
    ],
)
def test_samples_that_make_no_batch_are_refused(samples, error, message):
    with pytest.raises(error, match=message):
        COLLATE(samples)


def test_images_are_stacked_and_their_captions_shifted(build_component):
    collate = build_component(
        "collate_fn",
        "coca_collator",
        sample_keys=["images", "input_ids"],
        target_keys=["labels"],
        text_sample_key="input_ids",
        text_target_key="target_ids",
    )
    samples = [
        {"images": np.full((3, 2, 2), i, np.float32), "input_ids": np.array([i, 7, 8], np.uint8), "labels": [i]}
        for i in range(2)
    ]
    batch = collate(samples)
    assert batch.samples["images"].shape == (2, 3, 2, 2)
    assert batch.samples["images"].dtype == torch.float32
    assert batch.samples["input_ids"].tolist() == [[0, 7], [1, 7]]
    assert batch.samples["input_ids"].dtype == torch.int32
    assert batch.targets["target_ids"].tolist() == [[7, 8], [7, 8]]
    assert batch.targets["labels"].tolist() == [[0], [1]]
    batch.samples["input_ids"][:] = 0
    assert batch.targets["target_ids"].tolist() == [[7, 8], [7, 8]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text_sample_key": "text"}, "text_sample_key 'text' has to be one of sample_keys"),
        ({"text_target_key": "labels"}, "text_target_key 'labels' must not be one of target_keys"),
    ],
)
def test_captions_must_be_among_the_samples_and_their_targets_must_not(changes, message, build_component):
    fields = {
        "sample_keys": ["images", "input_ids"],
        "target_keys": ["labels"],
        "text_sample_key": "input_ids",
        "text_target_key": "target_ids",
        **changes,
    }
    for build in (lambda: CoCaCollatorFn(**fields), lambda: build_component("collate_fn", "coca_collator", **fields)):
        with pytest.raises(ConfigError, match=message):
            build()
