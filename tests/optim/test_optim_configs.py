"""Configs of losses, optimizers, schedulers and clippers: names, choices, and checks that need nothing built."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from torch import nn

from modalities_pipeline.config.interfaces import DEVICE_MESH, MODULE, NUMBER, OPTIMIZER, PIPELINE
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.distributed.configs import DeviceMeshConfig
from modalities_pipeline.distributed.pipeline_configs import ComponentSelectorFromPipelineConfig
from modalities_pipeline.optim.configs import (
    AdamWOptimizerConfig,
    FSDP1GradientClipperConfig,
    FSDP1LoggingOnlyGradientClipperConfig,
    FSDP2GradientClipperConfig,
    FSDP2LoggingOnlyGradientClipperConfig,
    GradientClippingMode,
)
from modalities_pipeline.optim.loss_configs import NCELossConfig
from modalities_pipeline.optim.scheduler_configs import (
    LinearWarmupCosineAnnealingLRSchedulerConfig,
    OneCycleLRSchedulerConfig,
)

MODEL = Unbuilt("model", "gpt2", MODULE)
ADAM_W = {
    "lr": 1e-3,
    "betas": [0.9, 0.95],
    "eps": 1e-8,
    "weight_decay": 0.1,
    "weight_decay_groups_excluded": [],
    "wrapped_model": MODEL,
}
WARMUP = {"warmup_steps": 3, "total_steps": 10, "initial_lr": 1e-5, "final_lr": 1e-4, "max_lr": 1e-3}


def _optimizer(lr: float) -> Unbuilt:
    return Unbuilt("optimizer", "adam_w", OPTIMIZER, AdamWOptimizerConfig(**{**ADAM_W, "lr": lr}))


@pytest.mark.parametrize("config_type", [FSDP1GradientClipperConfig, FSDP2GradientClipperConfig])
@pytest.mark.parametrize("key", ["model_parts", "wrapped_model"])
@pytest.mark.parametrize(("written", "mode"), [("P1_NORM", 1), (2, 2), ("inf", "inf"), ("MAX_NORM", "inf")])
def test_clippers_take_both_names_of_the_model_and_norms_by_name_or_value(config_type, key, written, mode):
    config = config_type(**{key: nn.Linear(2, 2), "norm_type": written, "max_norm": 1.0})
    assert isinstance(config.model_parts, nn.Linear)
    assert config.norm_type is GradientClippingMode(mode)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm_type": "P3_NORM"}, "'P1_NORM', 'P2_NORM' or 'MAX_NORM'"),
        ({"norm_type": True}, "norm_type"),
        ({"max_norm": 0.0}, "max_norm"),
        ({"max_norm": "1.0"}, "max_norm"),
        ({"wrapped_model": MODEL}, "wrapped_model"),
    ],
)
def test_clippers_refuse_what_makes_no_sense(changes, message):
    fields = {"model_parts": MODEL, "norm_type": "P2_NORM", "max_norm": 1.0}
    with pytest.raises(ValidationError, match=message):
        FSDP2GradientClipperConfig(**{**fields, **changes})


def test_clippers_need_no_device_mesh():
    config = FSDP2LoggingOnlyGradientClipperConfig(wrapped_model=[MODEL, MODEL], norm_type="P2_NORM")
    assert config.device_mesh is None
    assert config.model_parts == [MODEL, MODEL]


def test_clippers_of_one_module_take_one():
    with pytest.raises(ValidationError, match="wrapped_model"):
        FSDP1LoggingOnlyGradientClipperConfig(wrapped_model=[MODEL], norm_type="P2_NORM")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"betas": [0.9, 1.0]}, "betas"),
        ({"betas": [0.9]}, "betas"),
        ({"lr": -1}, "lr"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"wrapped_model": _optimizer(1.0)}, "has to be a Module .* optimizer/adam_w is an Optimizer"),
        ({"learning_rate": 1.0}, "learning_rate"),
    ],
)
def test_optimizers_refuse_what_makes_no_sense(changes, message):
    with pytest.raises(ValidationError, match=message):
        AdamWOptimizerConfig(**{**ADAM_W, **changes})


def test_optimizers_take_the_parts_of_a_model():
    assert AdamWOptimizerConfig(**{**ADAM_W, "wrapped_model": [MODEL, MODEL]}).wrapped_model == [MODEL, MODEL]


def test_two_kinds_of_kernels_at_once_are_refused():
    with pytest.raises(ValidationError, match=r"fused\n.*foreach is true as well"):
        AdamWOptimizerConfig(**ADAM_W, foreach=True, fused=True)
    assert AdamWOptimizerConfig(**ADAM_W, foreach=False, fused=True).fused


class _Model(BaseModel):
    """Fields of a model, or of one around it, that other components look at."""

    model_config = {"arbitrary_types_allowed": True}
    use_meta_device: bool | None = None
    model: Any = None


def _around(variant_key: str, model: Any) -> Unbuilt:
    return Unbuilt("model", variant_key, MODULE, _Model(model=model))


def test_an_optimizer_of_a_model_without_weights_is_refused():
    raw = Unbuilt("model", "gpt2", MODULE, _Model(use_meta_device=True))
    sharded = _around("fsdp2_wrapped", _around("compiled", raw))
    with pytest.raises(ValidationError, match=r"wrapped_model\n.*give the one of model_initialized"):
        AdamWOptimizerConfig(**{**ADAM_W, "wrapped_model": sharded})
    in_memory = Unbuilt("model", "gpt2", MODULE, _Model(use_meta_device=False))
    for model in (_around("model_initialized", sharded), _around("compiled", in_memory), _around("mine", raw)):
        assert AdamWOptimizerConfig(**{**ADAM_W, "wrapped_model": model})


def test_clippers_of_a_pipeline_need_its_mesh():
    """W22: the norm would be that of one rank's parts."""
    pipeline = Unbuilt("pipeline", "staged", PIPELINE)
    selection = ComponentSelectorFromPipelineConfig(pipeline=pipeline, selection_type="MODEL_PART")
    parts = _around("fsdp2_wrapped", Unbuilt("pipeline", "selector", None, selection))
    fields = {"model_parts": parts, "norm_type": "P2_NORM", "max_norm": 1.0}
    with pytest.raises(ValidationError, match=r"device_mesh\n.*give the run's mesh"):
        FSDP2GradientClipperConfig(**fields)
    for pp_degree in (1, 2):
        degrees = {"data_parallel_shard_degree": 1, "pipeline_parallel_degree": pp_degree, "world_size": pp_degree}
        mesh = Unbuilt("device_mesh", "default", DEVICE_MESH, DeviceMeshConfig(device_type="cpu", **degrees))
        if pp_degree == 2:
            assert FSDP2GradientClipperConfig(**fields, device_mesh=mesh)
            continue
        with pytest.raises(ValidationError, match=r"device_mesh\n.*no pipeline_parallel_degree above 1"):
            FSDP2GradientClipperConfig(**fields, device_mesh=mesh)


@pytest.mark.parametrize(("excluded", "num_groups"), [([], 1), (["norms"], 2)])
def test_lists_of_a_cycle_have_an_entry_for_each_group(excluded, num_groups):
    config = AdamWOptimizerConfig(**{**ADAM_W, "weight_decay_groups_excluded": excluded})
    fields = {"optimizer": Unbuilt("optimizer", "adam_w", OPTIMIZER, config), "anneal_strategy": "cos"}
    fields |= {"total_steps": 10, "pct_start": 0.2, "div_factor": 10.0, "final_div_factor": 10.0}
    assert OneCycleLRSchedulerConfig(**fields, max_lr=[1.0] * num_groups)
    with pytest.raises(ValidationError, match=rf"max_lr\n.*has 3 entries, but the optimizer has {num_groups} groups"):
        OneCycleLRSchedulerConfig(**fields, max_lr=[1.0] * 3)


def test_the_optimizers_rate_is_compared_before_anything_is_built():
    """B078"""
    assert LinearWarmupCosineAnnealingLRSchedulerConfig(**WARMUP, optimizer=_optimizer(1e-3))
    with pytest.raises(ValidationError, match=r"max_lr\n.*0\.001 is not the optimizer's lr \(0\.002\)"):
        LinearWarmupCosineAnnealingLRSchedulerConfig(**WARMUP, optimizer=_optimizer(2e-3))


def test_all_that_is_wrong_with_a_warmup_is_said_at_once():
    fields = {**WARMUP, "total_steps": 2, "initial_lr": 1, "optimizer": _optimizer(2e-3)}
    with pytest.raises(ValidationError) as caught:
        LinearWarmupCosineAnnealingLRSchedulerConfig(**fields)
    assert [error["loc"] for error in caught.value.errors()] == [("total_steps",), ("initial_lr",), ("max_lr",)]


def test_steps_have_to_be_integers_and_rates_take_them():
    optimizer = _optimizer(1.0)
    fields = {**WARMUP, "max_lr": 1, "final_lr": 0, "optimizer": optimizer}
    assert LinearWarmupCosineAnnealingLRSchedulerConfig(**fields).max_lr == 1.0
    for value in (3.0, "3", True, Unbuilt("number_conversion", "x", NUMBER)):
        with pytest.raises(ValidationError, match="warmup_steps"):
            LinearWarmupCosineAnnealingLRSchedulerConfig(**{**fields, "warmup_steps": value})


def test_losses_have_the_defaults_of_modalities():
    config = NCELossConfig(prediction_key1="a", prediction_key2="b")
    assert (config.is_asymmetric, config.temperature) == (True, 1.0)


@pytest.mark.parametrize("key", ["lr", "eps", "weight_decay"])
@pytest.mark.parametrize("value", [float("inf"), "inf", float("nan"), True])
def test_numbers_of_optimizers_are_finite_and_no_truth_values(key, value):
    with pytest.raises(ValidationError) as caught:
        AdamWOptimizerConfig(**{**ADAM_W, key: value})
    assert [error["loc"] for error in caught.value.errors()] == [(key,)]
    assert AdamWOptimizerConfig(**{**ADAM_W, "lr": "1e-4"}).lr == 1e-4


def test_a_norm_to_clip_at_and_rates_of_schedules_are_finite():
    with pytest.raises(ValidationError, match="max_norm"):
        FSDP2GradientClipperConfig(model_parts=nn.Linear(2, 2), norm_type=2, max_norm=float("inf"))
    with pytest.raises(ValidationError, match="max_lr"):
        LinearWarmupCosineAnnealingLRSchedulerConfig(
            **{**WARMUP, "optimizer": _optimizer(1e-3), "max_lr": float("inf")}
        )


@pytest.mark.parametrize("length", [{"total_steps": 10}, {"epochs": 2, "steps_per_epoch": 5}])
def test_a_cycle_whose_rise_is_one_step_is_refused(length):
    fields = {"optimizer": _optimizer(1e-3), "max_lr": 1e-3, "anneal_strategy": "cos", "div_factor": 10.0}
    fields = {**fields, "final_div_factor": 10.0, **length}
    assert OneCycleLRSchedulerConfig(**fields, pct_start=0.2).pct_start == 0.2
    with pytest.raises(ValidationError, match="is a single step"):
        OneCycleLRSchedulerConfig(**fields, pct_start=0.1)
