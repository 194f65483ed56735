"""Loading a model and its optimizer from one file each into an FSDP1 model."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.optim import Optimizer

from modalities_pipeline.checkpointing.model_states import load_model_state_, read_model_state
from modalities_pipeline.checkpointing.optimizer_states import (
    OptimizerState,
    load_optimizer_state_,
    read_optimizer_state,
    refuse_other_parameters,
)
from modalities_pipeline.checkpointing.torch_loading import FSDP1CheckpointLoadingIF
from modalities_pipeline.distributed.configs import MixedPrecisionSettings, ShardingStrategy
from modalities_pipeline.distributed.env import current_device
from modalities_pipeline.distributed.fsdp1 import get_fsdp1_wrapped_model
from modalities_pipeline.exceptions import CheckpointingError, RunningEnvError
from modalities_pipeline.models.parameters import materialize

T = TypeVar("T")


class FSDP1CheckpointLoading(FSDP1CheckpointLoadingIF):
    """Loads checkpoints file by file; rank 0 reads them and hands the content on, so every rank has to call it."""

    def __init__(
        self,
        global_rank: int,
        block_names: list[str],
        mixed_precision_settings: MixedPrecisionSettings,
        sharding_strategy: ShardingStrategy,
    ) -> None:
        self._global_rank = global_rank
        self._block_names = block_names
        self._mixed_precision_settings = mixed_precision_settings
        self._sharding_strategy = sharding_strategy

    def load_model_checkpoint(self, model: nn.Module, file_path: Path) -> FullyShardedDataParallel:
        """Load weights into a plain model in place, in the model's own dtypes, and wrap it.

        Args:
            model: with memory, or on the meta device.
            file_path: see `model_states.read_model_state` for the formats.

        Raises:
            CheckpointingError: on all ranks, if rank 0 cannot read the checkpoint, or it is none of this model.
            ConfigError, RunningEnvError: as `get_fsdp1_wrapped_model`.
        """
        self._on_first_rank(lambda: _load_weights_(model, Path(file_path)))
        materialize(model)
        return get_fsdp1_wrapped_model(
            model,
            sync_module_states=True,
            mixed_precision_settings=self._mixed_precision_settings,
            sharding_strategy=self._sharding_strategy,
            block_names=self._block_names,
        )

    def load_optimizer_checkpoint_(self, optimizer: Optimizer, model: nn.Module, file_path: Path) -> None:
        """Load the state of an optimizer of a wrapped model from a file of whole tensors, in place.

        Raises:
            CheckpointingError: on all ranks, if rank 0 cannot read the file, or it is none of this optimizer.
            RunningEnvError: there is no process group.
        """

        def read() -> OptimizerState:
            state = read_optimizer_state(Path(file_path))
            refuse_other_parameters(state, model, optimizer, Path(file_path))
            return state

        load_optimizer_state_(optimizer, model, self._on_first_rank(read) or {}, broadcast_from_rank0=True)

    def _on_first_rank(self, read: Callable[[], T]) -> T | None:
        """What a function gives on rank 0, None elsewhere; if it fails, no rank goes on."""
        if not dist.is_initialized():
            raise RunningEnvError("checkpoint_loading/fsdp1 needs a process group. Use the variant torch without one.")
        result, error = None, None
        if self._global_rank == 0:
            try:
                result = read()
            except (CheckpointingError, OSError) as raised:
                error = raised
        messages = [None if error is None else str(error)]
        dist.broadcast_object_list(messages, src=0, device=current_device())
        if messages[0] is not None:
            raise CheckpointingError(messages[0]) from error
        return result


def get_fsdp1_checkpointed_optimizer(
    checkpoint_loading: FSDP1CheckpointLoadingIF, checkpoint_path: Path, wrapped_model: nn.Module, optimizer: Optimizer
) -> Optimizer:
    """The optimizer with the state of a checkpoint file; raises as the checkpoint loading does."""
    checkpoint_loading.load_optimizer_checkpoint_(optimizer, wrapped_model, checkpoint_path)
    return optimizer


def _load_weights_(model: nn.Module, checkpoint_path: Path) -> None:
    dtypes = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    stored = read_model_state(checkpoint_path)
    state = {name: tensor.to(dtypes.get(name, tensor.dtype)) for name, tensor in stored.items()}
    load_model_state_(model, state, checkpoint_path, torch.device("cpu"))
