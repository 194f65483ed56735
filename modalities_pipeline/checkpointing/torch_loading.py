"""Plain models and their optimizers out of a checkpoint, by Modalities' names for that; in one process."""

import logging
from abc import ABC, abstractmethod
from enum import Enum
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from modalities_pipeline.checkpointing.model_states import load_model_state_, read_model_state
from modalities_pipeline.checkpointing.optimizer_states import (
    load_optimizer_state_,
    read_optimizer_state,
    refuse_other_parameters,
)
from modalities_pipeline.config.device_names import device_name
from modalities_pipeline.exceptions import ConfigError

logger = logging.getLogger(__name__)

_DTYPES = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}


class FSDP1CheckpointLoadingIF(ABC):
    """Loads the parts of a checkpoint one by one."""

    @abstractmethod
    def load_model_checkpoint(self, model: nn.Module, file_path: Path) -> nn.Module:
        """The model with the weights of a checkpoint."""

    @abstractmethod
    def load_optimizer_checkpoint_(self, optimizer: Optimizer, model: nn.Module, file_path: Path) -> None:
        """Load the state of the model's optimizer in place."""


class TorchCheckpointLoading(FSDP1CheckpointLoadingIF):
    """Loads a plain model and its optimizer, in this process alone; see `model_states` for the formats of weights."""

    def __init__(self, device: str | int | None, precision: Enum | str | None = None) -> None:
        """Say where the model shall be, and in which dtype.

        Args:
            device: as in `config.device_names`.
            precision: FP32, FP16 or BF16; None: as the weights are stored.

        Raises:
            ConfigError: device or precision is unknown, or torch sees no such device here.
        """
        self.device = usable_device(device)
        name = precision.name if isinstance(precision, Enum) else precision
        if name is not None and name not in _DTYPES:
            raise ConfigError(f"precision {name!r} is unknown. Use one of: {', '.join(_DTYPES)}.")
        self._dtype = None if name is None else _DTYPES[name]

    def load_model_checkpoint(self, model: nn.Module, file_path: Path) -> nn.Module:
        """Load a checkpoint into the model in place, and move it to the device.

        Raises:
            CheckpointingError: the checkpoint cannot be read, or is none of this model; all differences are listed.
        """
        state = read_model_state(Path(file_path))
        dtypes = {tensor.dtype for tensor in state.values() if tensor.is_floating_point()}
        if self._dtype is not None and dtypes - {self._dtype}:
            stored = ", ".join(sorted(map(str, dtypes)))
            logger.warning("The weights in %s are %s and become %s.", file_path, stored, self._dtype)
        load_model_state_(model, state, Path(file_path), self.device, self._dtype)
        return model

    def load_optimizer_checkpoint_(self, optimizer: Optimizer, model: nn.Module, file_path: Path) -> None:
        """Load the state of an optimizer from a file of whole tensors, in place; its precision stays as it is.

        Raises:
            CheckpointingError: the file cannot be read, or is none of this optimizer; all differences are listed.
        """
        state = read_optimizer_state(Path(file_path))
        refuse_other_parameters(state, model, optimizer, Path(file_path))
        load_optimizer_state_(optimizer, model, state, broadcast_from_rank0=False)


def get_checkpointed_model(
    checkpoint_loading: FSDP1CheckpointLoadingIF, checkpoint_path: Path, model: nn.Module
) -> nn.Module:
    """The model with the weights of a checkpoint; raises as the checkpoint loading does."""
    return checkpoint_loading.load_model_checkpoint(model=model, file_path=checkpoint_path)


def usable_device(device: str | int | None) -> torch.device:
    """A device by one of its names (see `config.device_names`); `ConfigError` if it is unknown or not here."""
    try:
        wanted = torch.device(device_name(device))
    except ValueError as error:
        raise ConfigError(f"device: {error}.") from None
    num_gpus = torch.cuda.device_count()
    if wanted.type == "cuda" and (wanted.index or 0) >= num_gpus:
        raise ConfigError(f"device: there is no {wanted} here; torch sees {num_gpus} GPUs. Use another, or cpu.")
    return wanted
