"""What a component can be to others: the classes that configs ask for, by name, so that nothing is imported."""

NUMBER = "int"

MODULE = "torch.nn:Module"
FSDP1_MODULE = "torch.distributed.fsdp:FullyShardedDataParallel"
FSDP2_MODULE = "torch.distributed.fsdp:FSDPModule"
OPTIMIZER = "torch.optim:Optimizer"
LR_SCHEDULER = "torch.optim.lr_scheduler:LRScheduler"
DATASET = "torch.utils.data:Dataset"
SAMPLER = "torch.utils.data:Sampler"
DEVICE = "torch:device"
DEVICE_MESH = "torch.distributed.device_mesh:DeviceMesh"
REMOVABLE_HANDLE = "torch.utils.hooks:RemovableHandle"
PIPELINE_STAGE = "torch.distributed.pipelining:PipelineStage"

LOSS = "modalities_pipeline.loss_functions:Loss"
MODEL_INITIALIZATION = "modalities_pipeline.models.initialization:ModelInitializationIF"
GRADIENT_CLIPPER = "modalities_pipeline.optim.gradient_clipping:GradientClipperIF"
TOKENIZER = "modalities_pipeline.tokenization.tokenizer_wrapper:TokenizerWrapper"
COLLATE_FN = "modalities_pipeline.dataloading.collators:CollateFnIF"
DATA_LOADER = "modalities_pipeline.dataloading.dataloader:LLMDataLoader"
DATASET_BATCH_GENERATOR = "modalities_pipeline.dataloading.batch_generator:DatasetBatchGeneratorIF"
APP_STATE = "modalities_pipeline.checkpointing.app_state:AppState"
CHECKPOINT_SAVING = "modalities_pipeline.checkpointing.saving:CheckpointSaving"
CHECKPOINT_SAVING_EXECUTION = "modalities_pipeline.checkpointing.saving:CheckpointSavingExecutionABC"
CHECKPOINT_SAVING_STRATEGY = "modalities_pipeline.checkpointing.strategies:CheckpointSavingStrategyIF"
DISTRIBUTED_CHECKPOINT_LOADING = "modalities_pipeline.checkpointing.loading:DCPCheckpointLoading"
FSDP1_CHECKPOINT_LOADING = "modalities_pipeline.checkpointing.torch_loading:FSDP1CheckpointLoadingIF"
MESSAGE_SUBSCRIBER = "modalities_pipeline.reporting.broker:MessageSubscriberIF"
TEXT_INFERENCE_COMPONENT = "modalities_pipeline.inference.text_inference:TextInferenceComponent"
MFU_CALCULATOR = "modalities_pipeline.progress.mfu:MFUCalculatorABC"
STAGES_GENERATOR = "modalities_pipeline.distributed.stages_generator:StagesGenerator"
PIPELINE = "modalities_pipeline.distributed.pipeline_parallel:Pipeline"
STEPPABLE_COMPONENT = "modalities_pipeline.profiling.steppable:SteppableComponentIF"
STEPPABLE_PROFILER = "modalities_pipeline.profiling.profilers:SteppableProfilerIF"
DEBUGGING = "modalities_pipeline.debugging.settings:Debugging"

_BASES = {FSDP1_MODULE: MODULE, FSDP2_MODULE: MODULE}


def can_be(given: str | None, wanted: str) -> bool:
    """Whether an object declared as `given` may turn out to be a `wanted`: it is one, or a base of it, or not known."""
    return given is None or given == wanted or _BASES.get(given) == wanted or _BASES.get(wanted) == given
