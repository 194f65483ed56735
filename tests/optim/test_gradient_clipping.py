"""Gradient clipping: norms, clipped gradients, names of settings."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

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


def test_the_dummy_does_nothing():
    assert DummyGradientClipper().clip_gradients().tolist() == [-1.0]
