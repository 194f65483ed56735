"""The table of components: (component_key, variant_key) -> (what builds it, its config class), both "module:Name"."""

_PACKAGE = "modalities_pipeline"


def _entry(module: str, builder: str, config: str, absolute_builder: bool = False) -> tuple[str, str]:
    """Both names in a module of this package; `absolute_builder` is for classes of torch."""
    return builder if absolute_builder else f"{_PACKAGE}.{module}:{builder}", f"{_PACKAGE}.{module}:{config}"


_CLIPPER = _entry("optim.gradient_clipping", "FSDPGradientClipper", "FSDPGradientClipperConfig")
_LOGGING_ONLY_CLIPPER = _entry(
    "optim.gradient_clipping", "FSDPLoggingOnlyGradientClipper", "FSDPLoggingOnlyGradientClipperConfig"
)

_MODELS = {
    ("model", "gpt2"): _entry("models.gpt2", "build_gpt2", "GPT2LLMConfig"),
    ("model", "model_initialized"): _entry(
        "models.initialization", "get_initialized_model", "WeightInitializedModelConfig"
    ),
    ("model", "fsdp2_wrapped"): _entry("distributed.fsdp", "get_fsdp2_wrapped_model", "FSDP2WrappedModelConfig"),
    ("model_initialization", "composed"): _entry(
        "models.initialization", "get_composed_model_initializer", "ComposedModelInitializationConfig"
    ),
    ("model_initialization", "gpt2_llama3_like"): _entry(
        "models.initialization", "GPT2Llama3LikeInitializer", "GPT2Llama3LikeInitializationConfig"
    ),
    ("layer_norm", "rms_norm"): _entry("models.layer_norms", "RMSLayerNorm", "RMSLayerNormConfig"),
    ("layer_norm", "layer_norm"): _entry("models.layer_norms", "torch.nn:LayerNorm", "LayerNormConfig", True),
    ("layer_norm", "pytorch_rms_norm"): _entry(
        "models.layer_norms", "torch.nn:RMSNorm", "PytorchRMSLayerNormConfig", True
    ),
    ("device_mesh", "default"): _entry("distributed.mesh", "get_device_mesh", "DeviceMeshConfig"),
}

_OPTIMISATION = {
    ("loss", "clm_cross_entropy_loss"): _entry("loss_functions", "CLMCrossEntropyLoss", "CLMCrossEntropyLossConfig"),
    ("loss", "nce_loss"): _entry("loss_functions", "NCELoss", "NCELossConfig"),
    ("optimizer", "adam"): _entry("optim.optimizers", "get_adam", "AdamOptimizerConfig"),
    ("optimizer", "adam_w"): _entry("optim.optimizers", "get_adam_w", "AdamWOptimizerConfig"),
    ("scheduler", "dummy_lr"): _entry("optim.schedulers", "DummyLRScheduler", "DummyLRSchedulerConfig"),
    ("scheduler", "step_lr"): _entry("optim.schedulers", "get_step_lr", "StepLRSchedulerConfig"),
    ("scheduler", "constant_lr"): _entry("optim.schedulers", "get_constant_lr", "ConstantLRSchedulerConfig"),
    ("scheduler", "linear_lr"): _entry("optim.schedulers", "get_linear_lr", "LinearLRSchedulerConfig"),
    ("scheduler", "onecycle_lr"): _entry("optim.schedulers", "get_onecycle_lr", "OneCycleLRSchedulerConfig"),
    ("scheduler", "cosine_annealing_lr"): _entry(
        "optim.schedulers", "get_cosine_annealing_lr", "CosineAnnealingLRSchedulerConfig"
    ),
    ("scheduler", "linear_warmup_cosine_annealing_lr"): _entry(
        "optim.schedulers", "get_linear_warmup_cosine_annealing_lr", "LinearWarmupCosineAnnealingLRSchedulerConfig"
    ),
    ("gradient_clipper", "fsdp2"): _CLIPPER,
    ("gradient_clipper", "fsdp1"): _CLIPPER,
    ("gradient_clipper", "fsdp"): _CLIPPER,
    ("gradient_clipper", "fsdp2_logging_only"): _LOGGING_ONLY_CLIPPER,
    ("gradient_clipper", "fsdp1_logging_only"): _LOGGING_ONLY_CLIPPER,
    ("gradient_clipper", "fsdp_logging_only"): _LOGGING_ONLY_CLIPPER,
    ("gradient_clipper", "dummy"): _entry(
        "optim.gradient_clipping", "DummyGradientClipper", "DummyGradientClipperConfig"
    ),
}

_DATA = {
    ("tokenizer", "pretrained_hf_tokenizer"): _entry(
        "tokenization.tokenizers", "PreTrainedHFTokenizer", "PreTrainedHFTokenizerConfig"
    ),
    ("tokenizer", "pretrained_sp_tokenizer"): _entry(
        "tokenization.tokenizers", "PreTrainedSPTokenizer", "PreTrainedSPTokenizerConfig"
    ),
    ("dataset", "packed_mem_map_dataset_continuous"): _entry(
        "dataloading.packed_datasets", "PackedMemMapDatasetContinuous", "PackedMemMapDatasetContinuousConfig"
    ),
    ("dataset", "packed_mem_map_dataset_megatron"): _entry(
        "dataloading.packed_datasets", "PackedMemMapDatasetMegatron", "PackedMemMapDatasetMegatronConfig"
    ),
    ("dataset", "mem_map_dataset"): _entry("dataloading.datasets", "MemMapDataset", "MemMapDatasetConfig"),
    ("dataset", "dummy_dataset"): _entry("dataloading.datasets", "DummyDataset", "DummyDatasetConfig"),
    ("dataset", "combined"): _entry("dataloading.datasets", "CombinedDataset", "CombinedDatasetConfig"),
    ("sampler", "distributed_sampler"): _entry(
        "dataloading.samplers", "get_distributed_sampler", "DistributedSamplerConfig"
    ),
    ("sampler", "resumable_distributed_sampler"): _entry(
        "dataloading.samplers", "ResumableDistributedSampler", "ResumableDistributedSamplerConfig"
    ),
    ("sampler", "resumable_distributed_multi_dim_sampler"): _entry(
        "dataloading.samplers",
        "get_resumable_distributed_multi_dim_sampler",
        "ResumableDistributedMultiDimSamplerConfig",
    ),
    ("sampler", "sequential_sampler"): _entry(
        "dataloading.samplers", "get_sequential_sampler", "SequentialSamplerConfig"
    ),
    ("batch_sampler", "default"): _entry("dataloading.samplers", "get_batch_sampler", "BatchSamplerConfig"),
    ("collate_fn", "gpt_2_llm_collator"): _entry("dataloading.collators", "GPT2LLMCollateFn", "GPT2LLMCollateFnConfig"),
    ("collate_fn", "coca_collator"): _entry("dataloading.collators", "CoCaCollatorFn", "CoCaCollateFnConfig"),
    ("collate_fn", "mask_loss_collator_wrapper"): _entry(
        "dataloading.loss_masking", "LossMaskingCollateFnWrapper", "LossMaskingCollateFnWrapperConfig"
    ),
    ("data_loader", "default"): _entry("dataloading.dataloader", "LLMDataLoader", "LLMDataLoaderConfig"),
    ("dataset_batch_generator", "random"): _entry(
        "dataloading.batch_generator", "RandomDatasetBatchGenerator", "RandomDatasetBatchGeneratorConfig"
    ),
}

_CHECKPOINTING = {
    ("app_state", "raw"): _entry("checkpointing.app_state", "AppState", "RawAppStateConfig"),
    ("app_state", "dcp"): _entry("checkpointing.loading", "get_dcp_checkpointed_app_state", "DCPAppStateConfig"),
    ("checkpoint_saving", "default"): _entry("checkpointing.saving", "CheckpointSaving", "CheckpointSavingConfig"),
    ("checkpoint_saving_strategy", "save_every_k_steps_checkpointing_strategy"): _entry(
        "checkpointing.strategies", "SaveEveryKStepsCheckpointingStrategy", "SaveEveryKStepsCheckpointingStrategyConfig"
    ),
    ("checkpoint_saving_strategy", "save_k_most_recent_checkpoints_strategy"): _entry(
        "checkpointing.strategies", "SaveKMostRecentCheckpointsStrategy", "SaveKMostRecentCheckpointsStrategyConfig"
    ),
    ("checkpoint_saving_execution", "dcp"): _entry(
        "checkpointing.saving", "DCPCheckpointSaving", "DCPCheckpointSavingConfig"
    ),
    ("checkpoint_loading", "dcp"): _entry(
        "checkpointing.loading", "DCPCheckpointLoading", "DCPCheckpointLoadingConfig"
    ),
}

_REPORTING = {
    ("progress_subscriber", "dummy"): _entry(
        "reporting.progress", "DummyProgressSubscriber", "DummyProgressSubscriberConfig"
    ),
    ("progress_subscriber", "rich"): _entry(
        "reporting.progress", "get_rich_progress_subscriber", "RichProgressSubscriberConfig"
    ),
    ("results_subscriber", "dummy"): _entry(
        "reporting.results", "DummyResultSubscriber", "DummyResultSubscriberConfig"
    ),
    ("results_subscriber", "rich"): _entry(
        "reporting.results", "get_rich_result_subscriber", "RichResultSubscriberConfig"
    ),
    ("results_subscriber", "to_disc"): _entry(
        "reporting.to_disc", "ToDiscResultSubscriber", "ToDiscResultSubscriberConfig"
    ),
    ("results_subscriber", "wandb"): _entry(
        "reporting.wandb_results", "get_wandb_result_subscriber", "WandBResultSubscriberConfig"
    ),
}

_NUMBER_CONVERSIONS = {
    ("number_conversion", variant): _entry("progress.number_conversion", f"get_{variant}", config)
    for variant, config in {
        "local_num_batches_from_num_samples": "LocalNumBatchesFromNumSamplesConfig",
        "local_num_batches_from_num_tokens": "LocalNumBatchesFromNumTokensConfig",
        "num_samples_from_num_tokens": "NumSamplesFromNumTokensConfig",
        "num_steps_from_num_samples": "NumStepsFromNumSamplesConfig",
        "num_steps_from_num_tokens": "NumStepsFromNumTokensConfig",
        "num_tokens_from_num_steps": "NumTokensFromNumStepsConfig",
        "num_seen_steps_from_checkpoint_path": "NumberConversionFromCheckpointPathConfig",
        "last_step_from_checkpoint_path": "NumberConversionFromCheckpointPathConfig",
        "global_num_seen_tokens_from_checkpoint_path": "NumberConversionFromCheckpointPathConfig",
        "global_num_target_tokens_from_checkpoint_path": "NumberConversionFromCheckpointPathConfig",
        "num_target_steps_from_checkpoint_path": "NumberConversionFromCheckpointPathConfig",
        "num_tokens_from_packed_mem_map_dataset_continuous": "NumTokensFromPackedMemMapDatasetContinuousConfig",
        "num_steps_from_raw_dataset_index": "NumStepsFromRawDatasetIndexConfig",
        "vocab_size_from_packed_dataset": "VocabSizeFromPackedDatasetConfig",
    }.items()
} | {
    ("number_conversion", "parallel_degree"): _entry("distributed.mesh", "get_parallel_degree", "ParallelDegreeConfig")
}

COMPONENTS: dict[tuple[str, str], tuple[str, str]] = {
    **_MODELS,
    **_OPTIMISATION,
    **_DATA,
    **_CHECKPOINTING,
    **_REPORTING,
    **_NUMBER_CONVERSIONS,
}
