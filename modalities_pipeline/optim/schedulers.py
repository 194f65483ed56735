"""Learning rate schedulers; each step of one is an optimizer step."""

import math
from typing import Literal

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    StepLR,
)

from modalities_pipeline.exceptions import ConfigError


class DummyLRScheduler(LRScheduler):
    """Leaves the learning rate as it is."""

    def get_lr(self) -> list[float | torch.Tensor]:
        """The current learning rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]


class LinearWarmupCosineAnnealingLR(LRScheduler):
    """From `initial_lr` linearly to `max_lr`, then along a cosine to `final_lr`, where it stays."""

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_steps: int,
        total_steps: int,
        initial_lr: float,
        final_lr: float,
        max_lr: float,
        last_epoch: int = -1,
    ) -> None:
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.start_lr = initial_lr
        self.final_lr = final_lr
        self.max_lr = max_lr
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | torch.Tensor]:
        """The learning rate of the next step, for each group."""
        step = self.last_epoch
        if step < self.warmup_steps:
            lr = self.start_lr + (self.max_lr - self.start_lr) * step / self.warmup_steps
        else:
            progress = min(1.0, (step - self.warmup_steps) / (self.total_steps - self.warmup_steps))
            lr = self.final_lr + (self.max_lr - self.final_lr) * (1 + math.cos(math.pi * progress)) / 2
        return [lr] * len(self.optimizer.param_groups)


def get_step_lr(optimizer: Optimizer, step_size: int, gamma: float, last_epoch: int = -1) -> LRScheduler:
    """Multiply by `gamma` every `step_size` steps."""
    _set_base_lr(optimizer, last_epoch)
    return StepLR(optimizer, step_size=step_size, gamma=gamma, last_epoch=last_epoch)


def get_constant_lr(optimizer: Optimizer, factor: float, total_iters: int, last_epoch: int = -1) -> LRScheduler:
    """`factor` of the learning rate for `total_iters` steps, then all of it."""
    _set_base_lr(optimizer, last_epoch)
    return ConstantLR(optimizer, factor=factor, total_iters=total_iters, last_epoch=last_epoch)


def get_linear_lr(
    optimizer: Optimizer, start_factor: float, end_factor: float, total_iters: int, last_epoch: int = -1
) -> LRScheduler:
    """From `start_factor` to `end_factor` of the learning rate within `total_iters` steps."""
    _set_base_lr(optimizer, last_epoch)
    return LinearLR(optimizer, start_factor, end_factor, total_iters, last_epoch=last_epoch)


def get_onecycle_lr(
    optimizer: Optimizer,
    max_lr: float | list[float],
    pct_start: float,
    anneal_strategy: Literal["cos", "linear"],
    div_factor: float,
    final_div_factor: float,
    total_steps: int | None = None,
    epochs: int | None = None,
    steps_per_epoch: int | None = None,
    cycle_momentum: bool = False,
    base_momentum: float | list[float] = 0.85,
    max_momentum: float | list[float] = 0.95,
    three_phase: bool = False,
    last_epoch: int = -1,
) -> LRScheduler:
    """torch's OneCycleLR: up to `max_lr` within `pct_start` of the steps, then down; one step too many is an error."""
    _set_base_lr(optimizer, last_epoch)
    return OneCycleLR(
        optimizer,
        max_lr=max_lr,
        total_steps=total_steps,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        pct_start=pct_start,
        anneal_strategy=anneal_strategy,
        cycle_momentum=cycle_momentum,
        base_momentum=base_momentum,
        max_momentum=max_momentum,
        div_factor=div_factor,
        final_div_factor=final_div_factor,
        three_phase=three_phase,
        last_epoch=last_epoch,
    )


def get_cosine_annealing_lr(optimizer: Optimizer, t_max: int, eta_min: float, last_epoch: int = -1) -> LRScheduler:
    """Along a cosine to `eta_min` within `t_max` steps; beyond them it rises again."""
    _set_base_lr(optimizer, last_epoch)
    return CosineAnnealingLR(optimizer, T_max=t_max, eta_min=eta_min, last_epoch=last_epoch)


def get_linear_warmup_cosine_annealing_lr(
    optimizer: Optimizer,
    warmup_steps: int,
    total_steps: int,
    initial_lr: float,
    final_lr: float,
    max_lr: float,
    last_epoch: int = -1,
) -> LRScheduler:
    """See `LinearWarmupCosineAnnealingLR`.

    Raises:
        ConfigError: a parameter group's learning rate is not `max_lr`.
    """
    _set_base_lr(optimizer, last_epoch)
    for group in optimizer.param_groups:
        base_lr = group.get("initial_lr", group["lr"])
        if base_lr != max_lr:
            raise ConfigError(
                f"linear_warmup_cosine_annealing_lr: max_lr is {max_lr}, but the optimizer's lr is {base_lr}. "
                "Make them equal."
            )
    return LinearWarmupCosineAnnealingLR(
        optimizer, warmup_steps, total_steps, initial_lr, final_lr, max_lr, last_epoch=last_epoch
    )


def _set_base_lr(optimizer: Optimizer, last_epoch: int) -> None:
    """torch's schedulers that start in the middle want to find the base learning rate in the groups."""
    if last_epoch >= 0:
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
