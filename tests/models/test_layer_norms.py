"""Norm layers, and which one a config makes."""

import warnings

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from modalities_pipeline.models.layer_norms import RMSLayerNorm, build_norm
from modalities_pipeline.models.norm_configs import LayerNormWrapperConfig

NORMS = {
    "layer_norm eps1e-6": ("layer_norm", {"normalized_shape": 8, "eps": 1e-6}),
    "layer_norm nobias eps1e-5": ("layer_norm", {"normalized_shape": 8, "eps": 1e-5, "bias": False}),
    "rms_norm bias eps1e-6": ("rms_norm", {"ndim": 8, "epsilon": 1e-6}),
    "rms_norm nobias eps0.5": ("rms_norm", {"ndim": 8, "epsilon": 0.5, "bias": False}),
    "pytorch_rms_norm eps1e-5": ("pytorch_rms_norm", {"normalized_shape": 8, "eps": 1e-5}),
}


@pytest.mark.parametrize("name", sorted(NORMS))
def test_outputs_match_modalities(name, read_vectors, fill):
    vectors = read_vectors("norms.json")
    norm_type, config = NORMS[name]
    norm = build_norm(LayerNormWrapperConfig(norm_type=norm_type, config=config))
    fill(norm)
    x = torch.tensor(vectors["input"])
    assert torch.allclose(norm(x), torch.tensor(vectors["outputs"][name]), rtol=0, atol=1e-6)
    outputs = norm.to(torch.bfloat16)(x.to(torch.bfloat16))
    assert [str(outputs.dtype)] == vectors["outputs"][f"{name} bf16 input"]


def test_the_norm_of_small_numbers_is_computed_in_float32():
    """Their squares are 0 in float16."""
    x = torch.full((1, 8), 1e-4, dtype=torch.float16)
    norm = RMSLayerNorm(8, bias=False, epsilon=1e-12).to(torch.float16)
    assert torch.allclose(norm(x).float(), torch.ones(1, 8), atol=1e-3)


def test_no_norm_warns_that_another_is_faster():
    """Modalities calls rms_norm slow, which it is not (W35)."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_norm(LayerNormWrapperConfig(norm_type="rms_norm", config={"ndim": 8}))


def test_gain_and_bias_can_be_reset(fill):
    norm = RMSLayerNorm(8)
    fill(norm)
    norm.reset_parameters()
    assert torch.equal(norm.weight, torch.ones(8))
    assert torch.equal(norm.bias, torch.zeros(8))


@pytest.mark.parametrize(
    ("norm_type", "config", "kind", "eps"),
    [
        ("layer_norm", {"normalized_shape": 8}, nn.LayerNorm, 1e-5),
        ("layer_norm", {"normalized_shape": 8, "bias": False}, nn.LayerNorm, 1e-6),
        ("layer_norm", {"normalized_shape": 8, "elementwise_affine": True}, nn.LayerNorm, 1e-6),
        ("layer_norm", {"normalized_shape": 8, "eps": 1e-4}, nn.LayerNorm, 1e-4),
        ("rms_norm", {"ndim": 8}, RMSLayerNorm, 1e-6),
        ("pytorch_rms_norm", {"normalized_shape": 8}, nn.RMSNorm, 1e-5),
    ],
)
def test_norm_type_decides_the_layer_and_its_default_eps(norm_type, config, kind, eps):
    """Modalities builds the first of its kinds that takes the fields (W12); the numbers are the same."""
    wrapper = LayerNormWrapperConfig(norm_type=norm_type, config=config)
    norm = build_norm(wrapper)
    assert type(norm) is kind
    assert (norm.epsilon if kind is RMSLayerNorm else norm.eps) == wrapper.epsilon == eps
    assert wrapper.dimension == 8


@pytest.mark.parametrize(
    ("norm_type", "config", "key"),
    [
        ("rms_norm", {"normalized_shape": 8}, ("config", "normalized_shape")),
        ("pytorch_rms_norm", {"normalized_shape": 8, "bias": True}, ("config", "bias")),
        ("layer_norm", {"normalized_shape": 0}, ("config", "normalized_shape")),
        ("rms", {"ndim": 8}, ("norm_type",)),
    ],
)
def test_a_field_of_another_norm_is_refused_by_name(norm_type, config, key):
    with pytest.raises(ValidationError) as caught:
        LayerNormWrapperConfig(norm_type=norm_type, config=config)
    assert key in [error["loc"] for error in caught.value.errors()]
