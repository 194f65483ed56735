"""App states, saving and loading of checkpoints, as rows of the table of components."""

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import (
    APP_STATE,
    CHECKPOINT_SAVING,
    CHECKPOINT_SAVING_EXECUTION,
    CHECKPOINT_SAVING_STRATEGY,
    DISTRIBUTED_CHECKPOINT_LOADING,
    FSDP1_CHECKPOINT_LOADING,
    MODULE,
    OPTIMIZER,
)

_CHECKPOINTING = "modalities_pipeline.checkpointing"
_CONFIGS = f"{_CHECKPOINTING}.configs"


def _strategy(variant_key: str, name: str, description: str) -> ComponentEntity:
    types = f"{_CHECKPOINTING}.strategies:{name}", f"{_CONFIGS}:{name}Config"
    return ComponentEntity("checkpoint_saving_strategy", variant_key, *types, CHECKPOINT_SAVING_STRATEGY, description)


COMPONENTS: list[ComponentEntity] = [
    ComponentEntity(
        "app_state",
        "raw",
        f"{_CHECKPOINTING}.app_state:AppState",
        f"{_CONFIGS}:RawAppStateConfig",
        APP_STATE,
        "model, optimizer and scheduler: what a training step changes and a checkpoint holds",
    ),
    ComponentEntity(
        "app_state",
        "dcp",
        f"{_CHECKPOINTING}.loading:get_dcp_checkpointed_app_state",
        f"{_CONFIGS}:DCPAppStateConfig",
        APP_STATE,
        "an app state with a checkpoint folder loaded into it, whatever the number of ranks that saved it",
    ),
    ComponentEntity(
        "checkpoint_saving",
        "default",
        f"{_CHECKPOINTING}.saving:CheckpointSaving",
        f"{_CONFIGS}:CheckpointSavingConfig",
        CHECKPOINT_SAVING,
        "saves checkpoints as a strategy decides and an execution writes",
    ),
    _strategy(
        "save_every_k_steps_checkpointing_strategy",
        "SaveEveryKStepsCheckpointingStrategy",
        "saves at every multiple of k steps and at the end, and deletes nothing",
    ),
    _strategy(
        "save_k_most_recent_checkpoints_strategy",
        "SaveKMostRecentCheckpointsStrategy",
        "keeps the k newest checkpoints of an experiment",
    ),
    ComponentEntity(
        "checkpoint_saving_execution",
        "dcp",
        f"{_CHECKPOINTING}.saving:DCPCheckpointSaving",
        f"{_CONFIGS}:DCPCheckpointSavingConfig",
        CHECKPOINT_SAVING_EXECUTION,
        "writes a folder per checkpoint, every rank its part (torch.distributed.checkpoint)",
    ),
    ComponentEntity(
        "checkpoint_saving_execution",
        "fsdp1",
        f"{_CHECKPOINTING}.fsdp1_saving:FSDP1CheckpointSaving",
        f"{_CONFIGS}:FSDP1CheckpointSavingConfig",
        CHECKPOINT_SAVING_EXECUTION,
        "writes an FSDP1 model and its optimizer as one file each",
        ("fsdp",),
    ),
    ComponentEntity(
        "checkpoint_loading",
        "dcp",
        f"{_CHECKPOINTING}.loading:DCPCheckpointLoading",
        f"{_CONFIGS}:DCPCheckpointLoadingConfig",
        DISTRIBUTED_CHECKPOINT_LOADING,
        "loads a checkpoint folder into an app state, on all ranks",
    ),
    ComponentEntity(
        "checkpoint_loading",
        "fsdp1",
        f"{_CHECKPOINTING}.fsdp1_loading:FSDP1CheckpointLoading",
        f"{_CONFIGS}:FSDP1CheckpointLoadingConfig",
        FSDP1_CHECKPOINT_LOADING,
        "loads a model from one file and wraps it with FSDP1",
        ("fsdp",),
    ),
    ComponentEntity(
        "checkpoint_loading",
        "torch",
        f"{_CHECKPOINTING}.torch_loading:TorchCheckpointLoading",
        f"{_CONFIGS}:TorchCheckpointLoadingConfig",
        FSDP1_CHECKPOINT_LOADING,
        "loads weights into a plain model, in one process",
    ),
    ComponentEntity(
        "model",
        "fsdp1_checkpointed",
        f"{_CHECKPOINTING}.torch_loading:get_checkpointed_model",
        f"{_CONFIGS}:FSDP1CheckpointedModelConfig",
        MODULE,
        "a model with the weights of a checkpoint",
        ("checkpointed",),
    ),
    ComponentEntity(
        "optimizer",
        "fsdp1_checkpointed",
        f"{_CHECKPOINTING}.fsdp1_loading:get_fsdp1_checkpointed_optimizer",
        f"{_CONFIGS}:FSDP1CheckpointedOptimizerConfig",
        OPTIMIZER,
        "an optimizer with the state of a checkpoint file",
        ("checkpointed",),
    ),
]
