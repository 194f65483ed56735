"""Optimizers of several model parts as one."""

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from modalities_pipeline.exceptions import CheckpointingError, OptimizerError
from modalities_pipeline.models.model import NNModel
from modalities_pipeline.optim.optimizers import get_adam_w
from modalities_pipeline.optim.optimizers_list import OptimizersList

OPTIONS = {"lr": 0.1, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "weight_decay_groups_excluded": ["norm"]}


class Part(NNModel):
    """Some of the layers of a model with decayed and other parameters."""

    def __init__(self, *names: str) -> None:
        super().__init__(weight_decay_groups={"linear": ["linear"], "norm": ["norm"]})
        self.layers = nn.ParameterDict({name: nn.Parameter(torch.arange(3.0)) for name in names})


def _parts() -> list[Part]:
    return [Part("a_norm"), Part("b_linear", "c_norm")]


def _step(optimizer: Optimizer, parts: list[Part], seed: int) -> None:
    torch.manual_seed(seed)
    for part in parts:
        for parameter in part.parameters():
            parameter.grad = torch.randn(3)
    optimizer.step()
    optimizer.zero_grad()


def _weights(parts: list[Part]) -> list[list[float]]:
    return [parameter.tolist() for part in parts for parameter in part.parameters()]


def test_parts_are_trained_as_the_whole_model_is():
    """A part may have parameters of one side of the decay only."""
    parts, whole = _parts(), Part("a_norm", "b_linear", "c_norm")
    joint, single = get_adam_w(wrapped_model=parts, **OPTIONS), get_adam_w(wrapped_model=whole, **OPTIONS)
    assert isinstance(joint, OptimizersList)
    assert isinstance(joint, Optimizer)
    assert [group["weight_decay"] for group in joint.param_groups] == [0.0, 0.1, 0.0]
    for step in range(3):
        _step(joint, parts, step)
        _step(single, [whole], step)
    assert _weights(parts) == _weights([whole])
    assert all(parameter.grad is None for part in parts for parameter in part.parameters())


def test_a_list_of_one_part_is_a_part_too():
    joint = get_adam_w(wrapped_model=[Part("a_norm")], **OPTIONS)
    assert [group["weight_decay"] for group in joint.param_groups] == [0.0]


def test_faults_of_parts_are_still_found():
    with pytest.raises(OptimizerError, match="has no group bias"):
        get_adam_w(wrapped_model=_parts(), **{**OPTIONS, "weight_decay_groups_excluded": ["bias"]})
    with pytest.raises(OptimizerError, match="is in no weight decay group"):
        get_adam_w(wrapped_model=[Part("a_norm"), Part("other")], **OPTIONS)
    frozen = Part("c_norm").requires_grad_(False)
    with pytest.raises(OptimizerError, match="The model part has no trainable parameters"):
        get_adam_w(wrapped_model=[Part("a_norm"), frozen], **OPTIONS)


def test_a_state_holds_all_parts_by_name_and_goes_on_where_it_was_taken():
    parts = _parts()
    optimizer = get_adam_w(wrapped_model=parts, **OPTIONS)
    for step in range(2):
        _step(optimizer, parts, step)
    state, weights = optimizer.state_dict(), [part.state_dict() for part in parts]
    assert {"state.layers.a_norm.exp_avg", "param_groups.layers.b_linear.weight_decay"} <= state.keys()
    state = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in state.items()}
    others = _parts()
    for part, saved in zip(others, weights, strict=True):
        part.load_state_dict(saved)
    resumed = get_adam_w(wrapped_model=others, **{**OPTIONS, "lr": 1.0})
    resumed.load_state_dict(state)
    assert [group["lr"] for group in resumed.param_groups] == [0.1, 0.1, 0.1]
    _step(optimizer, parts, 2)
    _step(resumed, others, 2)
    assert _weights(others) == _weights(parts)


def test_a_changed_learning_rate_reaches_the_optimizers_also_after_a_state_was_loaded():
    optimizer = get_adam_w(wrapped_model=_parts(), **OPTIONS)
    optimizer.load_state_dict(optimizer.state_dict())
    for group in optimizer.param_groups:
        group["lr"] = 0.5
    assert [group["lr"] for inner in optimizer.optimizers for group in inner.param_groups] == [0.5, 0.5, 0.5]


def test_a_state_that_lacks_a_parameter_is_refused():
    optimizer = get_adam_w(wrapped_model=_parts(), **OPTIONS)
    state = {key: value for key, value in optimizer.state_dict().items() if "b_linear" not in key}
    with pytest.raises(CheckpointingError, match=r"lacks 14 entries, such as param_groups\.layers\.b_linear"):
        optimizer.load_state_dict(state)


def test_parts_with_parameters_of_the_same_name_cannot_be_saved():
    optimizer = get_adam_w(wrapped_model=[Part("a_norm"), Part("a_norm")], **OPTIONS)
    with pytest.raises(CheckpointingError, match=r"Two model parts have .*layers\.a_norm"):
        optimizer.state_dict()


def test_every_part_needs_an_optimizer():
    with pytest.raises(OptimizerError, match="2 model parts and 1 optimizers"):
        OptimizersList(_parts(), [get_adam_w(wrapped_model=Part("a_norm"), **{**OPTIONS, "weight_decay": 0.0})])
    with pytest.raises(OptimizerError, match="0 model parts"):
        get_adam_w(wrapped_model=[], **OPTIONS)


def test_a_closure_is_called_once():
    optimizer = get_adam_w(wrapped_model=_parts(), **OPTIONS)
    calls = []
    assert optimizer.step(lambda: calls.append(1) or 7.0) == 7.0
    assert calls == [1]
