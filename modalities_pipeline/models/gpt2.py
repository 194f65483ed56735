"""The decoder-only transformer: GPT-2 and Llama style by configuration."""

import logging
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import nn
from torch.nn import functional

from modalities_pipeline.exceptions import UserError
from modalities_pipeline.models.attention import CausalSelfAttention
from modalities_pipeline.models.configs import ActivationType, GPT2LLMConfig, PositionTypes, swiglu_hidden_dim
from modalities_pipeline.models.layer_norms import build_norm
from modalities_pipeline.models.linear_cross_entropy import LinearCrossEntropy
from modalities_pipeline.models.model import Activations, NNModel, seeded_construction

logger = logging.getLogger(__name__)

_WEIGHT_DECAY_GROUPS = {
    "linear": [".attn", ".mlp", ".lm_head.weight"],
    "embedding": [".wte", ".wpe"],
    "layernorm": [".attention_norm", ".ffn_norm", ".lm_head_norm"],
}
_TIED = {"wte", "lm_head"}  # modules that share their weights if `use_weight_tying`


class TransformerMLP(nn.Module):
    """`c_proj(gelu(c_fc(x)))` with the exact GELU."""

    def __init__(self, n_embd: int, ffn_hidden: int, bias: bool, dropout: float) -> None:
        super().__init__()
        self.c_fc = nn.Linear(n_embd, ffn_hidden, bias=bias)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(ffn_hidden, n_embd, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (..., n_embd) in and out."""
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


class SwiGLU(nn.Module):
    """`W_2(silu(W x) * V x)`."""

    def __init__(self, n_embd: int, ffn_hidden: int, bias: bool, multiple_of: int) -> None:
        super().__init__()
        hidden_dim = swiglu_hidden_dim(ffn_hidden, multiple_of)
        self.W = nn.Linear(n_embd, hidden_dim, bias=bias)
        self.V = nn.Linear(n_embd, hidden_dim, bias=bias)
        self.W_2 = nn.Linear(hidden_dim, n_embd, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (..., n_embd) in and out."""
        return self.W_2(functional.silu(self.W(x)) * self.V(x))


class GPT2Block(nn.Module):
    """Pre-norm transformer block: `x + attn(norm(x))`, then `x + mlp(norm(x))`."""

    def __init__(self, config: GPT2LLMConfig) -> None:
        super().__init__()
        self.attention_norm = build_norm(config.attention_norm_config)
        self.ffn_norm = build_norm(config.ffn_norm_config)
        self.attn = CausalSelfAttention(
            n_head_q=config.n_head_q,
            n_head_kv=config.n_head_kv,
            n_embd=config.n_embd,
            attention_config=config.attention_config,
            attention_implementation=config.attention_implementation,
            bias=config.bias,
            dropout=config.dropout,
            dropout_in_evaluation=config.attention_dropout_in_evaluation,
        )
        self.mlp: nn.Module
        if config.activation_type is ActivationType.GELU:
            self.mlp = TransformerMLP(config.n_embd, config.ffn_hidden, config.bias, config.dropout)
        else:
            multiple_of = config.enforce_swiglu_hidden_dim_multiple_of
            self.mlp = SwiGLU(config.n_embd, config.ffn_hidden, config.bias, multiple_of)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (batch, T, n_embd) in and out."""
        x = x + self.attn(self.attention_norm(x))
        return x + self.mlp(self.ffn_norm(x))


class GPT2LLM(NNModel):
    """A decoder-only language model; parameter names are those of Modalities' checkpoints.

    A stage of a pipeline is a copy of it in whose `transformer` the modules of other stages are missing: it takes and
    gives bare tensors, hidden states of shape (batch, T, n_embd) where it has no embedding or no head.
    """

    def __init__(self, config: GPT2LLMConfig) -> None:
        super().__init__(seed=config.seed, weight_decay_groups=_WEIGHT_DECAY_GROUPS)
        self.config = config
        absolute = config.poe_type is PositionTypes.ABSOLUTE
        with seeded_construction(self.seed):
            self.transformer = nn.ModuleDict(
                {
                    "wte": nn.Embedding(config.vocab_size, config.n_embd),
                    "wpe": nn.Embedding(config.sequence_length, config.n_embd) if absolute else nn.Identity(),
                    "drop": nn.Dropout(config.dropout),
                    "h": nn.ModuleDict({str(layer): GPT2Block(config) for layer in range(config.n_layer)}),
                    "lm_head_norm": build_norm(config.lm_head_norm_config),
                    "lm_head": _build_head(config),
                }
            )
        if config.use_weight_tying:
            self._tie_weights()
        if config.ffn_hidden != 4 * config.n_embd:
            logger.warning("ffn_hidden is %d, not 4 * n_embd (%d).", config.ffn_hidden, 4 * config.n_embd)

    @property
    def vocab_size(self) -> int:
        """Number of token ids that the model knows."""
        return self.config.vocab_size

    @property
    def fused_loss_target_key(self) -> str | None:
        """Key under which `forward` looks for targets, to compute the loss itself; None if it never does."""
        return self.config.fused_loss.target_key if self.config.fused_loss else None

    def forward(self, inputs: Activations) -> Activations:
        """Next-token logits of shape (batch, T, vocab_size) for token ids of shape (batch, T), int32 or int64.

        With `fused_loss` and targets (batch, T) in `inputs`, the predictions are instead, without dimensions,
        `<prediction_key>_loss_sum` (float32, nats) and `<prediction_key>_loss_count` (int64, targets that count).

        Raises:
            UserError: T is larger than the model's sequence length.
        """
        if not isinstance(inputs, dict):
            return self._logits(self._hidden_states(inputs))
        hidden = self._hidden_states(inputs[self.config.sample_key])
        key = self.config.prediction_key
        if self.fused_loss_target_key is None or self.fused_loss_target_key not in inputs:
            return {key: self._logits(hidden)}
        loss_sum, count = self.transformer["lm_head"](hidden, inputs[self.fused_loss_target_key])
        return {f"{key}_loss_sum": loss_sum, f"{key}_loss_count": count}

    def _hidden_states(self, x: torch.Tensor) -> torch.Tensor:
        """From token ids, or hidden states where there is no embedding, to what the head takes."""
        length = x.shape[1]
        if length > self.config.sequence_length:
            raise UserError(
                f"The model got {length} tokens per sample, more than its sequence_length "
                f"({self.config.sequence_length}). Make the dataset's sequence_length the model's."
            )
        parts = self.transformer
        if "wte" in parts:
            x = parts["wte"](x)
        if "wpe" in parts and self.config.poe_type is PositionTypes.ABSOLUTE:
            x = x + parts["wpe"](torch.arange(length, device=x.device))
        if "drop" in parts:
            x = parts["drop"](x)
        for block in parts["h"].children() if "h" in parts else ():
            x = block(x)
        return parts["lm_head_norm"](x) if "lm_head_norm" in parts else x

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.transformer["lm_head"](hidden) if "lm_head" in self.transformer else hidden

    def _tie_weights(self) -> None:
        self.transformer["wte"].weight = self.transformer["lm_head"].weight

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        """What `to`, `to_empty`, `half` etc. do; torch gives each module weights of its own when leaving "meta"."""
        # FSDP1 takes parameters out of their modules at times.
        weights = [self.transformer[name]._parameters.get("weight") for name in _TIED & self.transformer.keys()]
        are_tied = len(weights) == len(_TIED) and weights[0] is not None and weights[0] is weights[1]
        super()._apply(fn, recurse)
        if are_tied:
            self._tie_weights()
        return self


def _build_head(config: GPT2LLMConfig) -> nn.Linear:
    if config.fused_loss is None:
        return nn.Linear(config.n_embd, config.vocab_size, bias=False)
    return LinearCrossEntropy(config.n_embd, config.vocab_size, config.fused_loss.num_tokens_per_chunk)


def build_gpt2(**fields: Any) -> GPT2LLM:
    """A model from the fields of `GPT2LLMConfig`, on the meta device (shapes, no memory) if that is asked for."""
    config = GPT2LLMConfig(**fields)
    with torch.device("meta" if config.use_meta_device else torch.get_default_device()):
        return GPT2LLM(config)
