"""Datasets that are not packed files: documents tokenized on demand, random samples, several datasets as one."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.dataloading.configs import DummySampleConfig
from modalities_pipeline.dataloading.datasets import CombinedDataset, DummyDataset, MemMapDataset
from modalities_pipeline.dataloading.packed_datasets import PackedMemMapDatasetContinuous
from modalities_pipeline.exceptions import ConfigError, DatasetFormatError
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer

VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture
def combined() -> CombinedDataset:
    path = VECTORS / "continuous_2.pbin"
    return CombinedDataset([PackedMemMapDatasetContinuous(path, length, "input_ids") for length in (4, 9)])


def test_combined_datasets_are_one_after_the_other_as_in_modalities(combined):
    assert len(combined) == 6
    assert [combined[index]["input_ids"][0] for index in range(6)] == [0, 4, 8, 12, 0, 9]
    with pytest.raises(IndexError, match="There is no sample 6 among 6"):
        combined[6]


def test_negative_indices_count_over_all_datasets(combined):
    """B045, and unlike Modalities, which takes the last item of the first dataset."""
    assert combined[-1]["input_ids"].tolist() == combined[5]["input_ids"].tolist()
    assert combined[-6]["input_ids"].tolist() == combined[0]["input_ids"].tolist()
    with pytest.raises(IndexError, match="There is no sample -7 among 6"):
        combined[-7]


def test_a_mixture_of_unequal_sizes_has_each_sample_once():
    """B045."""
    combined = CombinedDataset([range(3), range(0), range(100, 10_100)])
    assert len(combined) == 10_003
    assert list(combined) == [0, 1, 2, *range(100, 10_100)]
    assert combined.__getitems__([10_002, 0, 3, -1, 2]) == [10_099, 0, 100, 10_099, 2]


def test_a_batch_of_combined_datasets_asks_each_dataset_once(combined):
    indices = [5, 0, 4, 3, -2]
    rows = combined.__getitems__(indices)
    assert [row["input_ids"].tolist() for row in rows] == [combined[index]["input_ids"].tolist() for index in indices]


def test_an_empty_list_of_datasets_is_refused(build_component):
    with pytest.raises(ConfigError, match="list of datasets is empty"):
        CombinedDataset([])
    with pytest.raises(ConfigError, match="datasets: needs at least 1"):
        build_component("dataset", "combined", datasets=[])


def test_mem_map_dataset_tokenizes_documents_as_they_are_asked_for(tmp_path, tiny_wordlevel_dir):
    path = tmp_path / "documents.jsonl"
    path.write_text('{"body": {"text": "hello"}}\n\n{"body": {"text": "world hello"}}\n{"body": {}}\n')
    build_raw_index(path)
    dataset = MemMapDataset(path, PreTrainedHFTokenizer(str(tiny_wordlevel_dir)), "input_ids", jq_pattern=".body.text")
    assert len(dataset) == 3
    assert [dataset[index]["input_ids"].tolist() for index in (0, 1, -2)] == [[5], [6, 5], [6, 5]]
    assert dataset[0]["input_ids"].dtype == np.int64
    with pytest.raises(IndexError):
        dataset[3]
    with pytest.raises(DatasetFormatError, match=r"documents\.jsonl, line 4: '\.body\.text' finds nothing"):
        dataset[2]
    assert pickle.loads(pickle.dumps(dataset))[1]["input_ids"].tolist() == [6, 5]


def test_dummy_samples_have_the_asked_shapes_and_come_again(build_component):
    definition = [
        {"sample_key": "a", "sample_shape": [2, 3], "sample_type": "float"},
        {"sample_key": "b", "sample_shape": [4], "sample_type": "int"},
    ]
    dataset = build_component("dataset", "dummy_dataset", num_samples=3, sample_definition=definition)
    samples = list(dataset)
    assert [(sample["a"].shape, sample["b"].dtype) for sample in samples] == [((2, 3), np.int64)] * 3
    assert np.array_equal(samples[1]["b"], dataset[1]["b"])
    assert np.array_equal(samples[2]["b"], dataset[-1]["b"])
    assert not np.array_equal(samples[1]["b"], samples[2]["b"])
    assert all(sample["b"].min() >= 0 and sample["b"].max() < 512 for sample in samples)


def test_there_are_no_more_dummy_samples_than_asked_for():
    dataset = DummyDataset(2, [DummySampleConfig(sample_key="a", sample_shape=(1,), sample_type="int")])
    with pytest.raises(IndexError, match="no sample 2 among 2"):
        dataset[2]
