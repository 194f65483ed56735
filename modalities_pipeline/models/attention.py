"""Causal self attention: rotary embedding, grouped queries, and the implementations of the scaled dot product."""

import importlib
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from modalities_pipeline.models.attention_configs import (
    AttentionConfig,
    AttentionImplementation,
    IdentityTransformEntry,
    RotaryTransformEntry,
)
from modalities_pipeline.models.layer_norms import build_norm

_HEAD_DIMENSION = -1


class IdentityTransform(nn.Module):
    """Leaves queries, keys and values as they are."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Give back what came in."""
        return q, k, v


class RotaryTransform(nn.Module):
    """Rotary position embedding in the half-split layout (`rotate_half`), the one that Llama of transformers uses.

    Angles, sines and cosines are float32 whatever the model computes in: rounded to bfloat16 the angles are off by
    more than a radian at position 4095.
    """

    inv_freq: torch.Tensor

    def __init__(self, n_embd: int, n_head: int, seq_length_dim: int = -2, base_freq: int = 10_000) -> None:
        super().__init__()
        self.head_dim = n_embd // n_head
        self.seq_length_dim = seq_length_dim
        self.base_freq = base_freq
        self.register_buffer("inv_freq", self._frequencies(None))
        self._tables: tuple[torch.Tensor, torch.Tensor] | None = None

    def reset_parameters(self) -> None:
        """Recompute the frequencies on the device where the buffer is now; needed after the meta device."""
        self.inv_freq = self._frequencies(self.inv_freq.device)
        self._tables = None

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotate queries and keys of shape (batch, heads, T, head_dim) by their positions 0 ... T - 1."""
        cos, sin = self._cos_sin(k.shape[self.seq_length_dim], k.device)
        return self._rotate(q, cos, sin), self._rotate(k, cos, sin), v

    def _frequencies(self, device: torch.device | None) -> torch.Tensor:
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device) / self.head_dim
        return 1.0 / (self.base_freq**exponents)

    def _cos_sin(self, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        if self._tables is None or self._tables[0].shape[0] < length or self._tables[0].device != device:
            # Not from the buffer, which `.to(bfloat16)` would have rounded. Tables first made during an evaluation
            # must also serve training, which cannot save inference tensors for the backward pass.
            with torch.inference_mode(False), torch.no_grad():
                positions = torch.arange(length, dtype=torch.float32, device=device)
                angles = torch.outer(positions, self._frequencies(device)).repeat(1, 2)
                self._tables = angles.cos(), angles.sin()
        cos, sin = self._tables
        return cos[:length], sin[:length]

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        shape = [1] * x.dim()
        shape[self.seq_length_dim], shape[_HEAD_DIMENSION] = cos.shape
        wide = x.float()
        first, second = wide.chunk(2, dim=_HEAD_DIMENSION)
        rotated = torch.cat((-second, first), dim=_HEAD_DIMENSION)
        return (wide * cos.view(shape) + rotated * sin.view(shape)).type_as(x)


def build_qkv_transform(entry: RotaryTransformEntry | IdentityTransformEntry) -> nn.Module:
    """The transform that a config entry asks for."""
    if isinstance(entry, RotaryTransformEntry):
        return RotaryTransform(**entry.config.model_dump())
    return IdentityTransform()


class CausalSelfAttention(nn.Module):
    """Causal self attention where `n_head_q // n_head_kv` consecutive query heads share one head of keys and values."""

    def __init__(
        self,
        n_head_q: int,
        n_head_kv: int,
        n_embd: int,
        attention_config: AttentionConfig,
        attention_implementation: AttentionImplementation,
        bias: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.n_head_q = n_head_q
        self.n_head_kv = n_head_kv
        self.head_dim = n_embd // n_head_q
        self.dropout = dropout
        if attention_implementation is AttentionImplementation.DAO_FLASH:
            _flash_attn()  # better here than in the first forward pass
        self._dot_product = _DOT_PRODUCTS[attention_implementation]
        self.q_attn = nn.Linear(n_embd, n_embd, bias=bias)
        self.k_attn = nn.Linear(n_embd, n_head_kv * self.head_dim, bias=bias)
        self.v_attn = nn.Linear(n_embd, n_head_kv * self.head_dim, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)
        self.resid_dropout = nn.Dropout(dropout)
        self.qkv_transforms = nn.ModuleList(build_qkv_transform(entry) for entry in attention_config.qkv_transforms)
        norm_config = attention_config.qk_norm_config
        self.q_norm = build_norm(norm_config) if norm_config else None
        self.k_norm = build_norm(norm_config) if norm_config else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend: (batch, T, n_embd) -> (batch, T, n_embd)."""
        batch_size, length, n_embd = x.shape
        q = self.q_attn(x).view(batch_size, length, -1, self.head_dim).transpose(1, 2)
        k = self.k_attn(x).view(batch_size, length, -1, self.head_dim).transpose(1, 2)
        v = self.v_attn(x).view(batch_size, length, -1, self.head_dim).transpose(1, 2)
        for transform in self.qkv_transforms:
            q, k, v = transform(q, k, v)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        y = self._dot_product(q, k, v, self.dropout if self.training else 0.0)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).reshape(batch_size, length, n_embd)))


def _manual(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float) -> torch.Tensor:
    """Scores in full, of shape (batch, heads, T, T): easy to follow and to inspect, slow and large for long T."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    length = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[_HEAD_DIMENSION])
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(diagonal=1)
    probabilities = scores.masked_fill(future, -math.inf).softmax(dim=-1)
    return functional.dropout(probabilities, p=dropout) @ v


def _pytorch_flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float) -> torch.Tensor:
    return functional.scaled_dot_product_attention(
        q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
    )


def _flash_attn() -> ModuleType:
    try:
        return importlib.import_module("flash_attn")
    except ImportError:
        raise NotImplementedError(
            "attention_implementation 'dao_flash' needs the package flash-attn. Install it, or use 'pytorch_flash'."
        ) from None


def _dao_flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float) -> torch.Tensor:
    """Attention of the flash-attn package, which only CUDA machines have; it wants (batch, T, heads, head_dim)."""
    flash_attn = _flash_attn()
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    y: torch.Tensor = flash_attn.flash_attn_func(q, k, v, dropout_p=dropout, causal=True)
    return y.transpose(1, 2)


_DOT_PRODUCTS: dict[AttentionImplementation, Callable[[Any, Any, Any, float], torch.Tensor]] = {
    AttentionImplementation.MANUAL: _manual,
    AttentionImplementation.PYTORCH_FLASH: _pytorch_flash,
    AttentionImplementation.DAO_FLASH: _dao_flash,
}
