"""Learning rate curves, and what schedulers refuse."""

import json
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.optim import scheduler_configs, schedulers

CASES = json.loads((Path(__file__).parent / "vectors" / "schedulers.json").read_text("utf-8"))["cases"]
COMPONENTS = {
    "dummy_lr": (schedulers.DummyLRScheduler, scheduler_configs.DummyLRSchedulerConfig),
    "step_lr": (schedulers.get_step_lr, scheduler_configs.StepLRSchedulerConfig),
    "constant_lr": (schedulers.get_constant_lr, scheduler_configs.ConstantLRSchedulerConfig),
    "linear_lr": (schedulers.get_linear_lr, scheduler_configs.LinearLRSchedulerConfig),
    "onecycle_lr": (schedulers.get_onecycle_lr, scheduler_configs.OneCycleLRSchedulerConfig),
    "cosine_annealing_lr": (schedulers.get_cosine_annealing_lr, scheduler_configs.CosineAnnealingLRSchedulerConfig),
    "linear_warmup_cosine_annealing_lr": (
        schedulers.get_linear_warmup_cosine_annealing_lr,
        scheduler_configs.LinearWarmupCosineAnnealingLRSchedulerConfig,
    ),
}
WARMUP = {"warmup_steps": 3, "total_steps": 10, "initial_lr": 1e-5, "final_lr": 1e-4, "max_lr": 1e-3}


def _optimizer(lr: float = 1e-3) -> torch.optim.Optimizer:
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=lr, betas=(0.9, 0.95))


def _build(variant: str, config: dict, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """Build as the factory does: validated values under the names of the config's fields."""
    builder, config_type = COMPONENTS[variant]
    validated = config_type(**config, optimizer=optimizer)
    return builder(**{name: getattr(validated, name) for name in config_type.model_fields})


def _curve(
    scheduler: torch.optim.lr_scheduler.LRScheduler, optimizer: torch.optim.Optimizer, count: int
) -> list[float]:
    rates = [scheduler.get_last_lr()[0]]
    for _ in range(count - 1):
        optimizer.step()
        scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
    return rates


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "lr" in case and name != "warmup_cosine"])
def test_curves_match_modalities(name):
    case = CASES[name]
    optimizer = _optimizer(case["base_lr"])
    scheduler = _build(case["variant"], case["config"], optimizer)
    assert _curve(scheduler, optimizer, len(case["lr"])) == pytest.approx(case["lr"], rel=1e-9)


def test_warmup_and_cosine_match_modalities_up_to_the_end_and_stay_there():
    """Modalities' own curve rises again after the last step."""
    case = CASES["warmup_cosine"]
    optimizer = _optimizer(case["base_lr"])
    scheduler = _build(case["variant"], case["config"], optimizer)
    rates = _curve(scheduler, optimizer, 20)
    total_steps = case["config"]["total_steps"]
    assert rates[: total_steps + 1] == pytest.approx(case["lr"][: total_steps + 1], rel=1e-9)
    assert rates[total_steps:] == [case["config"]["final_lr"]] * (20 - total_steps)


def test_warmup_may_start_from_zero():
    optimizer = _optimizer()
    scheduler = _build("linear_warmup_cosine_annealing_lr", {**WARMUP, "initial_lr": 0.0}, optimizer)
    assert _curve(scheduler, optimizer, 4) == pytest.approx([0.0, 1e-3 / 3, 2e-3 / 3, 1e-3])


@pytest.mark.parametrize("name", ["t_max", "T_max"])
def test_cosine_annealing_takes_both_spellings_of_its_length(name):
    optimizer = _optimizer()
    scheduler = _build("cosine_annealing_lr", {name: 6, "eta_min": 1e-5}, optimizer)
    rates = _curve(scheduler, optimizer, 7)
    assert (rates[0], rates[3], rates[6]) == pytest.approx((1e-3, (1e-3 + 1e-5) / 2, 1e-5))


@pytest.mark.parametrize("variant", ["onecycle_lr", "linear_warmup_cosine_annealing_lr"])
def test_a_scheduler_restored_from_its_state_goes_on_like_the_uninterrupted_one(variant):
    """See B046."""
    config = WARMUP if variant != "onecycle_lr" else CASES["onecycle"]["config"]
    optimizer = _optimizer()
    expected = _curve(_build(variant, config, optimizer), optimizer, 10)
    first_optimizer = _optimizer()
    first = _build(variant, config, first_optimizer)
    _curve(first, first_optimizer, 5)
    second_optimizer = _optimizer()
    second = _build(variant, config, second_optimizer)
    second_optimizer.load_state_dict(first_optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    assert _curve(second, second_optimizer, 6) == expected[4:]


def test_a_scheduler_may_start_in_the_middle_of_a_fresh_optimizer():
    optimizer = _optimizer()
    scheduler = _build("linear_warmup_cosine_annealing_lr", {**WARMUP, "last_epoch": 3}, optimizer)
    assert scheduler.get_last_lr()[0] == pytest.approx(CASES["warmup_cosine"]["lr"][4])


def test_another_lr_than_the_optimizers_is_refused():
    with pytest.raises(ConfigError, match=r"max_lr is 0\.001, but the optimizer's lr is 0\.002"):
        _build("linear_warmup_cosine_annealing_lr", WARMUP, _optimizer(2e-3))


@pytest.mark.parametrize(
    ("variant", "config", "message"),
    [
        ("linear_warmup_cosine_annealing_lr", {**WARMUP, "total_steps": 3}, "is not greater than warmup_steps"),
        ("linear_warmup_cosine_annealing_lr", {**WARMUP, "initial_lr": 2e-3}, "is greater than max_lr"),
        ("onecycle_lr", {**CASES["onecycle"]["config"], "total_steps": None}, "give total_steps, or both epochs"),
        ("onecycle_lr", {**CASES["onecycle"]["config"], "anneal_strategy": "log"}, "anneal_strategy"),
        ("step_lr", {"step_size": 0, "gamma": 0.5}, "step_size"),
    ],
)
def test_settings_that_cannot_work_are_refused(variant, config, message):
    """Found when the config is read, not after an hour (B078)."""
    with pytest.raises(ValidationError, match=message):
        _build(variant, config, _optimizer())
