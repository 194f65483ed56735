"""The components of this folder, as rows of the table of components. Imports nothing but the row."""

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import MFU_CALCULATOR, NUMBER

_CONFIGS = "modalities_pipeline.progress.configs"
_CHECKPOINT_NAME = "NumberConversionFromCheckpointPathConfig"


def _conversion(variant_key: str, config: str, description: str) -> ComponentEntity:
    builder = f"modalities_pipeline.progress.number_conversion:get_{variant_key}"
    return ComponentEntity("number_conversion", variant_key, builder, f"{_CONFIGS}:{config}", NUMBER, description)


COMPONENTS: list[ComponentEntity] = [
    _conversion(
        "local_num_batches_from_num_samples",
        "LocalNumBatchesFromNumSamplesConfig",
        "micro batches of one rank that so many samples fill",
    ),
    _conversion(
        "local_num_batches_from_num_tokens",
        "LocalNumBatchesFromNumTokensConfig",
        "micro batches of one rank that so many tokens fill",
    ),
    _conversion("num_samples_from_num_tokens", "NumSamplesFromNumTokensConfig", "samples that so many tokens fill"),
    _conversion(
        "num_steps_from_num_samples", "NumStepsFromNumSamplesConfig", "optimizer steps that so many samples fill"
    ),
    _conversion("num_steps_from_num_tokens", "NumStepsFromNumTokensConfig", "optimizer steps that so many tokens fill"),
    _conversion("num_tokens_from_num_steps", "NumTokensFromNumStepsConfig", "tokens that so many optimizer steps take"),
    _conversion("num_seen_steps_from_checkpoint_path", _CHECKPOINT_NAME, "steps done, from a checkpoint's name"),
    _conversion("last_step_from_checkpoint_path", _CHECKPOINT_NAME, "index of the last step done: steps done - 1"),
    _conversion(
        "global_num_seen_tokens_from_checkpoint_path", _CHECKPOINT_NAME, "tokens seen, from a checkpoint's name"
    ),
    _conversion(
        "global_num_target_tokens_from_checkpoint_path",
        _CHECKPOINT_NAME,
        "tokens that the run aimed at, from a checkpoint's name",
    ),
    _conversion(
        "num_target_steps_from_checkpoint_path",
        _CHECKPOINT_NAME,
        "steps that the run's target tokens take at the batch size so far, from a checkpoint's name",
    ),
    _conversion(
        "num_tokens_from_packed_mem_map_dataset_continuous",
        "NumTokensFromPackedMemMapDatasetContinuousConfig",
        "tokens of a packed dataset that whole optimizer steps take",
    ),
    _conversion(
        "num_steps_from_raw_dataset_index",
        "NumStepsFromRawDatasetIndexConfig",
        "optimizer steps that the documents of a raw index fill, a document being a sample",
    ),
    _conversion(
        "vocab_size_from_packed_dataset",
        "VocabSizeFromPackedDatasetConfig",
        "size of the embedding that the tokenizer of a packed dataset needs",
    ),
    ComponentEntity(
        "mfu_calculator",
        "gpt2",
        "modalities_pipeline.progress.mfu:GPT2MFUCalculator",
        f"{_CONFIGS}:GPT2MFUCalculatorConfig",
        MFU_CALCULATOR,
        "share of the GPUs' peak FLOP/s that a GPT-2 like model uses",
    ),
]
