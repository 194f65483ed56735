"""Model, optimizer and scheduler as one thing that can be saved and loaded by torch's distributed checkpoints."""

from typing import Any

from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from modalities_pipeline.exceptions import CheckpointingError, ConfigError
from modalities_pipeline.optim.optimizers_list import OptimizersList, get_flat_state, merge_disjoint, set_flat_state_
from modalities_pipeline.optim.schedulers_list import SchedulerList


class AppState(Stateful):
    """What a training step changes.

    Attributes:
        model_parts: the model as a list of one module, or this rank's parts of it.
        optimizer: of the model; an `OptimizersList` of the parts if there are several.
        lr_scheduler: None: the learning rate stays as it is.
        is_loaded: whether a checkpoint was loaded into it.
    """

    def __init__(
        self, model: nn.Module | list[nn.Module], optimizer: Optimizer, lr_scheduler: LRScheduler | None = None
    ) -> None:
        """Join what belongs together.

        Raises:
            ConfigError: the optimizer was built for other parts than these, or for one model while there are several;
                it trains parameters that are not the model's; the scheduler is one of another optimizer.
        """
        self.model_parts = model if isinstance(model, list) else [model]
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.is_loaded = False
        self._optimizers = optimizer.optimizers if isinstance(optimizer, OptimizersList) else [optimizer]
        trained = optimizer.model_parts if isinstance(optimizer, OptimizersList) else self.model_parts
        if len(self._optimizers) != len(self.model_parts) or any(
            given is not part for given, part in zip(trained, self.model_parts, strict=True)
        ):
            raise ConfigError(
                f"app_state: the optimizer is one of {len(self._optimizers)} model parts, but model has "
                f"{len(self.model_parts)}, or they are others. Give both the same parts, in the same order."
            )
        self._refuse_strangers()

    def _refuse_strangers(self) -> None:
        """Whatever does not belong together would leave the model, or the learning rate, as it is."""
        own = {id(parameter) for part in self.model_parts for parameter in part.parameters()}
        groups = self.optimizer.param_groups
        num_strangers = sum(id(parameter) not in own for group in groups for parameter in group["params"])
        if num_strangers:
            raise ConfigError(
                f"app_state: {num_strangers} of the optimizer's parameters are not the model's. Give the app state and "
                "the optimizer the same model: the one that wraps all others."
            )
        scheduler = self.lr_scheduler
        schedulers = scheduler.schedulers if isinstance(scheduler, SchedulerList) else [scheduler]
        scheduled = [id(scheduler.optimizer) for scheduler in schedulers if scheduler is not None]
        if scheduled and scheduled != [id(optimizer) for optimizer in self._optimizers]:
            raise ConfigError("app_state: lr_scheduler is one of another optimizer. Give both the same optimizer.")

    def state_dict(self) -> dict[str, Any]:
        """{"model", "optimizer", "lr_scheduler"}; the optimizer's state is flat, see `get_flat_state`.

        Raises:
            CheckpointingError: two model parts have an entry of the same name.
        """
        state = {
            "model": merge_disjoint([get_model_state_dict(part) for part in self.model_parts]),
            "optimizer": get_flat_state(self.model_parts, self._optimizers),
        }
        if self.lr_scheduler is not None:
            state["lr_scheduler"] = self.lr_scheduler.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state.

        Raises:
            CheckpointingError: one was taken over before, or it is one of another model.
        """
        if self.is_loaded:
            raise CheckpointingError(
                "A checkpoint was already loaded into this app state. Build a new one to load another."
            )
        self._load_model(state_dict["model"])
        if isinstance(self.optimizer, OptimizersList):
            self.optimizer.load_state_dict(state_dict["optimizer"])
        else:
            set_flat_state_(self.model_parts, self._optimizers, state_dict["optimizer"])
        if self.lr_scheduler is not None:
            self.lr_scheduler.load_state_dict(state_dict["lr_scheduler"])
        self.is_loaded = True

    def _load_model(self, state: dict[str, Any]) -> None:
        names = [get_model_state_dict(part).keys() for part in self.model_parts]
        differing = sorted(state.keys() ^ {name for part_names in names for name in part_names})
        if differing:
            raise CheckpointingError(f"The state is one of another model; they differ in: {', '.join(differing)}.")
        for part, part_names in zip(self.model_parts, names, strict=True):
            set_model_state_dict(part, {name: state[name] for name in part_names})
