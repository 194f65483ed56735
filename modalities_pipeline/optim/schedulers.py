"""Learning rate schedulers; each step of one is an optimizer step.

All of them compute the rate from the number of the step alone. So a run that goes on, from a state or with
`last_epoch`, has the rates of one that was never interrupted, and no rate is ever negative. torch's own (step,
constant, linear, cosine) multiply the rate that the optimizer has at the time instead.
"""

import warnings
from typing import Literal

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    SequentialLR,
    StepLR,
)

from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.optim.schedulers_list import for_each_optimizer


class DummyLRScheduler(LRScheduler):
    """Leaves the learning rate as it is."""

    def get_lr(self) -> list[float | Tensor]:
        """The current learning rate of each group; for `step` alone, others ask `get_last_lr`."""
        if not self._get_lr_called_within_step:
            warnings.warn("To get the last learning rate, use get_last_lr().", UserWarning, stacklevel=2)
        return [group["lr"] for group in self.optimizer.param_groups]

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        return self.base_lrs


class _ClosedForm(LRScheduler):
    """Comes before one of torch's schedulers: their formula of the step's number, which they use on request only."""

    def get_lr(self) -> list[float | Tensor]:
        return self._get_closed_form_lr()  # type: ignore[attr-defined]


class _StepLR(_ClosedForm, StepLR):
    pass


class _ConstantLR(_ClosedForm, ConstantLR):
    pass


class _LinearLR(_ClosedForm, LinearLR):
    pass


class _CosineAnnealingLR(_ClosedForm, CosineAnnealingLR):
    pass


class _WarmUp(_LinearLR):
    """A line that may start at 0, which torch refuses."""

    def __init__(self, optimizer: Optimizer, start_factor: float, total_iters: int) -> None:
        self.start_factor, self.end_factor, self.total_iters = start_factor, 1.0, total_iters
        LRScheduler.__init__(self, optimizer)


class _CosineDecay(_CosineAnnealingLR):
    """Stays at `eta_min` once it is there, where torch's cosine rises again."""

    def get_lr(self) -> list[float | Tensor]:
        return [self.eta_min] * len(self.base_lrs) if self.last_epoch >= self.T_max else super().get_lr()


class _OneCycleLR(OneCycleLR):
    def get_lr(self) -> list[float | Tensor]:
        """torch's, but without a rate below 0, and with an end where the rise alone takes all steps."""
        if self.last_epoch > self.total_steps:
            raise ConfigError(
                f"onecycle_lr: the schedule is made for {self.total_steps} steps, but step {self.last_epoch} was done. "
                "Make total_steps (or epochs times steps_per_epoch) as large as num_target_steps."
            )
        falls_from = self._schedule_phases[-2]["end_step"]
        if falls_from >= self.total_steps - 1 and self.last_epoch > falls_from:
            return [group["min_lr"] for group in self.optimizer.param_groups]
        betas = [group.get("betas") for group in self.optimizer.param_groups]
        rates = [max(lr, 0.0) for lr in super().get_lr()]
        if self.last_epoch == self.total_steps:  # beyond the end the formula's momentum may be above 1
            for group, group_betas in zip(self.optimizer.param_groups, betas, strict=True):
                group.update({} if group_betas is None else {"betas": group_betas})
        return rates


@for_each_optimizer
def get_dummy_lr(optimizer: Optimizer) -> LRScheduler:
    """See `DummyLRScheduler`."""
    return DummyLRScheduler(optimizer)


@for_each_optimizer
def get_step_lr(optimizer: Optimizer, step_size: int, gamma: float, last_epoch: int = -1) -> LRScheduler:
    """Multiply by `gamma` every `step_size` steps."""
    _set_base_lr(optimizer, last_epoch)
    return _StepLR(optimizer, step_size=step_size, gamma=gamma, last_epoch=last_epoch)


@for_each_optimizer
def get_constant_lr(optimizer: Optimizer, factor: float, total_iters: int, last_epoch: int = -1) -> LRScheduler:
    """`factor` of the learning rate for `total_iters` steps, then all of it."""
    _set_base_lr(optimizer, last_epoch)
    return _ConstantLR(optimizer, factor=factor, total_iters=total_iters, last_epoch=last_epoch)


@for_each_optimizer
def get_linear_lr(
    optimizer: Optimizer, start_factor: float, end_factor: float, total_iters: int, last_epoch: int = -1
) -> LRScheduler:
    """From `start_factor` to `end_factor` of the learning rate within `total_iters` steps."""
    _set_base_lr(optimizer, last_epoch)
    return _LinearLR(optimizer, start_factor, end_factor, total_iters, last_epoch=last_epoch)


@for_each_optimizer
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
    """torch's OneCycleLR: up to `max_lr` within `pct_start` of the steps, then down.

    The lowest rate is that of the last step. After it the formula leads elsewhere, so the rate that is left at the end
    of a run is another one, but never below 0.

    Raises:
        ConfigError: a list has not an entry for each group of parameters, or (in `step`) a step too many was done.
    """
    num_groups = len(optimizer.param_groups)
    lists = {"max_lr": max_lr, "base_momentum": base_momentum, "max_momentum": max_momentum}
    for name, values in lists.items():
        if isinstance(values, list) and len(values) != num_groups:
            raise ConfigError(
                f"onecycle_lr: {name} has {len(values)} entries, but the optimizer has {num_groups} groups of "
                "parameters. Give one number, or one for each group."
            )
    scheduler = _OneCycleLR(
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
        last_epoch=last_epoch if all("max_lr" in group for group in optimizer.param_groups) else -1,
    )
    if scheduler.last_epoch != last_epoch + 1:  # a fresh optimizer: torch has just put the cycle's rates into it
        scheduler.last_epoch = last_epoch
        scheduler._initial_step()
    return scheduler


@for_each_optimizer
def get_cosine_annealing_lr(optimizer: Optimizer, t_max: int, eta_min: float, last_epoch: int = -1) -> LRScheduler:
    """Along a cosine to `eta_min` within `t_max` steps; beyond them it rises again, as torch's does."""
    _set_base_lr(optimizer, last_epoch)
    return _CosineAnnealingLR(optimizer, T_max=t_max, eta_min=eta_min, last_epoch=last_epoch)


@for_each_optimizer
def get_linear_warmup_cosine_annealing_lr(
    optimizer: Optimizer,
    warmup_steps: int,
    total_steps: int,
    initial_lr: float,
    final_lr: float,
    max_lr: float,
    last_epoch: int = -1,
) -> LRScheduler:
    """From `initial_lr` linearly to `max_lr`, then along a cosine to `final_lr`, where it stays.

    torch's SequentialLR, so that the state has the names that it has in Modalities.

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
    rise = _WarmUp(optimizer, start_factor=initial_lr / max_lr, total_iters=warmup_steps)
    fall = _CosineDecay(optimizer, T_max=total_steps - warmup_steps, eta_min=final_lr)
    scheduler = SequentialLR(optimizer, [rise, fall], [warmup_steps])
    if last_epoch >= 0:
        num_steps = last_epoch + 1
        active = rise if num_steps < warmup_steps else fall
        rise.last_epoch = min(num_steps, warmup_steps) - 1
        active.last_epoch = (num_steps if active is rise else num_steps - warmup_steps) - 1
        active._initial_step()
        scheduler.last_epoch = num_steps
        scheduler._last_lr = active.get_last_lr()
    return scheduler


def _set_base_lr(optimizer: Optimizer, last_epoch: int) -> None:
    """torch's schedulers that start in the middle want to find the base learning rate in the groups."""
    if last_epoch >= 0:
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
