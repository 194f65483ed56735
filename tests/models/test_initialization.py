"""Initial weights: their distribution, and that they depend on seed and name only."""

import json
import math
import weakref
from pathlib import Path

import pytest
import torch
from coca_helpers import coca_config
from pydantic import ValidationError
from torch import nn

from modalities_pipeline.distributed.activation_checkpointing import get_activation_checkpointed_model
from modalities_pipeline.distributed.compilation import get_compiled_model
from modalities_pipeline.distributed.configs import MixedPrecisionSettings, ShardingStrategy
from modalities_pipeline.distributed.fsdp1 import get_fsdp1_wrapped_model
from modalities_pipeline.distributed.pipeline_stages import cut_stages
from modalities_pipeline.distributed.wrapping_configs import ActivationCheckpointingVariants, FullACParams
from modalities_pipeline.exceptions import ConfigError, ModelStateError
from modalities_pipeline.models.coca import build_coca
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.initialization import (
    GPT2Llama3LikeInitializer,
    get_composed_model_initializer,
    get_initialized_model,
)
from modalities_pipeline.models.initialization_configs import ComposedModelInitializationConfig, WeightInitTypes
from modalities_pipeline.models.initialization_rules import InitializationRule, RuleBasedInitializer, normal
from modalities_pipeline.models.parameters import normalized_name

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


def test_one_full_parameter_is_in_memory_at_a_time():
    drawn: list[weakref.ref] = []

    def draw(full: torch.Tensor, generator: torch.Generator) -> None:
        assert not any(reference() is not None for reference in drawn)
        assert (full.dtype, full.device.type) == (torch.float32, "cpu")
        drawn.append(weakref.ref(full.zero_()))

    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to(torch.bfloat16)
    get_initialized_model(model, RuleBasedInitializer([InitializationRule(".*", draw)]))
    assert len(drawn) == 4


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


def test_wrapped_models_get_the_weights_of_plain_ones(make_gpt2_config, process_group):
    """W1: below activation checkpointing, torch.compile and FSDP1, rules matched nothing."""
    initializer = get_composed_model_initializer(**PLAIN)
    expected = _weights(get_initialized_model(build_gpt2(**make_gpt2_config()), initializer))
    model = build_gpt2(**make_gpt2_config())
    full = ActivationCheckpointingVariants.FULL_ACTIVATION_CHECKPOINTING
    model = get_compiled_model(
        get_activation_checkpointed_model(full, "transformer.h", model, FullACParams()), ["GPT2Block"]
    )
    kinds = MixedPrecisionSettings.NO_MIXED_PRECISION, ShardingStrategy.NO_SHARD
    model = get_fsdp1_wrapped_model(model, False, *kinds, ["GPT2Block"])
    names = [name for name, _ in model.named_parameters()]
    assert all(any(prefix in name for name in names) for prefix in ("_fsdp_wrapped_", "_orig_mod", "_checkpoint_"))
    get_initialized_model(model, initializer)
    assert all(torch.equal(value, expected[normalized_name(name)]) for name, value in _weights(model).items())
    assert len(names) == len(expected)


class _Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("table", torch.ones(4))


def test_what_nobody_fills_after_the_meta_device_is_an_error():
    """W21: parameters that no rule matched were uninitialised memory."""
    initializer = RuleBasedInitializer([InitializationRule(r"linear\.weight", normal(0.0, 1.0))])
    with torch.device("meta"):
        model = _Adapted()
    with pytest.raises(ModelStateError, match="these have no values: scale, table"):
        get_initialized_model(model, initializer)
    model = get_initialized_model(_Adapted(), initializer)
    assert torch.equal(model.scale, torch.ones(4))


@pytest.mark.parametrize("layer", [nn.Linear(2, 2), nn.Embedding(2, 2), nn.Conv2d(1, 1, 2)])
def test_a_layer_that_draws_its_weights_has_to_be_covered(layer):
    with pytest.raises(ModelStateError, match=r"matches these parameters: .*0\.weight"):
        get_initialized_model(nn.Sequential(layer), RuleBasedInitializer([]))


def test_each_part_of_a_pipeline_gets_its_weights_of_the_whole(make_gpt2_config):
    initializer = get_composed_model_initializer(**PLAIN)
    expected = _weights(get_initialized_model(build_gpt2(**make_gpt2_config()), initializer))
    parts = get_initialized_model(_stages(make_gpt2_config(use_meta_device=True)), initializer)
    found = {name: value for part in parts for name, value in _weights(part).items()}
    assert found.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in found.items())


def _stages(config: dict) -> list[nn.Module]:
    first = ["transformer.wte", "transformer.wpe", "transformer.drop", "transformer.h.0"]
    return cut_stages(
        build_gpt2(**config), [first, ["transformer.h.1", "transformer.lm_head_norm", "transformer.lm_head"]]
    )


@pytest.mark.parametrize("scheme", list(WeightInitTypes))
def test_weights_of_coca_have_the_deviation_of_the_scheme(scheme):
    """W21: the scaled schemes were accepted and did nothing."""
    num_layers = None if scheme is WeightInitTypes.PLAIN else 8
    initializer = get_composed_model_initializer("coca", scheme, 0.0, 0.02, num_layers=num_layers)
    config = coca_config({"n_embd": 64, "ffn_hidden": 256}, {"n_embd": 64, "ffn_hidden": 256, "vocab_size": 512})
    model = get_initialized_model(build_coca(**config), initializer)
    output_std = 0.02 if num_layers is None else 0.02 / 4
    embedding_std = math.sqrt(0.4) if scheme is WeightInitTypes.SCALED_EMBED else 0.02
    for name, parameter in model.named_parameters():
        std = 0.02
        if name.endswith("bias") or name == "vision_encoder.embedding_fn.cls_token":
            assert not parameter.any(), name
            continue
        if "norm" in name or "ln_" in name:
            assert torch.equal(parameter, torch.ones_like(parameter)), name
            continue
        if name == "vision_queries":
            std = 1.0
        elif "embedding_fn.weight" in name or ".wte." in name or ".wpe." in name or "cls_token" in name:
            std = embedding_std
        elif "attn_pool" not in name and any(end in name for end in ("c_proj", "fc2")):
            std = output_std
        assert parameter.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * parameter.numel())), name


@pytest.mark.parametrize("field", ["mean", "std"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_deviation_or_mean_that_is_not_finite_is_refused(field, value):
    with pytest.raises(ValidationError) as caught:
        ComposedModelInitializationConfig.model_validate({**PLAIN, field: value})
    assert {fault["loc"][0] for fault in caught.value.errors()} == {field}


def test_llama3_like_initialisation_refuses_biases(make_gpt2_config):
    with pytest.raises(ConfigError, match=r"without biases, but there is transformer\.h\.0\.attn\.q_attn\.bias"):
        get_initialized_model(build_gpt2(**make_gpt2_config(bias=True)), GPT2Llama3LikeInitializer(2, 128))


def test_llama3_like_initialisation_cuts_the_head_at_three_deviations(make_gpt2_config):
    model = get_initialized_model(build_gpt2(**make_gpt2_config()), GPT2Llama3LikeInitializer(2, 128))
    assert model.transformer["lm_head"].weight.abs().max() <= 3 / math.sqrt(128)


def test_llama3_like_initialisation_takes_the_stages_of_a_pipeline(make_gpt2_config):
    """W24: rules for layers of other stages match nothing, which was an error."""
    initializer = GPT2Llama3LikeInitializer(2, 128)
    expected = _weights(get_initialized_model(build_gpt2(**make_gpt2_config()), initializer))
    parts = get_initialized_model(_stages(make_gpt2_config(use_meta_device=True)), initializer)
    for part in parts:
        assert all(torch.equal(value, expected[name]) for name, value in _weights(part).items())


@pytest.mark.parametrize(
    ("changes", "num_layers", "message"),
    [
        ({"activation_type": "gelu"}, 2, r"SwiGLU models, but there is transformer\.h\.0\.mlp\.c_fc"),
        ({"use_weight_tying": True}, 2, r"untied head, but transformer\.lm_head\.weight is another parameter, too"),
        ({}, 3, "num_layers is 3, but the model has 2 layers"),
        ({}, 1, "num_layers is 1, but the model has 2 layers"),
    ],
)
def test_llama3_like_initialisation_refuses_other_models(changes, num_layers, message, make_gpt2_config):
    with pytest.raises(ConfigError, match=message):
        get_initialized_model(build_gpt2(**make_gpt2_config(**changes)), GPT2Llama3LikeInitializer(num_layers, 128))


@pytest.mark.parametrize("num_layers", [1, 3])
def test_llama3_like_initialisation_knows_from_the_last_stage_how_deep_the_model_is(num_layers, make_gpt2_config):
    last = _stages(make_gpt2_config())[-1]
    with pytest.raises(ConfigError, match=f"num_layers is {num_layers}, but the model has 2 layers"):
        get_initialized_model(last, GPT2Llama3LikeInitializer(num_layers, 128))


@pytest.mark.multi_process
def test_two_ranks_start_with_the_weights_of_one(run_distributed, make_gpt2_config):
    """W20, B058: of FSDP2 and FSDP1 models; no shard is a copy of another rank's."""
    run_distributed(Path(__file__).with_name("initialization_on_ranks.py"), 2, json.dumps(make_gpt2_config()))
