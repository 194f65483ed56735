"""What the configs of datasets, samplers, data loaders and random batches take."""

import pytest
from pydantic import ValidationError

from modalities_pipeline.config.checking.validation import validate_unbuilt
from modalities_pipeline.config.interfaces import DATASET, DEVICE_MESH, NUMBER, SAMPLER, TOKENIZER
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.dataloading.configs import (
    BatchSamplerConfig,
    DistributedSamplerConfig,
    DummyDatasetConfig,
    LLMDataLoaderConfig,
    PackedMemMapDatasetContinuousConfig,
    PackedMemMapDatasetMegatronConfig,
    RandomDatasetBatchGeneratorConfig,
    ResumableDistributedMultiDimSamplerConfig,
    ResumableDistributedSamplerConfig,
)

DATA = Unbuilt("dataset", "combined", DATASET)
ORDER = Unbuilt("sampler", "sequential_sampler", SAMPLER)
WORDS = Unbuilt("tokenizer", "pretrained_hf_tokenizer", TOKENIZER)
PACKED = {"raw_data_path": "x.pbin", "sample_key": "input_ids"}
LOADER = {"dataloader_tag": "train", "dataset": DATA, "batch_sampler": ORDER, "num_workers": 0, "pin_memory": False}


@pytest.mark.parametrize("reuse_last_target", [True, False])
def test_samples_of_an_old_config_have_block_size_tokens(reuse_last_target, write_pbin, build_component):
    path = write_pbin([list(range(20))])
    fields = {"raw_data_path": str(path), "sample_key": "input_ids", "reuse_last_target": reuse_last_target}
    dataset = build_component("dataset", "packed_mem_map_dataset_continuous", **fields, block_size=5)
    assert len(dataset[0]["input_ids"]) == 5
    assert dataset.sequence_length == 5 - reuse_last_target


@pytest.mark.parametrize("value", [2, 0, "5", 5.0, True, None])
def test_a_block_size_that_cannot_be_is_refused(value):
    with pytest.raises(ValidationError, match="block_size"):
        PackedMemMapDatasetContinuousConfig.model_validate({**PACKED, "block_size": value})


@pytest.mark.parametrize("config_type", [PackedMemMapDatasetContinuousConfig, PackedMemMapDatasetMegatronConfig])
def test_sequence_length_and_block_size_together_are_one_too_many(config_type):
    with pytest.raises(ValidationError, match="block_size"):
        config_type.model_validate({**PACKED, "sequence_length": 4, "block_size": 5})
    with pytest.raises(ValidationError, match="greater than 1"):
        config_type.model_validate({**PACKED, "sequence_length": 1})


@pytest.mark.parametrize("config_type", [DistributedSamplerConfig, ResumableDistributedSamplerConfig])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 2}, r"rank\n.*has to be smaller than num_replicas \(2\)"),
        ({"num_replicas": 0}, "num_replicas"),
        ({"drop_last": False}, "drop_last"),
        ({"seed": None}, r"seed\n.*null leaves the order of the samples to chance"),
        ({"dataset": WORDS}, "has to be a Dataset, but tokenizer/pretrained_hf_tokenizer is a TokenizerWrapper"),
    ],
)
def test_samplers_that_cannot_work_are_refused(config_type, change, message):
    """B078"""
    fields = {"dataset": DATA, "rank": 1, "num_replicas": 2, "shuffle": True, **change}
    with pytest.raises(ValidationError, match=message):
        config_type.model_validate(fields)


def test_what_is_not_known_before_building_stays_in_the_config():
    rank = Unbuilt("number_conversion", "parallel_degree", NUMBER)
    fields = {"dataset": DATA, "rank": rank, "num_replicas": 2, "shuffle": False}
    config, faults = validate_unbuilt(DistributedSamplerConfig, fields)
    assert (config.rank, faults) == (rank, [])
    fields = {"dims": {"batch": 2}, "data_type": "int64", "min_val": rank, "max_val": 1}
    config, faults = validate_unbuilt(RandomDatasetBatchGeneratorConfig, fields)
    assert (config.min_val, faults) == (rank, [])
    config, faults = validate_unbuilt(PackedMemMapDatasetContinuousConfig, {**PACKED, "block_size": rank})
    assert (config.sequence_length, faults) == (rank, [])


def test_null_for_shuffle_and_seed_stands_for_no_shuffle():
    fields = {"dataset": DATA, "rank": 0, "num_replicas": 2, "shuffle": None, "seed": None}
    config = ResumableDistributedSamplerConfig.model_validate(fields)
    assert (config.shuffle, config.seed) == (False, 0)
    assert DistributedSamplerConfig.model_validate({**fields, "shuffle": False}).seed == 0


@pytest.mark.parametrize("key", ["dp_shard", ["dp_replicate", "dp_shard"]])
def test_data_is_split_over_one_or_several_dimensions_of_a_mesh(key):
    fields = {"dataset": DATA, "device_mesh": Unbuilt("device_mesh", "default", DEVICE_MESH)}
    assert ResumableDistributedMultiDimSamplerConfig.model_validate({**fields, "data_parallel_key": key})
    for wrong in ("dp", [], ["dp_shard", "dp"]):
        with pytest.raises(ValidationError, match="data_parallel_key"):
            ResumableDistributedMultiDimSamplerConfig.model_validate({**fields, "data_parallel_key": wrong})


@pytest.mark.parametrize("size", [0, -1, 2.0, "2", True])
def test_a_batch_has_at_least_one_sample(size):
    """B078"""
    with pytest.raises(ValidationError, match="batch_size"):
        BatchSamplerConfig.model_validate({"sampler": ORDER, "batch_size": size})


@pytest.mark.parametrize("change", [{"num_workers": -1}, {"num_workers": "2"}, {"collate_fn": DATA}, {"pin_memory": 2}])
def test_a_data_loader_that_cannot_work_is_refused(change):
    assert LLMDataLoaderConfig.model_validate(LOADER).collate_fn is None
    with pytest.raises(ValidationError, match=next(iter(change))):
        LLMDataLoaderConfig.model_validate({**LOADER, **change})


def test_nested_entries_of_dummy_samples_are_checked():
    """B077"""
    entry = {"sample_key": "a", "sample_shape": [2, 3], "sample_type": "float"}
    fields = {"num_samples": "4", "sample_definition": [entry]}
    config = DummyDatasetConfig.model_validate(fields)
    assert (config.num_samples, config.sample_definition[0].sample_shape) == (4, (2, 3))
    for wrong in ({"sample_shpae": [1]}, {"sample_type": "double"}):
        with pytest.raises(ValidationError, match=next(iter(wrong))):
            DummyDatasetConfig.model_validate({**fields, "sample_definition": [{**entry, **wrong}]})


def test_random_batches_need_dimensions_and_a_range():
    fields = {"dims": {"batch": 2}, "data_type": "int64", "min_val": 0, "max_val": 5}
    assert RandomDatasetBatchGeneratorConfig.model_validate(fields).dims == {"batch": 2}
    wrong = {"max_val": 0}, {"dims": {}}, {"dims": {"batch": 0}}, {"data_type": "int32"}
    for change, message in zip(wrong, ("min_val", "dims", "dims", "data_type"), strict=True):
        with pytest.raises(ValidationError, match=message):
            RandomDatasetBatchGeneratorConfig.model_validate({**fields, **change})
