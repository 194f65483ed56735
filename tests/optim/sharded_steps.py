"""Optimizers, clippers and app states on 2 ranks against a plain model; run by torchrun, raises where they differ."""

import copy
import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.distributed.env import DistributedEnv, get_rank
from modalities_pipeline.distributed.mesh import get_device_mesh
from modalities_pipeline.models.model import NNModel
from modalities_pipeline.optim.configs import GradientClippingMode
from modalities_pipeline.optim.gradient_clipping import FSDPGradientClipper, FSDPLoggingOnlyGradientClipper
from modalities_pipeline.optim.optimizers import get_adam_w
from modalities_pipeline.optim.schedulers import get_step_lr

MAX_NORM = 0.5


class Network(NNModel):
    """Three layers; the last has one output, so that its parameters lie on rank 0 alone when they are sharded."""

    def __init__(self) -> None:
        super().__init__(weight_decay_groups={"weights": ["weight$"], "biases": ["bias$"]})
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.ModuleDict({"first": nn.Linear(4, 8), "middle": nn.Linear(8, 6), "last": nn.Linear(6, 1)})

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Predictions of shape (batch, 1)."""
        for layer in self.layers.values():
            inputs = torch.tanh(layer(inputs))
        return inputs


def fsdp2(model: Network) -> nn.Module:
    """Sharded over both ranks."""
    return fully_shard(model, mesh=get_device_mesh(2, 2, "cpu"))


def fsdp2_and_tensor_parallel(model: Network) -> nn.Module:
    """Two layers on a mesh of two dimensions, the last on one of them."""
    mesh = get_device_mesh(1, 2, "cpu", tensor_parallel_degree=2)
    parallelize_module(model, mesh["tp"], {"layers.first": ColwiseParallel(), "layers.middle": RowwiseParallel()})
    return fully_shard(model, mesh=mesh["dp_shard"])


def fsdp1(model: Network) -> nn.Module:
    """Sharded over both ranks by the older way."""
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)


def check_clipping(wrap: Callable[[Network], nn.Module]) -> None:
    """Norm (B052), also where a rank's shard of a gradient is empty; measuring leaves gradients as they are."""
    for mode in GradientClippingMode:
        plain, model = Network(), wrap(Network())
        _backward(plain)
        _backward(model)
        expected = FSDPGradientClipper(plain, mode, MAX_NORM).clip_gradients()
        for _ in range(2):
            measured = FSDPLoggingOnlyGradientClipper(model, mode).clip_gradients()
            assert measured.item() == pytest.approx(expected.item(), rel=1e-5), (wrap, mode)
        norm = FSDPGradientClipper(model, mode, MAX_NORM).clip_gradients()
        assert norm.item() == pytest.approx(expected.item(), rel=1e-5), (wrap, mode)
        clipped = FSDPLoggingOnlyGradientClipper(model, mode).clip_gradients()
        assert clipped.item() == pytest.approx(MAX_NORM, rel=1e-4), (wrap, mode)
        if wrap is not fsdp1:
            for parameter, other in zip(model.parameters(), plain.parameters(), strict=True):
                assert torch.allclose(_full(parameter.grad), other.grad, rtol=1e-4, atol=1e-7)


def check_not_finite() -> None:
    """A NaN in the shard of one rank is seen by both (B053)."""
    for mode in GradientClippingMode:
        model = fsdp2(Network())
        _backward(model)
        if get_rank() == 1:
            model.layers["middle"].weight.grad.to_local()[0, 0] = torch.nan
        assert not FSDPGradientClipper(model, mode, MAX_NORM).clip_gradients().isfinite(), mode
        part = nn.Linear(1, 1)
        for parameter in part.parameters():
            parameter.grad = torch.full_like(parameter, torch.nan if get_rank() == 1 else 1.0)
        mesh = get_device_mesh(1, 2, "cpu", pipeline_parallel_degree=2)
        assert not FSDPGradientClipper([part], mode, MAX_NORM, device_mesh=mesh).clip_gradients().isfinite(), mode


def check_pipeline_norm() -> None:
    """Each rank has other parameters; then rank 1 has no gradients at all (W22: also the largest one)."""
    mesh = get_device_mesh(1, 2, "cpu", pipeline_parallel_degree=2)
    for mode, is_last_idle in itertools.product(GradientClippingMode, (False, True)):
        plain = Network()
        _backward(plain)
        parts = [plain.layers["first"], plain.layers["last"]]
        if is_last_idle:
            parts[1].zero_grad()
        own = copy.deepcopy(parts[get_rank()])
        for parameter, other in zip(own.parameters(), parts[get_rank()].parameters(), strict=True):
            parameter.grad = None if other.grad is None else other.grad.clone()
        expected = FSDPGradientClipper(parts, mode, MAX_NORM).clip_gradients()
        norm = FSDPGradientClipper([own], mode, MAX_NORM, device_mesh=mesh).clip_gradients()
        assert norm.item() == pytest.approx(expected.item(), rel=1e-6), mode
        for parameter, other in zip(own.parameters(), parts[get_rank()].parameters(), strict=True):
            assert (parameter.grad is None) == (other.grad is None)
            assert parameter.grad is None or torch.allclose(parameter.grad, other.grad, rtol=1e-5)


def check_steps(wrap: Callable[[Network], nn.Module], kernels: dict[str, bool], folder: Path) -> None:
    """Steps, and a checkpoint in between; ranks have the same groups though shards of the last layer are empty."""
    plain, model = Network(), wrap(Network())
    expected, app_state = _app_state(plain, {}), _app_state(model, kernels)
    if wrap is fsdp2:
        shards = [parameter.to_local().numel() for parameter in model.layers["last"].parameters()]
        assert shards == ([6, 1] if get_rank() == 0 else [0, 0])
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    _assert_same_on_ranks([[names[id(p)] for p in group["params"]] for group in app_state.optimizer.param_groups])
    for state in (expected, app_state):
        _step(state, 3)
    _assert_same_on_ranks(sorted(app_state.state_dict()["optimizer"]))
    dcp.save({"app": app_state}, checkpoint_id=folder)
    resumed = _app_state(wrap(Network()), kernels)
    dcp.load({"app": resumed}, checkpoint_id=folder)
    for state in (expected, app_state, resumed):
        _step(state, 2)
    for trained in (model, resumed.model_parts[0]):
        for parameter, other in zip(trained.parameters(), plain.parameters(), strict=True):
            assert torch.allclose(_full(parameter.detach()), other, rtol=0, atol=2e-6), kernels
    whole = _app_state(Network(), {})
    dcp.load({"app": whole}, checkpoint_id=folder, no_dist=True)
    _step(whole, 2)
    for parameter, other in zip(whole.model_parts[0].parameters(), plain.parameters(), strict=True):
        assert torch.allclose(parameter, other, rtol=0, atol=2e-6), kernels


def _app_state(model: nn.Module, kernels: dict[str, bool]) -> AppState:
    optimizer = get_adam_w(1e-2, model, (0.9, 0.95), 1e-6, 0.1, ["biases"], **kernels)
    return AppState(model, optimizer, get_step_lr(optimizer, 2, 0.5))


def _step(app_state: AppState, count: int) -> None:
    for _ in range(count):
        _backward(app_state.model_parts[0])
        app_state.optimizer.step()
        app_state.lr_scheduler.step()
        app_state.optimizer.zero_grad()


def _backward(model: nn.Module) -> None:
    inputs = torch.arange(12.0).view(3, 4) / 10 - 0.5
    (5 * model(inputs)).square().sum().backward()


def _full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _assert_same_on_ranks(value: object) -> None:
    values: list[object] = [None] * 2
    dist.all_gather_object(values, value)
    assert values[0] == values[1], values


if __name__ == "__main__":
    with DistributedEnv():
        for wrapper in (fsdp2, fsdp2_and_tensor_parallel, fsdp1):
            check_clipping(wrapper)
        check_not_finite()
        check_pipeline_norm()
        for number, (wrapper, options) in enumerate(
            itertools.product((fsdp2, fsdp2_and_tensor_parallel), ({}, {"foreach": True}, {"fused": True}))
        ):
            check_steps(wrapper, options, Path(sys.argv[1]) / str(number))
