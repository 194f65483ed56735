"""The components of this folder, as rows of the table of components. Imports nothing but the row."""

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import COLLATE_FN, DATA_LOADER, DATASET, DATASET_BATCH_GENERATOR, SAMPLER

_FOLDER = "modalities_pipeline.dataloading"
_CONFIGS = f"{_FOLDER}.configs"
_COLLATOR_CONFIGS = f"{_FOLDER}.collator_configs"


def _dataset(variant_key: str, builder: str, config: str, description: str) -> ComponentEntity:
    return ComponentEntity("dataset", variant_key, f"{_FOLDER}.{builder}", f"{_CONFIGS}:{config}", DATASET, description)


def _sampler(variant_key: str, builder: str, config: str, description: str) -> ComponentEntity:
    return ComponentEntity(
        "sampler", variant_key, f"{_FOLDER}.samplers:{builder}", f"{_CONFIGS}:{config}", SAMPLER, description
    )


def _collator(variant_key: str, builder: str, config: str, description: str) -> ComponentEntity:
    return ComponentEntity(
        "collate_fn", variant_key, f"{_FOLDER}.{builder}", f"{_COLLATOR_CONFIGS}:{config}", COLLATE_FN, description
    )


COMPONENTS: list[ComponentEntity] = [
    _dataset(
        "packed_mem_map_dataset_continuous",
        "packed_datasets:PackedMemMapDatasetContinuous",
        "PackedMemMapDatasetContinuousConfig",
        "a packed file cut into samples of equal length, regardless of documents",
    ),
    _dataset(
        "packed_mem_map_dataset_megatron",
        "packed_datasets:PackedMemMapDatasetMegatron",
        "PackedMemMapDatasetMegatronConfig",
        "samples of equal length of a packed file that all begin with a document",
    ),
    _dataset(
        "mem_map_dataset",
        "datasets:MemMapDataset",
        "MemMapDatasetConfig",
        "the documents of an indexed JSON-lines file, tokenized when they are asked for",
    ),
    _dataset("dummy_dataset", "datasets:DummyDataset", "DummyDatasetConfig", "random samples of given shapes"),
    _dataset("combined", "datasets:CombinedDataset", "CombinedDatasetConfig", "datasets one after the other"),
    _sampler(
        "distributed_sampler",
        "get_distributed_sampler",
        "DistributedSamplerConfig",
        "a rank's share of a dataset, from its start on",
    ),
    _sampler(
        "resumable_distributed_sampler",
        "ResumableDistributedSampler",
        "ResumableDistributedSamplerConfig",
        "a rank's share of a dataset, from a given sample on",
    ),
    _sampler(
        "resumable_distributed_multi_dim_sampler",
        "get_resumable_distributed_multi_dim_sampler",
        "ResumableDistributedMultiDimSamplerConfig",
        "a rank's share of a dataset, from a given sample on, by its place in a device mesh",
    ),
    _sampler(
        "sequential_sampler",
        "get_sequential_sampler",
        "SequentialSamplerConfig",
        "all samples in order, on every rank",
    ),
    ComponentEntity(
        "batch_sampler",
        "default",
        f"{_FOLDER}.samplers:get_batch_sampler",
        f"{_CONFIGS}:BatchSamplerConfig",
        SAMPLER,
        "micro batches of the samples that a sampler gives",
    ),
    _collator(
        "gpt_2_llm_collator",
        "collators:GPT2LLMCollateFn",
        "GPT2LLMCollateFnConfig",
        "next-token prediction: inputs are all tokens but the last, targets all but the first",
    ),
    _collator(
        "coca_collator",
        "collators:CoCaCollatorFn",
        "CoCaCollateFnConfig",
        "images with captions, the text shifted for next-token prediction",
    ),
    _collator(
        "mask_loss_collator_wrapper",
        "loss_masking:LossMaskingCollateFnWrapper",
        "LossMaskingCollateFnWrapperConfig",
        "a collator around another one that leaves all but the answers of a conversation out of the loss",
    ),
    ComponentEntity(
        "data_loader",
        "default",
        f"{_FOLDER}.dataloader:LLMDataLoader",
        f"{_CONFIGS}:LLMDataLoaderConfig",
        DATA_LOADER,
        "batches of a dataset in the order of a batch sampler",
    ),
    ComponentEntity(
        "dataset_batch_generator",
        "random",
        f"{_FOLDER}.batch_generator:RandomDatasetBatchGenerator",
        f"{_CONFIGS}:RandomDatasetBatchGeneratorConfig",
        DATASET_BATCH_GENERATOR,
        "random batches without a dataset, for measuring",
    ),
]
