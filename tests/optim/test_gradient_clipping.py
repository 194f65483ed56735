"""Gradient clipping: norms, clipped gradients, names of settings."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from modalities_pipeline.exceptions import ConfigError, TrainingError
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.optim.configs import GradientClippingMode
from modalities_pipeline.optim.gradient_clipping import (
    DummyGradientClipper,
    FSDPGradientClipper,
    FSDPLoggingOnlyGradientClipper,
)

VECTORS = json.loads((Path(__file__).parent / "vectors" / "gradient_clipping.json").read_text("utf-8"))
CASES = [name for name in VECTORS if name != "grads_before"]


def _model() -> nn.Module:
    shapes = {name: torch.tensor(values).shape for name, values in VECTORS["grads_before"].items()}
    model = nn.Sequential(*(nn.Linear(shapes[f"{i}.weight"][1], shapes[f"{i}.weight"][0]) for i in range(2)))
    for name, parameter in model.named_parameters():
        parameter.grad = torch.tensor(VECTORS["grads_before"][name])
    return model


def _gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("case", CASES)
def test_norm_and_clipped_gradients_match_modalities(case):
    mode, max_norm = case.split(" max_norm=")
    model = _model()
    norm = FSDPGradientClipper(model, GradientClippingMode[mode], float(max_norm)).clip_gradients()
    assert norm.shape == ()
    assert norm.item() == pytest.approx(VECTORS[case]["norm_before"], rel=1e-6)
    for name, gradient in _gradients(model).items():
        assert torch.allclose(gradient, torch.tensor(VECTORS[case]["after"][name]), rtol=1e-5, atol=1e-7)


def test_the_clipper_that_only_measures_leaves_gradients_alone():
    model = _model()
    before = _gradients(model)
    norm = FSDPLoggingOnlyGradientClipper(model, GradientClippingMode.P2_NORM).clip_gradients()
    assert norm.item() == pytest.approx(VECTORS["P2_NORM max_norm=0.5"]["norm_before"], rel=1e-6)
    assert all(torch.equal(gradient, before[name]) for name, gradient in _gradients(model).items())


def test_parts_of_a_model_are_clipped_by_their_common_norm():
    model = _model()
    norm = FSDPGradientClipper([model[0], model[1]], GradientClippingMode.P2_NORM, 0.5).clip_gradients()
    assert norm.item() == pytest.approx(VECTORS["P2_NORM max_norm=0.5"]["norm_before"], rel=1e-6)


def test_without_gradients_the_norm_is_zero():
    assert FSDPGradientClipper(nn.Linear(2, 2), GradientClippingMode.P2_NORM, 1.0).clip_gradients().item() == 0.0


def test_a_gradient_that_is_not_finite_shows_in_the_norm():
    """So that the trainer can stop before the optimizer's step (B053)."""
    model = _model()
    model[0].weight.grad[0, 0] = torch.inf
    norm = FSDPGradientClipper(model, GradientClippingMode.P2_NORM, 1.0).clip_gradients()
    assert not torch.isfinite(norm)


@pytest.mark.parametrize("mode", GradientClippingMode)
def test_a_norm_that_is_not_finite_can_be_an_error(mode):
    model = _model()
    model[1].bias.grad[0] = torch.nan
    clipper = FSDPGradientClipper(model, mode, 1.0, error_if_nonfinite=True)
    with pytest.raises(TrainingError, match=f"gradients' {mode.name} is nan"):
        clipper.clip_gradients()


@pytest.mark.parametrize("mode", GradientClippingMode)
@pytest.mark.parametrize("foreach", [True, False])
def test_parameters_on_a_mesh_and_others_are_clipped_together(mode, foreach, process_group):
    """As with tensor parallelism, where some parameters are on another mesh, or on none; W22 for the largest one."""
    expected, model = _model(), _model()
    parallelize_module(model, init_device_mesh("cpu", (1,)), {"1": ColwiseParallel()})
    assert isinstance(model[1].weight, DTensor)
    gradients = {name: torch.tensor(values) for name, values in VECTORS["grads_before"].items()}
    mesh = model[1].weight.device_mesh
    for name, parameter in model.named_parameters():
        gradient = gradients[name]
        parameter.grad = distribute_tensor(gradient, mesh, [Shard(0)]) if name.startswith("1") else gradient
    norm = FSDPGradientClipper(model, mode, 0.5, foreach=foreach).clip_gradients()
    assert norm.item() == pytest.approx(FSDPGradientClipper(expected, mode, 0.5).clip_gradients().item(), rel=1e-6)
    for name, gradient in _gradients(model).items():
        full = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
        assert torch.allclose(full, _gradients(expected)[name], rtol=1e-5, atol=1e-7)


def test_a_tied_parameter_counts_once():
    model = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)])
    model[1].weight = model[0].weight
    model[0].weight.grad = torch.ones(2, 2)
    for parts in (model, list(model)):
        clipper = FSDPGradientClipper(parts, GradientClippingMode.P1_NORM, 2.0)
        model[0].weight.grad.fill_(1.0)
        assert clipper.clip_gradients().item() == 4.0
        assert torch.allclose(model[0].weight.grad, torch.full((2, 2), 0.5))


def test_gradients_are_clipped_once_after_all_micro_batches(make_gpt2_config, fill):
    """B050: the norm is that of the sum, so that micro batches of any size are clipped alike."""
    model = build_gpt2(**make_gpt2_config(n_layer=1))
    fill(model)
    tokens = torch.arange(64).view(4, 16)
    norms = []
    for num_micro_batches in (1, 4):
        model.zero_grad()
        for micro_batch in tokens.chunk(num_micro_batches):
            model({"input_ids": micro_batch})["logits"].square().sum().backward()
        norms.append(FSDPGradientClipper(model, GradientClippingMode.P2_NORM, 0.1).clip_gradients().item())
        clipped = FSDPLoggingOnlyGradientClipper(model, GradientClippingMode.P2_NORM).clip_gradients()
        assert clipped.item() == pytest.approx(0.1, rel=1e-4)
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)


def test_an_fsdp1_model_among_other_parts_is_refused(process_group):
    model = FullyShardedDataParallel(nn.Linear(2, 2), device_id=torch.device("cpu"))
    for parts in ([model, nn.Linear(2, 2)], nn.Sequential(model, nn.Linear(2, 2))):
        with pytest.raises(ConfigError, match="FSDP1 models are clipped as a whole"):
            FSDPGradientClipper(parts, GradientClippingMode.P2_NORM, 1.0)
    assert FSDPGradientClipper(nn.Sequential(model), GradientClippingMode.P2_NORM, 1.0)


def test_the_dummy_does_nothing():
    assert DummyGradientClipper().clip_gradients().tolist() == [-1.0]
