"""Configs of learning rate schedulers; each step of one is an optimizer step. Imports no torch."""

from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, are_known, raise_at_keys
from modalities_pipeline.config.pydantic_if_types import PydanticOptimizerIFType
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.optim.configs import AdamOptimizerConfig

_Steps = Annotated[int, Field(strict=True, gt=0)]
_LastEpoch = Annotated[int, Field(strict=True, ge=-1, description="index of the last step done; -1 for a fresh run")]
_Rate = Annotated[float, Field(strict=True, ge=0.0)]
_PositiveFloat = Annotated[float, Field(strict=True, gt=0.0)]
_Fraction = Annotated[float, Field(strict=True, ge=0.0, le=1.0)]
_PositiveFraction = Annotated[float, Field(strict=True, gt=0.0, le=1.0)]


class DummyLRSchedulerConfig(ComponentConfig):
    """Fields of `dummy_lr`."""

    optimizer: PydanticOptimizerIFType


class StepLRSchedulerConfig(ComponentConfig):
    """Fields of `step_lr`."""

    optimizer: PydanticOptimizerIFType
    step_size: _Steps
    gamma: Annotated[_Rate, Field(examples=[0.1])]
    last_epoch: _LastEpoch = -1


class ConstantLRSchedulerConfig(ComponentConfig):
    """Fields of `constant_lr`."""

    optimizer: PydanticOptimizerIFType
    factor: _Fraction
    total_iters: Annotated[_Steps, Field(description="steps with the factor")]
    last_epoch: _LastEpoch = -1


class LinearLRSchedulerConfig(ComponentConfig):
    """Fields of `linear_lr`."""

    optimizer: PydanticOptimizerIFType
    start_factor: Annotated[_PositiveFraction, Field(examples=[0.1])]
    end_factor: Annotated[_Fraction, Field(examples=[1.0])]
    total_iters: Annotated[_Steps, Field(description="steps from the one factor to the other")]
    last_epoch: _LastEpoch = -1


class OneCycleLRSchedulerConfig(ComponentConfig):
    """Fields of `onecycle_lr`; the length is `total_steps`, or `epochs` times `steps_per_epoch`."""

    optimizer: PydanticOptimizerIFType
    max_lr: Annotated[_PositiveFloat | list[_PositiveFloat], Field(examples=[1e-4])]
    total_steps: Annotated[_Steps | None, Field(examples=[1000])] = None
    epochs: _Steps | None = None
    steps_per_epoch: _Steps | None = None
    pct_start: Annotated[
        _PositiveFraction, Field(examples=[0.01], description="part of the steps in which the rate rises")
    ]
    anneal_strategy: Literal["cos", "linear"]
    cycle_momentum: bool = False
    base_momentum: _PositiveFloat | list[_PositiveFloat] = 0.85
    max_momentum: _PositiveFloat | list[_PositiveFloat] = 0.95
    div_factor: Annotated[_PositiveFloat, Field(examples=[10.0], description="the first rate is max_lr divided by it")]
    final_div_factor: Annotated[_PositiveFloat, Field(description="the last rate is the first one divided by it")]
    three_phase: bool = False
    last_epoch: _LastEpoch = -1

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if self.total_steps is None and (self.epochs is None or self.steps_per_epoch is None):
            raise ValueError("give total_steps, or both epochs and steps_per_epoch")
        return self


class CosineAnnealingLRSchedulerConfig(ComponentConfig):
    """Fields of `cosine_annealing_lr`; `t_max` may also be written as torch does, `T_max`."""

    optimizer: PydanticOptimizerIFType
    t_max: _Steps = Field(validation_alias=AliasChoices("t_max", "T_max"), description="steps down to eta_min")
    eta_min: Annotated[_Rate, Field(examples=[1e-5])]
    last_epoch: _LastEpoch = -1


class LinearWarmupCosineAnnealingLRSchedulerConfig(ComponentConfig):
    """Fields of `linear_warmup_cosine_annealing_lr`."""

    optimizer: PydanticOptimizerIFType
    warmup_steps: Annotated[_Steps, Field(examples=[100])]
    total_steps: Annotated[
        _Steps, Field(examples=[1000], description="warm-up included; after them the rate stays at final_lr")
    ]
    initial_lr: Annotated[_Rate, Field(examples=[0.0])]
    final_lr: Annotated[_Rate, Field(examples=[1e-5])]
    max_lr: Annotated[_Rate, Field(examples=[1e-4], description="has to be the optimizer's lr")]
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
