"""Initial weights: their distribution, and that they depend on seed and name only."""

import math

import pytest
import torch
from torch import nn

from modalities_pipeline.exceptions import ConfigError, ModelStateError
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.initialization import (
    GPT2Llama3LikeInitializer,
    get_composed_model_initializer,
    get_initialized_model,
    normalized_name,
)
from modalities_pipeline.models.initialization_configs import WeightInitTypes

PLAIN = {"model_type": "gpt2", "weight_init_type": WeightInitTypes.PLAIN, "mean": 0.0, "std": 0.02}
MODELS = {
    "abs_gelu_ln_tied_mha": "abs_gelu_ln_tied_mha",
    # The vectors' manual twin of this model; attention has no bearing on the weights.
    "rope_swiglu_prms_gqa": "rope_swiglu_prms_gqa_flash",
    "rope_swiglu_prms_mqa_qknorm": "rope_swiglu_prms_mqa_qknorm",
}


def _initializer(component, config):
    if component == "gpt2_llama3_like":
        return GPT2Llama3LikeInitializer(**config)
    return get_composed_model_initializer(**{**config, "weight_init_type": WeightInitTypes(config["weight_init_type"])})


def _weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("model_name", sorted(MODELS))
@pytest.mark.parametrize(
    "scheme", ["plain", "plain_auto", "scaled", "scaled_embed", "scaled_auto", "llama3_depth", "llama3_nodepth"]
)
def test_means_and_deviations_match_modalities(model_name, scheme, read_vectors):
    case = read_vectors("initialisation.json")["stats"][model_name][scheme]
    model = build_gpt2(**read_vectors("gpt2_models.json")["configs"][MODELS[model_name]]["config"])
    initializer = _initializer(case["component"], case["config"])
    if "error" in case["stats"]:
        with pytest.raises(ValueError, match="gpt2_llama3_like"):
            get_initialized_model(model, initializer)
        return
    get_initialized_model(model, initializer)
    for name, parameter in model.named_parameters():
        expected = case["stats"][name]
        if expected["std"] == 0:
            assert torch.all(parameter == expected["mean"]), name
        elif parameter.numel() >= 8192:
            assert parameter.std().item() == pytest.approx(expected["std"], rel=0.03), name
            assert parameter.mean().item() == pytest.approx(0, abs=0.05 * expected["std"]), name


def test_equal_seeds_give_equal_weights_and_other_seeds_others(make_gpt2_config):
    initializer = get_composed_model_initializer(**PLAIN)
    first, second, other = (
        _weights(get_initialized_model(build_gpt2(**make_gpt2_config(seed=seed)), initializer)) for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    name = "transformer.wte.weight"
    assert not torch.equal(first[name], other[name])


def test_layers_of_equal_shape_differ(make_gpt2_config):
    model = get_initialized_model(build_gpt2(**make_gpt2_config()), get_composed_model_initializer(**PLAIN))
    weights = _weights(model)
    assert not torch.equal(weights["transformer.h.0.mlp.W.weight"], weights["transformer.h.1.mlp.W.weight"])


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_from_the_meta_device_equals_one_that_had_memory(tied, make_gpt2_config):
    """A tied model stays one (B063)."""
    initializer = get_composed_model_initializer(**PLAIN)
    config = make_gpt2_config(use_weight_tying=tied)
    plain = get_initialized_model(build_gpt2(**config), initializer)
    from_meta = get_initialized_model(build_gpt2(**config, use_meta_device=True), initializer)
    assert all(torch.equal(value, from_meta.state_dict()[key]) for key, value in plain.state_dict().items())
    head, embedding = from_meta.transformer["lm_head"].weight, from_meta.transformer["wte"].weight
    assert (head is embedding) == tied
    assert torch.equal(plain(torch.arange(8)[None]), from_meta(torch.arange(8)[None]))


def test_initialisation_leaves_the_global_generator_alone(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config())
    before = torch.get_rng_state()
    get_initialized_model(model, get_composed_model_initializer(**PLAIN))
    assert torch.equal(before, torch.get_rng_state())


def test_a_layer_that_no_rule_covers_is_named(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config())
    model.transformer["adapter"] = nn.Linear(4, 4)
    with pytest.raises(ModelStateError, match=r"transformer\.adapter\.bias, transformer\.adapter\.weight"):
        get_initialized_model(model, get_composed_model_initializer(**PLAIN))


def test_a_model_partly_on_the_meta_device_is_refused(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config())
    model.transformer["lm_head"].to("meta")
    with pytest.raises(ModelStateError, match="1 of 23 parameters and buffers"):
        get_initialized_model(model, get_composed_model_initializer(**PLAIN))


def test_names_are_matched_without_what_wrappers_put_in(make_gpt2_config):
    assert normalized_name("transformer.h.0._checkpoint_wrapped_module._orig_mod.attn.q_attn.weight") == (
        "transformer.h.0.attn.q_attn.weight"
    )


def test_llama3_like_initialisation_refuses_biases(make_gpt2_config):
    with pytest.raises(ConfigError, match=r"without biases, but there is transformer\.h\.0\.attn\.q_attn\.bias"):
        get_initialized_model(build_gpt2(**make_gpt2_config(bias=True)), GPT2Llama3LikeInitializer(2, 128))


def test_llama3_like_initialisation_cuts_the_head_at_three_deviations(make_gpt2_config):
    model = get_initialized_model(build_gpt2(**make_gpt2_config()), GPT2Llama3LikeInitializer(2, 128))
    assert model.transformer["lm_head"].weight.abs().max() <= 3 / math.sqrt(128)
