"""Sizes of the model `gpt2` from its config alone: parameters, and what a training step keeps of a token."""

import dataclasses
from typing import Any

from modalities_pipeline.models.configs import swiglu_hidden_dim

_GELU = "gelu"
_ABSOLUTE = "ABSOLUTE"
_MANUAL = "manual"


@dataclasses.dataclass(frozen=True)
class GPT2Size:
    """Numbers of scalars.

    Attributes:
        num_parameters: of the whole model; a tied embedding counts once.
        num_block_parameters: of one of its blocks.
        num_layers: how many blocks there are.
        num_kept_per_token_and_block: activations that the backward pass of a block needs, per token.
        num_kept_per_token_outside: those outside of the blocks: the embedding's output and the final norm's.
        vocab_size: logits per token.
    """

    num_parameters: int
    num_block_parameters: int
    num_layers: int
    num_kept_per_token_and_block: int
    num_kept_per_token_outside: int
    vocab_size: int


def gpt2_size(config: Any) -> GPT2Size | None:
    """Sizes of a model with the fields of `GPT2LLMConfig`; None if one of them is not a known number."""
    numbers = ("vocab_size", "n_embd", "n_layer", "n_head_q", "n_head_kv", "ffn_hidden", "sequence_length")
    if not all(isinstance(getattr(config, name, None), int) for name in numbers):
        return None
    block = _attention_parameters(config) + _mlp_parameters(config)
    block += _norm_parameters(config.attention_norm_config) + _norm_parameters(config.ffn_norm_config)
    embeddings = config.vocab_size * config.n_embd * (1 if config.use_weight_tying else 2)
    if config.poe_type == _ABSOLUTE:
        embeddings += config.sequence_length * config.n_embd
    total = embeddings + config.n_layer * block + _norm_parameters(config.lm_head_norm_config)
    return GPT2Size(total, block, config.n_layer, _kept_in_block(config), 2 * config.n_embd, config.vocab_size)


def _linear(num_inputs: int, num_outputs: int, bias: bool) -> int:
    return num_inputs * num_outputs + (num_outputs if bias else 0)


def _kv_dim(config: Any) -> int:
    return int(config.n_head_kv * (config.n_embd // config.n_head_q))


def _attention_parameters(config: Any) -> int:
    """Queries and output, keys and values, and a norm each of a head's queries and keys."""
    projections = 2 * _linear(config.n_embd, config.n_embd, config.bias)
    projections += 2 * _linear(config.n_embd, _kv_dim(config), config.bias)
    qk_norm = config.attention_config.qk_norm_config
    return projections + (2 * _norm_parameters(qk_norm) if qk_norm is not None else 0)


def _swiglu_width(config: Any) -> int:
    return swiglu_hidden_dim(config.ffn_hidden, config.enforce_swiglu_hidden_dim_multiple_of)


def _mlp_parameters(config: Any) -> int:
    if config.activation_type == _GELU:
        inwards = _linear(config.n_embd, config.ffn_hidden, config.bias)
        return inwards + _linear(config.ffn_hidden, config.n_embd, config.bias)
    width = _swiglu_width(config)
    return 2 * _linear(config.n_embd, width, config.bias) + _linear(width, config.n_embd, config.bias)


def _norm_parameters(norm: Any) -> int:
    """A gain, and a bias where the norm has one; none if it is not affine."""
    if getattr(norm.config, "elementwise_affine", True) is False:
        return 0
    dimension = getattr(norm.config, "normalized_shape", None) or norm.config.ndim
    return int(dimension * (2 if getattr(norm.config, "bias", False) else 1))


def _kept_in_block(config: Any) -> int:
    """Inputs and outputs of the norms, queries, keys, values, the attention's output, and what the MLP keeps.

    Of the scores, flash attention keeps nothing; computed step by step, they are there before and after the softmax.
    """
    attention = 6 * config.n_embd + 2 * _kv_dim(config)
    mlp = 2 * config.ffn_hidden if config.activation_type == _GELU else 4 * _swiglu_width(config)
    scores = 2 * config.n_head_q * config.sequence_length if config.attention_implementation == _MANUAL else 0
    return int(attention + mlp + scores)
