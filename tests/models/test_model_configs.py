"""Configs of models: what they accept under which names, and what they refuse before anything is built."""

import pytest
from pydantic import BaseModel, ValidationError

from modalities_pipeline.config.checking.validation import validate_unbuilt
from modalities_pipeline.config.interfaces import FSDP1_MODULE, MODULE, NUMBER, REMOVABLE_HANDLE
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.debugging.configs import DebuggingConfig, NaNHookConfig, PrintForwardHookConfig
from modalities_pipeline.distributed.wrapping_configs import (
    ActivationCheckpointedModelConfig,
    CompiledModelConfig,
    FSDP1ActivationCheckpointedModelConfig,
)
from modalities_pipeline.models.coca_configs import VisionTransformerConfig
from modalities_pipeline.models.configs import GPT2LLMConfig
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.huggingface_configs import HuggingFacePretrainedModelConfig
from modalities_pipeline.models.initialization_configs import ComposedModelInitializationConfig

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


@pytest.mark.parametrize(
    ("fused_loss", "location"),
    [
        ({"target_key": "target_ids", "num_tokens_per_chunk": 0}, ("fused_loss", "num_tokens_per_chunk")),
        ({"target_key": "target_ids", "num_tokens_per_chunk": "many"}, ("fused_loss", "num_tokens_per_chunk")),
        ({"num_tokens_per_chunk": 8}, ("fused_loss", "target_key")),
        ({"target_key": "target_ids", "chunk": 8}, ("fused_loss", "chunk")),
    ],
)
def test_a_faulty_fused_loss_is_refused(fused_loss, location, make_gpt2_config):
    assert _locations(GPT2LLMConfig, make_gpt2_config(fused_loss=fused_loss)) == [location]


def test_numbers_are_those_of_modalities_only_if_asked_for(make_gpt2_config):
    config = GPT2LLMConfig(**make_gpt2_config())
    assert (config.attention_dropout_in_evaluation, config.fused_loss) == (False, None)
    assert config.attention_config.qkv_transforms[0].config.rounds_frequencies is False
    rotary = {"type_hint": "RotaryTransform", "config": {**ROTARY["config"], "n_head": 4, "rounds_frequencies": True}}
    model = build_gpt2(**make_gpt2_config(attention_config={"qkv_transforms": [rotary]}))
    assert model.transformer["h"]["1"].attn.qkv_transforms[0].rounds_frequencies is True


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
    assert (config.model_args, config.kwargs) == (None, None)
    with pytest.raises(ValidationError, match="'AutoModelForCausalLM' or 'AutoModelForMaskedLM'"):
        HuggingFacePretrainedModelConfig(**fields, model_type="AutoModelForCausal")
    given = {**fields, "model_type": "AutoModelForCausalLM", "model_args": {"dtype": "float32"}, "kwargs": ["float32"]}
    assert _locations(HuggingFacePretrainedModelConfig, given) == [("model_args",), ("kwargs",)]


@pytest.mark.parametrize("changes", [{"n_head": 4}, {"n_embd": 64, "n_head": 2}, {"n_head": 4, "seq_length_dim": 2}])
def test_a_rotation_of_the_size_of_the_models_heads_is_accepted(changes, make_gpt2_config):
    fields = make_gpt2_config(n_head_q=4, attention_config={"qkv_transforms": [_rotary(**changes)]})
    config = GPT2LLMConfig(**fields)
    assert config.head_dim == 32
