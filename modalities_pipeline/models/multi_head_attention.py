"""Attention of CoCa and its vision transformer: causal, over all positions, or to another sequence."""

import math
from enum import StrEnum

import torch
from torch import nn
from torch.nn import functional

from modalities_pipeline.models.coca_configs import AttentionEngineType, CoCaAttentionConfig

# Checkpoints have masks of this size, whatever the length of sequences.
_MASK_SIZE = 1024


class AttentionType(StrEnum):
    """What a position looks at."""

    CAUSAL_SELF_ATTENTION = "causal_self_attention"
    NON_CAUSAL_SELF_ATTENTION = "non_causal_self_attention"
    CROSS_ATTENTION = "cross_attention"


class MultiHeadAttention(nn.Module):
    """Attention with linears `wq`, `wk`, `wv` and `c_proj`.

    `default_attention`, which computes all scores, has a persistent buffer `bias`, the causal mask: ones at and below
    the diagonal, shape (1, 1, 1024, 1024). For longer sequences one is made for the occasion.

    Raises:
        ValueError: `n_embd` is not divisible by `n_head`.
    """

    bias: torch.Tensor

    def __init__(
        self,
        n_embd: int,
        n_head: int,
        attention_type: AttentionType,
        bias: bool = True,
        dropout: float = 0.0,
        attention_config: CoCaAttentionConfig | None = None,
    ) -> None:
        super().__init__()
        if n_embd % n_head:
            raise ValueError(f"n_embd ({n_embd}) is not divisible by n_head ({n_head}).")
        self.n_head = n_head
        self.dropout = dropout
        self.is_causal = attention_type is AttentionType.CAUSAL_SELF_ATTENTION
        self.wq = nn.Linear(n_embd, n_embd, bias=bias)
        self.wk = nn.Linear(n_embd, n_embd, bias=bias)
        self.wv = nn.Linear(n_embd, n_embd, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)
        self.resid_dropout = nn.Dropout(dropout)
        self.has_mask = attention_config is None or (
            attention_config.attention_engine_type is AttentionEngineType.DEFAULT_ATTENTION
        )
        if self.has_mask:
            self.register_buffer("bias", torch.ones(1, 1, _MASK_SIZE, _MASK_SIZE).tril())

    def reset_parameters(self) -> None:
        """Write the mask anew; needed after the meta device. Weights are left to the linears."""
        if self.has_mask:
            with torch.no_grad():
                self.bias.fill_(1.0).tril_()

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """Attend: (batch, T, n_embd) -> (batch, T, n_embd); keys and values are of the context (batch, S, n_embd)."""
        source = x if context is None else context
        q, k, v = self._heads(self.wq(x)), self._heads(self.wk(source)), self._heads(self.wv(source))
        dropout = self.dropout if self.training else 0.0
        if self.has_mask:
            y = self._weighted_values(q, k, v, dropout)
        else:
            y = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.is_causal)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).flatten(2)))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, T, n_embd) -> (batch, heads, T, width of a head)."""
        return x.unflatten(-1, (self.n_head, -1)).transpose(1, 2)

    def _weighted_values(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float) -> torch.Tensor:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if self.is_causal:
            length = q.shape[-2]
            mask = self.bias if length <= _MASK_SIZE else self.bias.new_ones(1, 1, length, length).tril()
            scores = scores.masked_fill(mask[:, :, :length, :length] == 0, -math.inf)
        return functional.dropout(scores.softmax(dim=-1), p=dropout) @ v
