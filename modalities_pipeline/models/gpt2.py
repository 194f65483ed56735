"""The decoder-only transformer: GPT-2 and Llama style by configuration."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from modalities_pipeline.exceptions import UserError
from modalities_pipeline.models.attention import CausalSelfAttention
from modalities_pipeline.models.configs import ActivationType, GPT2LLMConfig, PositionTypes, swiglu_hidden_dim
from modalities_pipeline.models.layer_norms import build_norm
from modalities_pipeline.models.model import Activations, NNModel

_WEIGHT_DECAY_GROUPS = {
    "linear": [".attn", ".mlp", ".lm_head.weight"],
    "embedding": [".wte", ".wpe"],
    "layernorm": [".attention_norm", ".ffn_norm", ".lm_head_norm"],
}


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
    """A decoder-only language model; parameter names are those of Modalities' checkpoints."""

    def __init__(self, config: GPT2LLMConfig) -> None:
        super().__init__(seed=config.seed, weight_decay_groups=_WEIGHT_DECAY_GROUPS)
        self.config = config
        absolute = config.poe_type is PositionTypes.ABSOLUTE
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.sequence_length, config.n_embd) if absolute else nn.Identity(),
                "drop": nn.Dropout(config.dropout),
                "h": nn.ModuleDict({str(layer): GPT2Block(config) for layer in range(config.n_layer)}),
                "lm_head_norm": build_norm(config.lm_head_norm_config),
                "lm_head": nn.Linear(config.n_embd, config.vocab_size, bias=False),
            }
        )
        if config.use_weight_tying:
            self.transformer["wte"].weight = self.transformer["lm_head"].weight

    @property
    def vocab_size(self) -> int:
        """Number of token ids that the model knows."""
        return self.config.vocab_size

    def forward(self, inputs: Activations) -> Activations:
        """Next-token logits of shape (batch, T, vocab_size) for token ids of shape (batch, T), int32 or int64.

        Raises:
            UserError: T is larger than the model's sequence length.
        """
        if isinstance(inputs, dict):
            return {self.config.prediction_key: self._logits(inputs[self.config.sample_key])}
        return self._logits(inputs)

    def _logits(self, token_ids: torch.Tensor) -> torch.Tensor:
        length = token_ids.shape[1]
        if length > self.config.sequence_length:
            raise UserError(
                f"The model got {length} tokens per sample, more than its sequence_length "
                f"({self.config.sequence_length}). Make the dataset's sequence_length the model's."
            )
        x = self.transformer["wte"](token_ids)
        if self.config.poe_type is PositionTypes.ABSOLUTE:
            x = x + self.transformer["wpe"](torch.arange(length, device=token_ids.device))
        x = self.transformer["drop"](x)
        for block in self.transformer["h"].children():
            x = block(x)
        return self.transformer["lm_head"](self.transformer["lm_head_norm"](x))


def build_gpt2(**fields: Any) -> GPT2LLM:
    """A model from the fields of `GPT2LLMConfig`, on the meta device (shapes, no memory) if that is asked for."""
    config = GPT2LLMConfig(**fields)
    with torch.device("meta" if config.use_meta_device else torch.get_default_device()):
        return GPT2LLM(config)
