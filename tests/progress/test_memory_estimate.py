"""The memory estimate follows from the sizes of the model, its wrappers and the step."""

from types import SimpleNamespace
from typing import Any

import pytest

from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.distributed.configs import DeviceMeshConfig
from modalities_pipeline.progress.gpt2_size import gpt2_size
from modalities_pipeline.progress.memory_estimate import estimate_memory

NORM = SimpleNamespace(config=SimpleNamespace(normalized_shape=8))
MODEL = SimpleNamespace(
    vocab_size=16,
    n_embd=8,
    n_layer=4,
    n_head_q=2,
    n_head_kv=2,
    ffn_hidden=32,
    sequence_length=4,
    bias=False,
    use_weight_tying=True,
    poe_type="NOPE",
    activation_type="gelu",
    attention_implementation="pytorch_flash",
    attention_config=SimpleNamespace(qk_norm_config=None),
    attention_norm_config=NORM,
    ffn_norm_config=NORM,
    lm_head_norm_config=NORM,
)


def unbuilt(variant_key: str, **config: Any) -> Unbuilt:
    return Unbuilt("model", variant_key, None, SimpleNamespace(**config))  # type: ignore[arg-type]


def sections(*wrappers: dict[str, Any], num_shards: int = 2) -> dict[str, Any]:
    """A training of the model in these wrappers, from the innermost outwards."""
    model = raw = Unbuilt("model", "gpt2", None, MODEL)  # type: ignore[arg-type]
    for wrapper in wrappers:
        model = unbuilt(**wrapper, model=model)
    mesh = DeviceMeshConfig(data_parallel_shard_degree=num_shards, world_size=num_shards)
    return {
        "settings": {"step_profile": {"local_train_micro_batch_size": 3, "sequence_length": 4}},
        "model_raw": raw,
        "device_mesh": Unbuilt("device_mesh", "default", None, mesh),
        "app_state": unbuilt("raw", model=model),
    }


def fsdp2(dtype: str = "FP_32", reshard: bool = True) -> dict[str, Any]:
    precision = SimpleNamespace(param_dtype=SimpleNamespace(name=dtype))
    return {
        "variant_key": "fsdp2_wrapped",
        "mixed_precision_settings": precision,
        "reshard_after_forward": reshard,
        "layers_per_fsdp_unit": 1,
    }


SIZE = gpt2_size(MODEL)
assert SIZE is not None
NUM_PARAMETERS, NUM_IN_BLOCK = SIZE.num_parameters, SIZE.num_block_parameters


def test_a_model_that_is_not_sharded_takes_sixteen_bytes_a_parameter():
    estimate = estimate_memory(sections())
    assert estimate is not None
    static = estimate.parameters + estimate.gradients + estimate.optimizer_states
    assert static == 16 * NUM_PARAMETERS
    assert estimate.gathered_parameters == 0
    assert estimate.total == static + estimate.activations


@pytest.mark.parametrize("num_shards", [2, 4])
def test_shards_divide_what_is_kept_and_not_what_is_gathered(num_shards):
    estimate = estimate_memory(sections(fsdp2(), num_shards=num_shards))
    assert estimate is not None
    assert estimate.optimizer_states == 8 * -(-NUM_PARAMETERS // num_shards)
    assert estimate.gathered_parameters == 4 * (NUM_PARAMETERS - 2 * NUM_IN_BLOCK)
    everything = estimate_memory(sections(fsdp2(reshard=False), num_shards=num_shards))
    assert everything is not None
    assert everything.gathered_parameters == 4 * NUM_PARAMETERS


def test_half_precision_halves_what_is_computed_and_not_the_master_copy():
    full, half = estimate_memory(sections(fsdp2())), estimate_memory(sections(fsdp2("BF_16")))
    assert full is not None
    assert half is not None
    assert half.parameters == full.parameters
    assert half.gathered_parameters * 2 == full.gathered_parameters
    logits_in_fp32 = 3 * 4 * 16 * 8
    assert (half.activations - logits_in_fp32) * 2 == full.activations - logits_in_fp32


def test_checkpointed_activations_are_those_of_one_block_and_the_inputs_of_all():
    plain = estimate_memory(sections())
    saved = estimate_memory(sections({"variant_key": "activation_checkpointed"}))
    assert plain is not None
    assert saved is not None
    assert SIZE is not None
    assert plain.activations - saved.activations == 3 * 4 * 4 * (3 * SIZE.num_kept_per_token_and_block - 4 * 8)


def test_other_models_have_no_estimate():
    given = sections()
    given["model_raw"] = unbuilt("coca")
    assert estimate_memory(given) is None
    assert estimate_memory({}) is None


def test_a_fused_loss_holds_the_logits_of_a_chunk_and_the_gradients_of_the_head():
    plain, fused = sections(), sections()
    model = SimpleNamespace(**vars(MODEL), fused_loss=SimpleNamespace(num_tokens_per_chunk=5))
    fused["model_raw"] = Unbuilt("model", "gpt2", None, model)  # type: ignore[arg-type]
    plain_estimate, fused_estimate = estimate_memory(plain), estimate_memory(fused)
    assert plain_estimate is not None
    assert fused_estimate is not None
    num_tokens, vocab_size, width = 3 * 4, 16, 8
    plain_logits, fused_logits = num_tokens * vocab_size * 12, vocab_size * (5 * 8 + width * 4)
    assert plain_estimate.activations - plain_logits == fused_estimate.activations - fused_logits
