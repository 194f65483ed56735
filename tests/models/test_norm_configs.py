"""Configs of norms: chosen by kind, or given as components under their old names."""

import pytest
from pydantic import BaseModel, ValidationError
from torch import nn

from modalities_pipeline.config.interfaces import MODULE
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.distributed.wrapping_configs import CompiledModelConfig
from modalities_pipeline.models.configs import GPT2LLMConfig
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.layer_norms import RMSLayerNorm
from modalities_pipeline.models.norm_configs import LayerNormConfig, LayerNorms, LayerNormWrapperConfig

MODEL = Unbuilt("model", "gpt2", MODULE)


def _locations(config_type: type[BaseModel], fields: dict) -> list[tuple[str | int, ...]]:
    with pytest.raises(ValidationError) as caught:
        config_type.model_validate(fields)
    return [error["loc"] for error in caught.value.errors()]


def _with_norm_components(fields: dict, norm: object) -> dict:
    """The fields with `norm` under the names that Modalities' first releases have."""
    names = ("attention_norm", "ffn_norm", "lm_head_norm")
    return {key: value for key, value in fields.items() if not key.endswith("_norm_config")} | dict.fromkeys(
        names, norm
    )


def test_norms_may_be_components_under_their_old_names(make_gpt2_config):
    """Every place gets a norm of its own, with the settings of the one that was given."""
    model = build_gpt2(**_with_norm_components(make_gpt2_config(), RMSLayerNorm(128, bias=False, epsilon=1e-3)))
    norms = [module for module in model.modules() if isinstance(module, RMSLayerNorm)]
    assert len({id(norm) for norm in norms}) == 2 * 2 + 1
    assert {(norm.epsilon, norm.bias) for norm in norms} == {(1e-3, None)}
    assert model.config.lm_head_norm_config.norm_type is LayerNorms.rms_norm


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        ("LayerNorm", {"normalized_shape": 128, "eps": 1e-6, "elementwise_affine": True, "bias": False}),
        ("RMSNorm", {"normalized_shape": 128, "eps": 1e-4}),
    ],
)
def test_norms_of_torch_are_taken_with_their_settings(norm, expected, make_gpt2_config):
    built = getattr(nn, norm)(**expected)
    config = GPT2LLMConfig(**_with_norm_components(make_gpt2_config(), built))
    assert config.ffn_norm_config.config.model_dump() == expected


def test_a_norm_component_is_checked_before_it_is_built(make_gpt2_config):
    def unbuilt(size: int) -> Unbuilt:
        return Unbuilt("layer_norm", "layer_norm", MODULE, LayerNormConfig(normalized_shape=size))

    no_norm = Unbuilt("model", "compiled", MODULE, CompiledModelConfig(model=MODEL, block_names=[]))
    config = GPT2LLMConfig(**_with_norm_components(make_gpt2_config(), unbuilt(128)))
    assert config.attention_norm_config.epsilon == 1e-6
    with pytest.raises(ValidationError, match="the norm is of size 64"):
        GPT2LLMConfig(**_with_norm_components(make_gpt2_config(), unbuilt(64)))
    with pytest.raises(ValidationError, match=r"or a component layer_norm/\.\.\., not model/compiled"):
        GPT2LLMConfig(**_with_norm_components(make_gpt2_config(), no_norm))


def test_a_faulty_norm_component_is_not_complained_about_twice(make_gpt2_config):
    faulty = Unbuilt("layer_norm", "layer_norm", MODULE)
    assert GPT2LLMConfig(**_with_norm_components(make_gpt2_config(), faulty)).ffn_norm_config is faulty


@pytest.mark.parametrize(
    ("fields", "location", "message"),
    [
        ({"norm_type": "rms_norm", "config": {"ndim": 8, "eps": 1}}, ("config", "eps"), "unknown key of rms_norm"),
        (
            {"norm_type": "pytorch_rms_norm", "config": {"normalized_shap": 8}},
            ("config", "normalized_shap"),
            "did you mean 'normalized_shape'",
        ),
        ({"norm_type": "rms", "config": {"what": 1}}, ("norm_type",), "'rms_norm', 'layer_norm' or 'pytorch_rms_norm'"),
    ],
)
def test_a_key_that_does_not_fit_the_norm_type_is_named(fields, location, message):
    """B077"""
    assert location in _locations(LayerNormWrapperConfig, fields)
    with pytest.raises(ValidationError, match=message):
        LayerNormWrapperConfig.model_validate(fields)


def test_a_misspelt_key_is_one_fault():
    fields = {"norm_type": "pytorch_rms_norm", "config": {"normalized_shap": 8}}
    assert _locations(LayerNormWrapperConfig, fields) == [("config", "normalized_shap")]


def test_a_faulty_norm_type_is_one_fault():
    assert _locations(LayerNormWrapperConfig, {"norm_type": "rms", "config": {}}) == [("norm_type",)]
