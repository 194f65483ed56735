"""Datasets: which tokens make which sample."""

import json
from pathlib import Path

import numpy as np
import pytest

from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.dataloading.datasets import (
    CombinedDataset,
    DummyDataset,
    DummySampleConfig,
    MemMapDataset,
    PackedMemMapDatasetContinuous,
)
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer

VECTORS = Path(__file__).parent / "vectors"
CASES = json.loads((VECTORS / "continuous.json").read_text("utf-8"))


def _dataset(case: dict) -> PackedMemMapDatasetContinuous:
    path = VECTORS / Path(case["file"]).name
    return PackedMemMapDatasetContinuous(path, case["sequence_length"], "input_ids", case["reuse_last_target"])


@pytest.fixture
def dataset() -> PackedMemMapDatasetContinuous:
    return PackedMemMapDatasetContinuous(VECTORS / "continuous_2.pbin", 4, "input_ids")


@pytest.mark.parametrize("case", CASES)
def test_blocks_match_modalities(case):
    if "error" in case:
        with pytest.raises(DatasetFormatError, match="one sample needs"):
            _dataset(case)
        return
    dataset = _dataset(case)
    with PackedFile(VECTORS / Path(case["file"]).name) as file:
        tokens, size = file.tokens, file.token_size_in_bytes
        assert len(dataset) == case["len"]
        for sample, (offset, length) in zip(dataset, case["index_bytes"], strict=True):
            expected = tokens[offset // size : (offset + length) // size]
            assert sample["input_ids"].dtype == np.dtype(case["dtype"])
            assert sample["input_ids"].tolist() == expected.tolist()


def test_a_batch_read_at_once_equals_its_samples_one_by_one(dataset):
    indices = [3, 0, 2]
    rows = dataset.__getitems__(indices)
    for row, index in zip(rows, indices, strict=True):
        assert row["input_ids"].dtype == dataset[index]["input_ids"].dtype
        assert row["input_ids"].tolist() == dataset[index]["input_ids"].tolist()


def test_slices_give_lists_and_negative_indices_count_from_the_end(dataset):
    assert [row.tolist() for row in dataset[1:3]["input_ids"]] == [dataset[i]["input_ids"].tolist() for i in (1, 2)]
    assert dataset[2:2] == {"input_ids": []}
    assert dataset[-1]["input_ids"].tolist() == dataset[len(dataset) - 1]["input_ids"].tolist()
    with pytest.raises(ValueError, match="step 2"):
        dataset[::2]
    with pytest.raises(IndexError):
        dataset[len(dataset)]


def test_a_sample_may_be_changed_without_changing_the_file(dataset):
    dataset[0]["input_ids"][:] = 0
    assert dataset[0]["input_ids"].any()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DatasetNotFoundError, match=r"none\.pbin"):
        PackedMemMapDatasetContinuous(tmp_path / "none.pbin", 4, "input_ids")


def test_combined_datasets_are_one_after_the_other(dataset):
    combined = CombinedDataset([dataset, PackedMemMapDatasetContinuous(VECTORS / "continuous_1.pbin", 4, "input_ids")])
    assert len(combined) == 2 * len(dataset)
    assert combined[len(dataset)]["input_ids"].dtype == np.uint8
    assert combined[-1]["input_ids"].tolist() == combined[len(combined) - 1]["input_ids"].tolist()
    for index in (len(combined), -len(combined) - 1):
        with pytest.raises(IndexError, match="There is no sample"):
            combined[index]


def test_mem_map_dataset_tokenizes_documents_as_they_are_asked_for(tmp_path, tiny_wordlevel_dir):
    path = tmp_path / "documents.jsonl"
    path.write_text('{"body": {"text": "Hello"}}\n{"body": {"text": "world Hello"}}\n')
    build_raw_index(path)
    tokenizer = PreTrainedHFTokenizer(str(tiny_wordlevel_dir))
    dataset = MemMapDataset(path, tokenizer, "input_ids", jq_pattern=".body.text")
    assert [sample["input_ids"].tolist() for sample in (dataset[0], dataset[1])] == [
        tokenizer.tokenize("Hello"),
        tokenizer.tokenize("world Hello"),
    ]
    assert len(dataset) == 2


def test_dummy_samples_have_the_asked_shapes_and_come_again():
    definition = [
        DummySampleConfig(sample_key="a", sample_shape=(2, 3), sample_type="float"),
        DummySampleConfig(sample_key="b", sample_shape=(4,), sample_type="int"),
    ]
    dataset = DummyDataset(3, definition)
    samples = list(dataset)
    assert [(sample["a"].shape, sample["b"].dtype) for sample in samples] == [((2, 3), np.int64)] * 3
    assert np.array_equal(samples[1]["b"], dataset[1]["b"])
    assert not np.array_equal(samples[1]["b"], samples[2]["b"])
