"""The decoder-only transformer: GPT-2 and Llama style by configuration."""

from enum import StrEnum
from typing import Annotated, Any, Self

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.exceptions import UserError
from modalities_pipeline.models.attention import (
    AttentionConfig,
    AttentionImplementation,
    CausalSelfAttention,
    RotaryTransformEntry,
)
from modalities_pipeline.models.layer_norms import LayerNormWrapperConfig, StrictDimension
from modalities_pipeline.models.model import Activations, NNModel

_WEIGHT_DECAY_GROUPS = {
    "linear": [".attn", ".mlp", ".lm_head.weight"],
    "embedding": [".wte", ".wpe"],
    "layernorm": [".attention_norm", ".ffn_norm", ".lm_head_norm"],
}
# Tensor cores and FSDP shards like widths that are multiples of it; Modalities demands it.
_WIDTH_MULTIPLE = 128


class PositionTypes(StrEnum):
    """Learned absolute positions, or none in the embedding (rotary ones are a qkv transform)."""

    ABSOLUTE = "ABSOLUTE"
    NOPE = "NOPE"


class ActivationType(StrEnum):
    """Which feed-forward network a block has."""

    GELU = "gelu"
    SWIGLU = "swiglu"


class GPT2LLMConfig(ComponentConfig):
    """Fields of the model. `ffn_hidden` is the width of the GELU network; see `swiglu_hidden_dim` for SwiGLU."""

    sample_key: str
    prediction_key: str
    use_meta_device: bool | None = False
    poe_type: PositionTypes
    sequence_length: StrictDimension
    vocab_size: StrictDimension
    n_layer: StrictDimension
    n_head_q: StrictDimension
    n_head_kv: StrictDimension
    n_embd: StrictDimension
    ffn_hidden: StrictDimension
    dropout: Annotated[float, Field(strict=True, ge=0.0, lt=1.0)]
    bias: bool
    attention_config: AttentionConfig
    attention_implementation: AttentionImplementation
    activation_type: ActivationType
    attention_norm_config: LayerNormWrapperConfig
    ffn_norm_config: LayerNormWrapperConfig
    lm_head_norm_config: LayerNormWrapperConfig
    use_weight_tying: bool
    seed: int | None = None
    enforce_swiglu_hidden_dim_multiple_of: Annotated[int, Field(ge=1)] = 256

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.n_embd // self.n_head_q

    @model_validator(mode="after")
    def _check_divisibility(self) -> Self:
        if self.n_head_q % self.n_head_kv:
            raise ValueError(f"n_head_q ({self.n_head_q}) must be divisible by n_head_kv ({self.n_head_kv})")
        if self.n_embd % self.n_head_q:
            raise ValueError(f"n_embd ({self.n_embd}) must be divisible by n_head_q ({self.n_head_q})")
        for name in ("ffn_hidden", "vocab_size", "n_embd"):
            if getattr(self, name) % _WIDTH_MULTIPLE:
                raise ValueError(f"{name} ({getattr(self, name)}) must be divisible by {_WIDTH_MULTIPLE}")
        return self

    @model_validator(mode="after")
    def _check_positions(self) -> Self:
        for entry in self.attention_config.qkv_transforms:
            if not isinstance(entry, RotaryTransformEntry):
                continue
            if self.poe_type is not PositionTypes.NOPE:
                raise ValueError(f"RotaryTransform needs poe_type NOPE, not {self.poe_type.value}")
            if (entry.config.n_embd, entry.config.n_head) != (self.n_embd, self.n_head_q):
                raise ValueError(
                    f"RotaryTransform has n_embd {entry.config.n_embd} and n_head {entry.config.n_head}; they must be "
                    f"the model's n_embd ({self.n_embd}) and n_head_q ({self.n_head_q})"
                )
        return self

    @model_validator(mode="after")
    def _check_norms(self) -> Self:
        expected = {"attention_norm_config": self.n_embd, "ffn_norm_config": self.n_embd}
        expected["lm_head_norm_config"] = self.n_embd
        for name, dimension in expected.items():
            if getattr(self, name).dimension != dimension:
                raise ValueError(f"{name} is of size {getattr(self, name).dimension}; it must be n_embd ({dimension})")
        qk_norm = self.attention_config.qk_norm_config
        if qk_norm is not None and qk_norm.dimension != self.head_dim:
            raise ValueError(f"qk_norm_config is of size {qk_norm.dimension}; it must be one head's ({self.head_dim})")
        return self


def swiglu_hidden_dim(ffn_hidden: int, multiple_of: int) -> int:
    """Hidden width of SwiGLU: two thirds of `ffn_hidden`, as it has three matrices, rounded up to `multiple_of`."""
    return -(int(2 * ffn_hidden / 3) // -multiple_of) * multiple_of


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
        self.attention_norm = config.attention_norm_config.build()
        self.ffn_norm = config.ffn_norm_config.build()
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
                "lm_head_norm": config.lm_head_norm_config.build(),
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
