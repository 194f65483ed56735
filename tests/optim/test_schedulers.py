"""Learning rate curves, and what schedulers refuse."""

import copy
import json
import warnings
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.optim import scheduler_configs, schedulers

CASES = json.loads((Path(__file__).parent / "vectors" / "schedulers.json").read_text("utf-8"))["cases"]
COMPONENTS = {
    "dummy_lr": (schedulers.get_dummy_lr, scheduler_configs.DummyLRSchedulerConfig),
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
RESUMABLE = {
    "dummy": ("dummy_lr", {}),
    "step": ("step_lr", {"step_size": 2, "gamma": 0.5}),
    "constant": ("constant_lr", {"factor": 0.25, "total_iters": 4}),
    "linear": ("linear_lr", {"start_factor": 0.1, "end_factor": 1.0, "total_iters": 7}),
    "onecycle": ("onecycle_lr", CASES["onecycle"]["config"]),
    "onecycle in three phases": ("onecycle_lr", CASES["onecycle_linear_3phase"]["config"]),
    "cosine": ("cosine_annealing_lr", {"t_max": 7, "eta_min": 1e-5}),
    "warm-up and cosine": ("linear_warmup_cosine_annealing_lr", CASES["warmup_cosine"]["config"]),
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


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, case in CASES.items()
        if "lr" in case and name not in ("warmup_cosine", "step_resume_last_epoch_3_with_initial_lr")
    ],
)
def test_curves_match_modalities(name):
    """Up to a rate below 0 after the last step of a linear cycle, which is 0 here."""
    case = CASES[name]
    optimizer = _optimizer(case["base_lr"])
    scheduler = _build(case["variant"], case["config"], optimizer)
    expected = [max(lr, 0.0) for lr in case["lr"]]
    assert _curve(scheduler, optimizer, len(expected)) == pytest.approx(expected, rel=1e-9)


def test_a_start_in_the_middle_does_not_forget_the_decay_before_it():
    """B046: in Modalities the decay of step 3 is lost, so that all rates are double."""
    case = CASES["step_resume_last_epoch_3_with_initial_lr"]
    optimizer = _optimizer(case["base_lr"])
    scheduler = _build(case["variant"], case["config"], optimizer)
    gamma = case["config"]["gamma"]
    assert _curve(scheduler, optimizer, len(case["lr"])) == pytest.approx([lr * gamma for lr in case["lr"]], rel=1e-9)


def test_warmup_and_cosine_match_modalities_up_to_the_end_and_stay_there():
    """Modalities' own curve rises again after the last step; all that is left to a run is one rate of it."""
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


@pytest.mark.parametrize("name", RESUMABLE)
def test_a_scheduler_restored_from_its_state_goes_on_like_the_uninterrupted_one(name):
    """B046: rates of steps 1-10 and of 1-5, a restart, 6-10; the base rate of a changed config counts for nothing."""
    variant, config = RESUMABLE[name]
    optimizer = _optimizer()
    expected = _curve(_build(variant, config, optimizer), optimizer, 10)
    assert len(set(expected)) > 1 or variant == "dummy_lr"
    first_optimizer = _optimizer()
    first = _build(variant, config, first_optimizer)
    assert _curve(first, first_optimizer, 6) == expected[:6]
    states = copy.deepcopy((first_optimizer.state_dict(), first.state_dict()))
    second_optimizer = _optimizer(1e-3 if "warmup" in variant else 0.5)
    second = _build(variant, config, second_optimizer)
    second_optimizer.load_state_dict(states[0])
    second.load_state_dict(states[1])
    assert _curve(second, second_optimizer, 5) == expected[5:]
    assert second_optimizer.param_groups[0]["lr"] == expected[-1]


@pytest.mark.parametrize("name", [name for name, (variant, _) in RESUMABLE.items() if variant != "dummy_lr"])
@pytest.mark.parametrize("num_steps", [1, 3, 5, 9])
def test_a_scheduler_that_starts_in_the_middle_goes_on_like_the_uninterrupted_one(name, num_steps):
    """B046, with a fresh optimizer and with one that was restored from a checkpoint."""
    variant, config = RESUMABLE[name]
    optimizer = _optimizer()
    scheduler = _build(variant, config, optimizer)
    expected = _curve(scheduler, optimizer, num_steps + 1)
    restored, fresh = _optimizer(), _optimizer()
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    expected += _curve(scheduler, optimizer, 11 - num_steps)[1:]
    for resumed in (restored, fresh):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            later = _build(variant, {**config, "last_epoch": num_steps - 1}, resumed)
        assert later.last_epoch == num_steps
        assert _curve(later, resumed, 11 - num_steps) == expected[num_steps:]


@pytest.mark.parametrize("variant", ["step_lr", "constant_lr", "linear_lr", "cosine_annealing_lr"])
def test_no_rate_is_negative(variant):
    """Multiplying step by step, as torch does, ends below 0 now and then."""
    fields = {
        "step_lr": {"step_size": 3, "gamma": 0.0},
        "constant_lr": {"factor": 0.0, "total_iters": 3},
        "linear_lr": {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 49},
        "cosine_annealing_lr": {"t_max": 49, "eta_min": 0.0},
    }
    optimizer = _optimizer()
    rates = _curve(_build(variant, fields[variant], optimizer), optimizer, 100)
    assert min(rates) == 0.0


@pytest.mark.parametrize("anneal_strategy", ["cos", "linear"])
@pytest.mark.parametrize("three_phase", [False, True])
@pytest.mark.parametrize("pct_start", [0.01, 0.25, 0.5, 0.55, 0.9, 1.0])
def test_a_cycle_lasts_for_all_its_steps_and_no_longer(anneal_strategy, three_phase, pct_start):
    """Never below 0, and no division by zero where the rise takes all steps."""
    config = {"max_lr": 6e-4, "div_factor": 10.0, "final_div_factor": 100.0, "total_steps": 10, "pct_start": pct_start}
    config |= {"anneal_strategy": anneal_strategy, "three_phase": three_phase}
    optimizer = _optimizer()
    scheduler = _build("onecycle_lr", config, optimizer)
    rates = _curve(scheduler, optimizer, 11)
    assert all(0.0 <= rate <= 6e-4 * (1 + 1e-9) for rate in rates)
    with pytest.raises(ConfigError, match="the schedule is made for 10 steps, but step 11 was done"):
        scheduler.step()


def test_a_cycle_moves_the_momentum_against_the_rate_and_resumes_there():
    config = {**CASES["onecycle"]["config"], "cycle_momentum": True}
    optimizer, fresh = _optimizer(), _optimizer()
    scheduler = _build("onecycle_lr", config, optimizer)
    assert optimizer.param_groups[0]["betas"] == (pytest.approx(0.95), 0.95)
    _curve(scheduler, optimizer, 3)
    assert optimizer.param_groups[0]["betas"] == (pytest.approx(0.85), 0.95)
    _build("onecycle_lr", {**config, "last_epoch": 1}, fresh)
    assert fresh.param_groups[0]["betas"] == optimizer.param_groups[0]["betas"]


def test_the_momentum_stays_where_a_cycle_ends():
    """The formula goes on, to a momentum above 1, in which the optimizer's checkpoint would be useless."""
    lengths = {"total_steps": 3, "pct_start": 0.9, "anneal_strategy": "linear", "three_phase": False}
    config = {**CASES["onecycle"]["config"], **lengths, "cycle_momentum": True}
    optimizer = _optimizer()
    scheduler = _build("onecycle_lr", config, optimizer)
    momenta = []
    for _ in range(3):
        optimizer.step()
        scheduler.step()
        momenta.append(optimizer.param_groups[0]["betas"][0])
    assert momenta[-1] == momenta[-2] <= 0.95


def test_rates_of_a_cycle_are_one_for_each_group():
    parameters = [{"params": [torch.nn.Parameter(torch.zeros(1))]} for _ in range(2)]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    config = CASES["onecycle"]["config"]
    scheduler = _build("onecycle_lr", {**config, "max_lr": [1e-3, 2e-3]}, optimizer)
    assert scheduler.get_last_lr() == pytest.approx([1e-4, 2e-4])
    with pytest.raises(ConfigError, match="max_lr has 3 entries, but the optimizer has 2 groups"):
        _build("onecycle_lr", {**config, "max_lr": [1e-3, 2e-3, 3e-3]}, optimizer)


def test_the_dummy_warns_whoever_asks_for_its_next_rate():
    scheduler = _build("dummy_lr", {}, _optimizer())
    assert scheduler._get_closed_form_lr() == scheduler.base_lrs == [1e-3]
    with pytest.warns(UserWarning, match="use get_last_lr"):
        assert scheduler.get_lr() == [1e-3]


def test_another_lr_than_the_optimizers_is_refused():
    with pytest.raises(ConfigError, match=r"max_lr is 0\.001, but the optimizer's lr is 0\.002"):
        _build("linear_warmup_cosine_annealing_lr", WARMUP, _optimizer(2e-3))


@pytest.mark.parametrize(
    ("variant", "config", "message"),
    [
        ("linear_warmup_cosine_annealing_lr", {**WARMUP, "total_steps": 3}, "is not greater than warmup_steps"),
        ("linear_warmup_cosine_annealing_lr", {**WARMUP, "initial_lr": 2e-3}, "is greater than max_lr"),
        ("linear_warmup_cosine_annealing_lr", {**WARMUP, "max_lr": 0.0, "initial_lr": 0.0}, "max_lr"),
        ("onecycle_lr", {**CASES["onecycle"]["config"], "epochs": 3, "steps_per_epoch": 5}, "12 is not epochs times"),
        ("onecycle_lr", {**CASES["onecycle"]["config"], "max_momentum": 1.0}, "max_momentum"),
        ("onecycle_lr", {**CASES["onecycle"]["config"], "total_steps": None}, "give total_steps, or both epochs"),
        ("onecycle_lr", {**CASES["onecycle"]["config"], "anneal_strategy": "log"}, "anneal_strategy"),
        ("step_lr", {"step_size": 0, "gamma": 0.5}, "step_size"),
    ],
)
def test_settings_that_cannot_work_are_refused(variant, config, message):
    """Found when the config is read, not after an hour (B078)."""
    with pytest.raises(ValidationError, match=message):
        _build(variant, config, _optimizer())
