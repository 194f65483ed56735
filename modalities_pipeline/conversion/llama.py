"""The names and numbers of our decoder in terms of transformers' stock Llama."""

import re
from collections.abc import Iterator

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from modalities_pipeline.exceptions import ConversionError
from modalities_pipeline.models.attention import RotaryTransformEntry
from modalities_pipeline.models.gpt2 import GPT2LLM, ActivationType, GPT2LLMConfig, PositionTypes, swiglu_hidden_dim
from modalities_pipeline.models.layer_norms import LayerNorms

_NAMES = {
    r"transformer\.wte\.": "model.embed_tokens.",
    r"transformer\.lm_head_norm\.": "model.norm.",
    r"transformer\.lm_head\.": "lm_head.",
    r"transformer\.h\.(\d+)\.attention_norm\.": r"model.layers.\1.input_layernorm.",
    r"transformer\.h\.(\d+)\.ffn_norm\.": r"model.layers.\1.post_attention_layernorm.",
    r"transformer\.h\.(\d+)\.attn\.([qkv])_attn\.": r"model.layers.\1.self_attn.\2_proj.",
    r"transformer\.h\.(\d+)\.attn\.c_proj\.": r"model.layers.\1.self_attn.o_proj.",
    r"transformer\.h\.(\d+)\.mlp\.W\.": r"model.layers.\1.mlp.gate_proj.",
    r"transformer\.h\.(\d+)\.mlp\.V\.": r"model.layers.\1.mlp.up_proj.",
    r"transformer\.h\.(\d+)\.mlp\.W_2\.": r"model.layers.\1.mlp.down_proj.",
}
# Llama computes its frequencies from rope_theta.
_LEFT_OUT = re.compile(r"transformer\.h\.\d+\.attn\.qkv_transforms\.\d+\.inv_freq")


def to_llama(model: GPT2LLM, dtype: torch.dtype, eod_token_id: int | None) -> LlamaForCausalLM:
    """The same model as Llama, its weights in `dtype`; fit for saving, its buffers are on the meta device.

    Raises:
        ConversionError: the model has an option that Llama does not know; all such options are named.
    """
    config = llama_config(model.config, eod_token_id)
    with torch.device("meta"):
        llama = LlamaForCausalLM(config)
    weights = {
        llama_name(name): tensor.detach().to(dtype).contiguous()
        for name, tensor in model.state_dict().items()
        if not _LEFT_OUT.fullmatch(name)
    }
    llama.load_state_dict(weights, strict=True, assign=True)
    llama.tie_weights()
    return llama


def llama_name(name: str) -> str:
    """Llama's name of a parameter."""
    for pattern, replacement in _NAMES.items():
        match = re.match(pattern, name)
        if match:
            return match.expand(replacement) + name[match.end() :]
    raise ConversionError(f"Llama has nothing like the parameter {name}.")


def llama_config(config: GPT2LLMConfig, eod_token_id: int | None) -> LlamaConfig:
    """Llama's config of the same model; the end-of-document token, if known, is its beginning, end and padding.

    Raises:
        ConversionError: the model has an option that Llama does not know; all such options are named.
    """
    faults = list(_inexpressible(config))
    if faults:
        raise ConversionError(
            "The model cannot be converted to Llama: " + "; ".join(faults) + ". Train with these settings changed."
        )
    return LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.n_embd,
        intermediate_size=swiglu_hidden_dim(config.ffn_hidden, config.enforce_swiglu_hidden_dim_multiple_of),
        num_hidden_layers=config.n_layer,
        num_attention_heads=config.n_head_q,
        num_key_value_heads=config.n_head_kv,
        max_position_embeddings=config.sequence_length,
        rms_norm_eps=config.lm_head_norm_config.epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": float(_rotary_entries(config)[0].config.base_freq)},
        attention_bias=config.bias,
        mlp_bias=config.bias,
        tie_word_embeddings=config.use_weight_tying,
        bos_token_id=eod_token_id,
        eos_token_id=eod_token_id,
        pad_token_id=eod_token_id,
    )


def _rotary_entries(config: GPT2LLMConfig) -> list[RotaryTransformEntry]:
    return [entry for entry in config.attention_config.qkv_transforms if isinstance(entry, RotaryTransformEntry)]


def _inexpressible(config: GPT2LLMConfig) -> Iterator[str]:
    if config.poe_type is not PositionTypes.NOPE:
        yield f"poe_type is {config.poe_type.value}, it must be NOPE"
    if len(_rotary_entries(config)) != 1:
        yield "attention_config.qkv_transforms must hold exactly one RotaryTransform"
    if config.attention_config.qk_norm_config is not None:
        yield "attention_config.qk_norm_config is set, it must be left out"
    if config.activation_type is not ActivationType.SWIGLU:
        yield f"activation_type is {config.activation_type.value}, it must be swiglu"
    norms = {
        "attention_norm_config": config.attention_norm_config,
        "ffn_norm_config": config.ffn_norm_config,
        "lm_head_norm_config": config.lm_head_norm_config,
    }
    for name, norm in norms.items():
        if norm.norm_type is LayerNorms.layer_norm or norm.has_bias:
            yield f"{name} must be pytorch_rms_norm, or rms_norm without bias"
    if len({norm.epsilon for norm in norms.values()}) > 1:
        yield f"{', '.join(norms)} must have the same eps"
