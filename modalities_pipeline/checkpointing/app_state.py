"""Model, optimizer and scheduler as one thing that can be saved and loaded by torch's distributed checkpoints."""

from typing import Any

from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from modalities_pipeline.exceptions import CheckpointingError


class AppState(Stateful):
    """What a training step changes.

    Attributes:
        model_parts: the model, as a list of one module.
        is_loaded: whether a checkpoint was loaded into it.
    """

    def __init__(
        self, model: nn.Module | list[nn.Module], optimizer: Optimizer, lr_scheduler: LRScheduler | None = None
    ) -> None:
        self.model_parts = model if isinstance(model, list) else [model]
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.is_loaded = False

    def state_dict(self) -> dict[str, Any]:
        """{"model", "optimizer", "lr_scheduler"}; the optimizer's state is flat: `state.<parameter>.<name>`."""
        model: dict[str, Any] = {}
        optimizer: dict[str, Any] = {}
        for part in self.model_parts:
            model |= get_model_state_dict(part)
            optimizer |= get_optimizer_state_dict(
                part, self.optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True)
            )
        state = {"model": model, "optimizer": optimizer}
        if self.lr_scheduler is not None:
            state["lr_scheduler"] = self.lr_scheduler.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; `CheckpointingError` if one was taken over before."""
        if self.is_loaded:
            raise CheckpointingError(
                "A checkpoint was already loaded into this app state. Build a new one to load another."
            )
        for part in self.model_parts:
            set_model_state_dict(part, state_dict["model"])
            set_optimizer_state_dict(
                part,
                self.optimizer,
                optim_state_dict=state_dict["optimizer"],
                options=StateDictOptions(flatten_optimizer_state_dict=True),
            )
        if self.lr_scheduler is not None:
            self.lr_scheduler.load_state_dict(state_dict["lr_scheduler"])
        self.is_loaded = True
