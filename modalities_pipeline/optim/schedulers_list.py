"""The schedulers of several optimizers as one."""

import copy
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from modalities_pipeline.config.model_parts import for_each_part
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.optim.optimizers_list import OptimizersList

P = ParamSpec("P")

_PER_GROUP = ("base_lrs", "_last_lr")  # entries of a scheduler's state with a number for each group of parameters


class SchedulerList(LRScheduler):
    """Equal schedulers, one for each optimizer of an `OptimizersList`, used as if they were one.

    What it says about the learning rate, and its state, are those of the first.
    """

    def __init__(self, schedulers: Sequence[LRScheduler]) -> None:
        """Join schedulers that are built alike; `ConfigError` if there are none."""
        if not schedulers:
            raise ConfigError("A SchedulerList needs at least one scheduler.")
        self.schedulers = list(schedulers)

    @property
    def optimizer(self) -> Optimizer:  # type: ignore[override]
        """That of the first scheduler."""
        return self.schedulers[0].optimizer

    @property
    def base_lrs(self) -> list[float | torch.Tensor]:  # type: ignore[override]
        """The learning rates that the first scheduler scales, one for each group."""
        return [group["initial_lr"] for group in self.optimizer.param_groups]

    @property
    def last_epoch(self) -> int:  # type: ignore[override]
        """Number of steps done."""
        return self.schedulers[0].last_epoch

    def step(self, epoch: int | None = None) -> None:
        """One step of every scheduler."""
        for scheduler in self.schedulers:
            scheduler.step() if epoch is None else scheduler.step(epoch)

    def get_last_lr(self) -> list[float | torch.Tensor]:
        """The first scheduler's learning rate of each group."""
        return self.schedulers[0].get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """The state of the first scheduler; the others differ in their optimizer alone."""
        return self.schedulers[0].state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give every scheduler a copy of the state, also where its optimizer has more or fewer groups."""
        for scheduler in self.schedulers:
            num_groups = len(scheduler.optimizer.param_groups)
            scheduler.load_state_dict(_for_groups(copy.deepcopy(state_dict), num_groups))


def _for_groups(state: dict[str, Any], num_groups: int) -> dict[str, Any]:
    """A state whose lists have an entry for each group: an optimizer of ours has the same rate in all its groups."""
    for name in _PER_GROUP:
        if name in state:
            rates = list(state[name])
            state[name] = rates[:num_groups] + rates[-1:] * (num_groups - len(rates))
    for inner in state.get("_schedulers", []):
        _for_groups(inner, num_groups)
    return state


def for_each_optimizer(
    build: Callable[Concatenate[Optimizer, P], LRScheduler],
) -> Callable[Concatenate[Optimizer, P], LRScheduler]:
    """Let a builder, whose first parameter is `optimizer`, turn an `OptimizersList` into a `SchedulerList`."""
    build_each = for_each_part("optimizer", combine=lambda _, schedulers: SchedulerList(schedulers))(build)

    @wraps(build)
    def build_for(optimizer: Optimizer, *args: P.args, **kwargs: P.kwargs) -> LRScheduler:
        parts: Any = optimizer.optimizers if isinstance(optimizer, OptimizersList) else optimizer
        return build_each(parts, *args, **kwargs)

    return build_for
