"""Schedulers of several model parts as one."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.optim import schedulers
from modalities_pipeline.optim.optimizers_list import OptimizersList
from modalities_pipeline.optim.schedulers_list import SchedulerList

BUILD = {
    "dummy": lambda optimizer: schedulers.get_dummy_lr(optimizer=optimizer),
    "step": lambda optimizer: schedulers.get_step_lr(optimizer, 2, 0.5),
    "constant": lambda optimizer: schedulers.get_constant_lr(optimizer, 0.5, 3),
    "linear": lambda optimizer: schedulers.get_linear_lr(optimizer, 0.1, 1.0, 4),
    "onecycle": lambda optimizer: schedulers.get_onecycle_lr(optimizer, 1.0, 0.3, "cos", 10.0, 10.0, total_steps=20),
    "cosine": lambda optimizer: schedulers.get_cosine_annealing_lr(optimizer, t_max=9, eta_min=0.1),
    "warm-up and cosine": lambda optimizer: schedulers.get_linear_warmup_cosine_annealing_lr(
        optimizer, 3, 9, 0.0, 0.1, 1.0
    ),
}


def _optimizers(*nums_groups: int) -> OptimizersList:
    """Optimizers of parts with so many groups of parameters each."""
    parts = [nn.ParameterList(torch.zeros(1) for _ in range(num_groups)) for num_groups in nums_groups]
    inner = [torch.optim.AdamW([{"params": [parameter]} for parameter in part], lr=1.0) for part in parts]
    return OptimizersList(parts, inner)


def _run(scheduler: LRScheduler, optimizer: OptimizersList, num_steps: int) -> list[list[float]]:
    rates = []
    for _ in range(num_steps):
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("name", BUILD)
def test_all_parts_have_the_rate_of_a_single_optimizer(name):
    optimizer, single = _optimizers(1, 2), _optimizers(1)
    joint = BUILD[name](optimizer)
    assert isinstance(joint, SchedulerList)
    assert isinstance(joint, LRScheduler)
    expected = _run(BUILD[name](single.optimizers[0]), single, 8)
    assert _run(joint, optimizer, 8) == [3 * rates for rates in expected]
    assert joint.get_last_lr() == [group["lr"] for group in single.param_groups]
    assert (joint.last_epoch, joint.base_lrs) == (8, [0.1 if name == "onecycle" else 1.0])
    assert joint.optimizer is optimizer.optimizers[0]


@pytest.mark.parametrize("name", BUILD)
@pytest.mark.parametrize("nums_groups", [(1, 2), (2, 1)])
def test_a_state_goes_on_where_it_was_taken_whatever_the_groups(name, nums_groups):
    """A checkpoint has the state of one part, which may have other groups of parameters than the rest has."""
    optimizer = _optimizers(*nums_groups)
    scheduler = BUILD[name](optimizer)
    _run(scheduler, optimizer, 4)
    state = copy.deepcopy(scheduler.state_dict())
    rate = optimizer.param_groups[0]["lr"]
    expected = [rates[:1] * 3 for rates in _run(scheduler, optimizer, 5)]
    for other in (_optimizers(1, 2), _optimizers(2, 1)):
        resumed = BUILD[name](other)
        resumed.load_state_dict(state)
        for group in other.param_groups:
            group["lr"] = rate
        assert _run(resumed, other, 5) == expected


def test_schedulers_do_not_share_what_was_loaded():
    optimizer = _optimizers(1, 1)
    scheduler = BUILD["step"](optimizer)
    scheduler.load_state_dict(scheduler.state_dict())
    assert scheduler.schedulers[0].base_lrs is not scheduler.schedulers[1].base_lrs


def test_a_list_of_none_is_refused():
    with pytest.raises(ConfigError, match="at least one scheduler"):
        SchedulerList([])
