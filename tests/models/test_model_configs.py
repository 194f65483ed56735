"""Configs of models: what they accept under which names, and what they refuse before anything is built."""

import pytest
from pydantic import BaseModel, ValidationError
from torch import nn

from modalities_pipeline.config.checking.validation import validate_unbuilt
from modalities_pipeline.config.interfaces import FSDP1_MODULE, MODULE, NUMBER, REMOVABLE_HANDLE
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.models.coca_configs import VisionTransformerConfig
from modalities_pipeline.models.configs import GPT2LLMConfig
from modalities_pipeline.models.debugging_configs import DebuggingConfig, NaNHookConfig, PrintForwardHookConfig
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.initialization import get_composed_model_initializer, get_initialized_model
from modalities_pipeline.models.initialization_configs import ComposedModelInitializationConfig, WeightInitTypes
from modalities_pipeline.models.layer_norms import RMSLayerNorm
from modalities_pipeline.models.norm_configs import LayerNormConfig, LayerNorms, LayerNormWrapperConfig
from modalities_pipeline.models.wrapping_configs import (
    ActivationCheckpointedModelConfig,
    CompiledModelConfig,
    FSDP1ActivationCheckpointedModelConfig,
    HuggingFacePretrainedModelConfig,
)

MODEL = Unbuilt("model", "gpt2", MODULE)
HOOK = Unbuilt("model_debugging_hook", "nan_hook", REMOVABLE_HANDLE)
NORM_64 = {"norm_type": "pytorch_rms_norm", "config": {"normalized_shape": 64}}
ROTARY = {
    "type_hint": "RotaryTransform",
    "config": {"n_embd": 128, "n_head": 2, "seq_length_dim": -2, "base_freq": 10000},
}


def _rotary(**changes: int) -> dict:
    return {**ROTARY, "config": {**ROTARY["config"], **changes}}


def _locations(config_type: type[BaseModel], fields: dict) -> list[tuple[str | int, ...]]:
    with pytest.raises(ValidationError) as caught:
        config_type.model_validate(fields)
    return [error["loc"] for error in caught.value.errors()]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_head_kv": 3}, r"n_head_q\n.*4 is not divisible by n_head_kv \(3\)"),
        ({"n_head_q": 3, "n_head_kv": 3}, r"n_embd\n.*128 is not divisible by n_head_q \(3\)"),
        ({"vocab_size": 1000}, r"vocab_size\n.*1000 is not divisible by 128"),
        ({"ffn_hidden": 100}, r"ffn_hidden\n.*100 is not divisible by 128"),
        ({"poe_type": "ABSOLUTE"}, "has to be NOPE with a RotaryTransform, not ABSOLUTE"),
        ({"attention_config": {"qkv_transforms": [ROTARY]}}, "they must be the model's n_embd"),
        ({"attention_config": {"qkv_transforms": [_rotary(n_head=0)]}}, "they must be the model's n_embd"),
        ({"attention_config": {"qkv_transforms": [_rotary(n_head=4, seq_length_dim=-9)]}}, "has to be -2"),
        (
            {"n_head_q": 128, "n_head_kv": 128, "attention_config": {"qkv_transforms": [_rotary(n_head=128)]}},
            "needs heads of even size, but theirs is 1",
        ),
        ({"ffn_norm_config": NORM_64}, r"ffn_norm_config\n.*the norm is of size 64; it must be n_embd \(128\)"),
        ({"attention_config": {"qkv_transforms": [], "qk_norm_config": NORM_64}}, "it must be one head's"),
        ({"sequence_length": "32"}, "sequence_length"),
        ({"sequence_length": 32.0}, "sequence_length"),
        ({"n_layer": True}, "n_layer"),
        ({"dropout": 1.5}, "dropout"),
        ({"dropout": "0.1"}, "dropout"),
        ({"n_heads": 4}, "n_heads"),
        ({"activation_type": "fused_swiglu"}, "'gelu' or 'swiglu'"),
    ],
)
def test_a_config_that_cannot_work_is_refused(changes, message, make_gpt2_config):
    """B078"""
    with pytest.raises(ValidationError, match=message):
        GPT2LLMConfig(**make_gpt2_config(**changes))


def test_all_that_does_not_fit_together_is_said_at_once(make_gpt2_config):
    fields = make_gpt2_config(n_head_kv=3, vocab_size=1000, ffn_norm_config=NORM_64)
    assert _locations(GPT2LLMConfig, fields) == [("n_head_q",), ("vocab_size",), ("ffn_norm_config",)]


def test_a_strict_float_takes_an_integer(make_gpt2_config):
    assert GPT2LLMConfig(**make_gpt2_config(dropout=0)).dropout == 0.0


def test_configs_older_than_the_choice_of_weight_tying_have_tied_weights(make_gpt2_config):
    fields = make_gpt2_config()
    del fields["use_weight_tying"]
    model = build_gpt2(**fields)
    assert model.transformer["wte"].weight is model.transformer["lm_head"].weight


def test_a_size_that_is_not_known_before_building_hides_no_other_fault(make_gpt2_config):
    """B078"""
    unknown = Unbuilt("number_conversion", "vocab_size_from_packed_dataset", NUMBER)
    config, faults = validate_unbuilt(GPT2LLMConfig, make_gpt2_config(vocab_size=unknown))
    assert not faults
    assert config.vocab_size is unknown
    _, faults = validate_unbuilt(GPT2LLMConfig, make_gpt2_config(vocab_size=unknown, n_head_kv=3))
    assert faults == [(("n_head_q",), "4 is not divisible by n_head_kv (3)")]


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


@pytest.mark.parametrize(
    ("entry", "location"),
    [
        ({**ROTARY, "type_hint": "RotaryTransfrom"}, ("type_hint",)),
        ({"config": {}}, ("type_hint",)),
        ({"type_hint": "IdentityTransform", "config": {"n_embd": 8}}, ("config", "n_embd")),
        ({**ROTARY, "config": {**ROTARY["config"], "base_freq": 9999}}, ("config", "base_freq")),
    ],
)
def test_a_faulty_transform_is_judged_by_its_own_kind(entry, location, make_gpt2_config):
    fields = make_gpt2_config(attention_config={"qkv_transforms": [entry]})
    assert _locations(GPT2LLMConfig, fields) == [("attention_config", "qkv_transforms", 0, *location)]


PLAIN = {"model_type": "gpt2", "weight_init_type": "plain", "mean": 0.0, "std": 0.02}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"std": "auto"}, "'auto' needs hidden_dim"),
        ({"hidden_dim": 8}, r"hidden_dim\n.*has an effect only with std 'auto'"),
        ({"num_layers": 2}, r"num_layers\n.*has no effect with weight_init_type 'plain'"),
        ({"weight_init_type": "scaled"}, r"weight_init_type\n.*'scaled' needs num_layers"),
        ({"std": "large"}, "auto"),
        ({"std": True}, "std"),
        ({"model_type": "llama"}, "'gpt2' or 'coca'"),
    ],
)
def test_settings_of_initial_weights_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        ComposedModelInitializationConfig.model_validate({**PLAIN, **changes})


def test_initial_weights_of_a_model_that_is_not_known_here_are_refused_when_built():
    assert ComposedModelInitializationConfig.model_validate({**PLAIN, "model_type": "coca"})
    with pytest.raises(ValueError, match="models of type coca cannot be initialised here"):
        get_composed_model_initializer("coca", WeightInitTypes.PLAIN, 0.0, 0.02)


def test_several_model_parts_are_refused_when_built(make_gpt2_config):
    initializer = get_composed_model_initializer("gpt2", WeightInitTypes.PLAIN, 0.0, 0.02)
    model = build_gpt2(**make_gpt2_config())
    assert get_initialized_model([model], initializer) is model
    with pytest.raises(ValueError, match="model_initialized: got 2 model parts"):
        get_initialized_model([model, model], initializer)


@pytest.mark.parametrize(
    ("variant", "params"),
    [
        ("full_activation_checkpointing", {}),
        ("selective_layer_activation_checkpointing", {"ac_freq": 2}),
        ("selective_op_activation_checkpointing", {"save_ops_keys": ["ops.aten.mm.default"]}),
    ],
)
def test_the_variant_of_activation_checkpointing_decides_its_parameters(variant, params):
    fields = {"ac_variant": variant, "layers_fqn": "transformer.h", "model": MODEL}
    config = ActivationCheckpointedModelConfig(**fields, ac_fun_params=params)
    assert config.ac_fun_params.model_dump() == params
    wrong = {"ac_freq": 2} if "op" in variant else {"save_ops_keys": ["ops.aten.mm.default"]}
    assert ("ac_fun_params", *wrong) in _locations(
        ActivationCheckpointedModelConfig, {**fields, "ac_fun_params": wrong}
    )


def test_a_typo_in_a_choice_lists_all_choices():
    fields = {"ac_variant": "full", "layers_fqn": "transformer.h", "model": MODEL, "ac_fun_params": {"ac_freq": 1}}
    with pytest.raises(ValidationError, match="selective_layer_activation_checkpointing") as caught:
        ActivationCheckpointedModelConfig(**fields)
    assert [error["loc"] for error in caught.value.errors()] == [("ac_variant",)]


@pytest.mark.parametrize("config_type", [NaNHookConfig, PrintForwardHookConfig])
def test_hooks_take_one_model_or_the_parts_of_one(config_type):
    assert config_type(model=[MODEL, MODEL]).model == [MODEL, MODEL]
    assert config_type(model=MODEL).model is MODEL
    with pytest.raises(ValidationError, match="has to be a Module"):
        config_type(model=Unbuilt("number_conversion", "x", NUMBER))


def test_debugging_takes_hooks_that_are_not_built_yet():
    assert DebuggingConfig(forward_hooks=[HOOK, [HOOK]]).forward_hooks == [HOOK, [HOOK]]
    assert DebuggingConfig().forward_hooks == []


def test_what_is_known_by_config_only_has_the_defaults_of_modalities():
    fsdp1 = Unbuilt("model", "fsdp1_wrapped", FSDP1_MODULE)
    assert FSDP1ActivationCheckpointedModelConfig(model=fsdp1).activation_checkpointing_modules == []
    compiled = CompiledModelConfig(model=MODEL, block_names=["GPT2Block"])
    assert (compiled.fullgraph, compiled.debug) == (True, False)
    vision = VisionTransformerConfig(sample_key="images", prediction_key="embeddings")
    assert (vision.img_size, vision.n_classes, vision.n_layer, vision.n_embd) == (224, 1000, 12, 768)


def test_a_model_of_hugging_face_is_chosen_by_its_class():
    fields = {"model_name": "Qwen/Qwen2.5-0.5B", "prediction_key": "logits", "sample_key": "input_ids"}
    fields["huggingface_prediction_subscription_key"] = "logits"
    config = HuggingFacePretrainedModelConfig(**fields, model_type="AutoModelForCausalLM")
    assert str(config.model_name) == "Qwen/Qwen2.5-0.5B"
    with pytest.raises(ValidationError, match="'AutoModelForCausalLM' or 'AutoModelForMaskedLM'"):
        HuggingFacePretrainedModelConfig(**fields, model_type="AutoModelForCausal")


@pytest.mark.parametrize("changes", [{"n_head": 4}, {"n_embd": 64, "n_head": 2}, {"n_head": 4, "seq_length_dim": 2}])
def test_a_rotation_of_the_size_of_the_models_heads_is_accepted(changes, make_gpt2_config):
    fields = make_gpt2_config(n_head_q=4, attention_config={"qkv_transforms": [_rotary(**changes)]})
    config = GPT2LLMConfig(**fields)
    assert config.head_dim == 32
