"""Configs of learning rate schedulers; each step of one is an optimizer step. Imports no torch."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, are_known, raise_at_keys
from modalities_pipeline.config.pydantic_if_types import PydanticOptimizerIFType
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.optim.configs import AdamOptimizerConfig

_Optimizer = Annotated[PydanticOptimizerIFType, Field(description="whose learning rate is set")]
_Steps = Annotated[int, Field(strict=True, gt=0)]
_LastEpoch = Annotated[int, Field(strict=True, ge=-1, description="index of the last step done; -1 for a fresh run")]
_Rate = Annotated[float, Field(strict=True, ge=0.0, allow_inf_nan=False)]
_PositiveFloat = Annotated[float, Field(strict=True, gt=0.0, allow_inf_nan=False)]
_Momentum = Annotated[float, Field(strict=True, gt=0.0, lt=1.0)]
_Fraction = Annotated[float, Field(strict=True, ge=0.0, le=1.0)]
_PositiveFraction = Annotated[float, Field(strict=True, gt=0.0, le=1.0)]


class DummyLRSchedulerConfig(ComponentConfig):
    """Fields of `dummy_lr`."""

    optimizer: _Optimizer


class StepLRSchedulerConfig(ComponentConfig):
    """Fields of `step_lr`."""

    optimizer: _Optimizer
    step_size: Annotated[_Steps, Field(description="steps with the same rate")]
    gamma: Annotated[_Rate, Field(examples=[0.1], description="the rate is multiplied by it after so many steps")]
    last_epoch: _LastEpoch = -1


class ConstantLRSchedulerConfig(ComponentConfig):
    """Fields of `constant_lr`."""

    optimizer: _Optimizer
    factor: Annotated[_Fraction, Field(description="of the optimizer's rate, at first")]
    total_iters: Annotated[_Steps, Field(description="steps with the factor")]
    last_epoch: _LastEpoch = -1


class LinearLRSchedulerConfig(ComponentConfig):
    """Fields of `linear_lr`."""

    optimizer: _Optimizer
    start_factor: Annotated[_PositiveFraction, Field(examples=[0.1], description="of the optimizer's rate, at first")]
    end_factor: Annotated[_Fraction, Field(examples=[1.0], description="of the optimizer's rate, in the end")]
    total_iters: Annotated[_Steps, Field(description="steps from the one factor to the other")]
    last_epoch: _LastEpoch = -1


class OneCycleLRSchedulerConfig(ComponentConfig):
    """Fields of `onecycle_lr`; the length is `total_steps`, or `epochs` times `steps_per_epoch`."""

    optimizer: _Optimizer
    max_lr: Annotated[
        _PositiveFloat | list[_PositiveFloat],
        Field(examples=[1e-4], description="the highest rate; a list: of each group of parameters"),
    ]
    total_steps: Annotated[_Steps | None, Field(examples=[1000], description="length of the schedule")] = None
    epochs: Annotated[_Steps | None, Field(description="with steps_per_epoch, instead of total_steps")] = None
    steps_per_epoch: Annotated[_Steps | None, Field(description="with epochs, instead of total_steps")] = None
    pct_start: Annotated[
        _PositiveFraction, Field(examples=[0.01], description="part of the steps in which the rate rises")
    ]
    anneal_strategy: Annotated[Literal["cos", "linear"], Field(description="form of rise and fall")]
    cycle_momentum: Annotated[bool, Field(description="whether the momentum falls while the rate rises")] = False
    base_momentum: Annotated[_Momentum | list[_Momentum], Field(description="at the highest rate")] = 0.85
    max_momentum: Annotated[_Momentum | list[_Momentum], Field(description="at the lowest rate")] = 0.95
    div_factor: Annotated[_PositiveFloat, Field(examples=[10.0], description="the first rate is max_lr divided by it")]
    final_div_factor: Annotated[_PositiveFloat, Field(description="the last rate is the first one divided by it")]
    three_phase: Annotated[bool, Field(description="whether the rate falls as long as it rose, then to the last")] = (
        False
    )
    last_epoch: _LastEpoch = -1

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.total_steps is None and (self.epochs is None or self.steps_per_epoch is None):
            raise ValueError("give total_steps, or both epochs and steps_per_epoch")
        raise_at_keys(self, [*self._faults_of_length(), *self._faults_of_lists()])
        return self

    def _faults_of_length(self) -> Iterator[tuple[str, str]]:
        product = (self.epochs or 0) * (self.steps_per_epoch or 0)
        if self.total_steps is not None:
            num_steps, of_what = self.total_steps, "total_steps"
            if product not in (0, num_steps):
                yield (
                    "total_steps",
                    f"{num_steps} is not epochs times steps_per_epoch ({product}); leave one of them out",
                )
        else:
            num_steps, of_what = product, "epochs times steps_per_epoch"
        if self.pct_start * num_steps == 1:  # torch divides by the steps between the first and the highest rate
            message = (
                f"{self.pct_start} of {of_what} ({num_steps}) is a single step, in which no rate can rise; raise it"
            )
            yield "pct_start", message

    def _faults_of_lists(self) -> Iterator[tuple[str, str]]:
        optimizer = self.optimizer.config if isinstance(self.optimizer, Unbuilt) else None
        if not isinstance(optimizer, AdamOptimizerConfig) or not are_known(optimizer.weight_decay):
            return
        num_groups = 2 if optimizer.weight_decay and optimizer.weight_decay_groups_excluded else 1
        for name in ("max_lr", "base_momentum", "max_momentum"):
            values = getattr(self, name)
            if isinstance(values, list) and len(values) != num_groups:
                yield name, f"has {len(values)} entries, but the optimizer has {num_groups} groups of parameters"


class CosineAnnealingLRSchedulerConfig(ComponentConfig):
    """Fields of `cosine_annealing_lr`."""

    optimizer: _Optimizer
    t_max: _Steps = Field(validation_alias=AliasChoices("t_max", "T_max"), description="steps down to eta_min")
    eta_min: Annotated[_Rate, Field(examples=[1e-5], description="the last learning rate")]
    last_epoch: _LastEpoch = -1


class LinearWarmupCosineAnnealingLRSchedulerConfig(ComponentConfig):
    """Fields of `linear_warmup_cosine_annealing_lr`."""

    optimizer: _Optimizer
    warmup_steps: Annotated[_Steps, Field(examples=[100], description="steps from initial_lr up to max_lr")]
    total_steps: Annotated[
        _Steps, Field(examples=[1000], description="warm-up included; after them the rate stays at final_lr")
    ]
    initial_lr: Annotated[_Rate, Field(examples=[0.0], description="the first learning rate")]
    final_lr: Annotated[_Rate, Field(examples=[1e-5], description="the last learning rate")]
    max_lr: Annotated[
        _PositiveFloat, Field(examples=[1e-4], description="the highest learning rate; has to be the optimizer's lr")
    ]
    last_epoch: _LastEpoch = -1

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        faults = []
        if are_known(self.total_steps, self.warmup_steps) and self.total_steps <= self.warmup_steps:
            faults.append(("total_steps", f"{self.total_steps} is not greater than warmup_steps ({self.warmup_steps})"))
        if are_known(self.initial_lr, self.max_lr) and self.initial_lr > self.max_lr:
            faults.append(("initial_lr", f"{self.initial_lr} is greater than max_lr ({self.max_lr})"))
        optimizer = self.optimizer.config if isinstance(self.optimizer, Unbuilt) else None
        lr = optimizer.lr if isinstance(optimizer, AdamOptimizerConfig) else self.max_lr
        if are_known(lr, self.max_lr) and lr != self.max_lr:
            faults.append(("max_lr", f"{self.max_lr} is not the optimizer's lr ({lr}); make them equal"))
        raise_at_keys(self, faults)
        return self
