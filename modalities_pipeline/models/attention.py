"""Causal self attention: rotary embedding, grouped queries, and the implementations of the scaled dot product."""

import importlib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from modalities_pipeline.exceptions import ConfigError, UserError
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
    """Rotary position embedding (https://arxiv.org/abs/2104.09864) in the half-split layout of transformers' Llama.

    Angles, sines and cosines are float32 whatever the model computes in: rounded to bfloat16 the angles are off by
    more than a radian at position 4095. With `rounds_frequencies`, frequencies, sines and cosines are in the dtype of
    the keys, as in Modalities.
    """

    inv_freq: torch.Tensor

    def __init__(
        self,
        n_embd: int,
        n_head: int,
        seq_length_dim: int = -2,
        base_freq: int = 10_000,
        rounds_frequencies: bool = False,
    ) -> None:
        super().__init__()
        self.head_dim = n_embd // n_head
        self.seq_length_dim = seq_length_dim
        self.base_freq = base_freq
        self.rounds_frequencies = rounds_frequencies
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
        length, dtype = k.shape[self.seq_length_dim], k.dtype if self.rounds_frequencies else torch.float32
        # A compiled graph computes its tables, which costs little: what a module keeps would make it compile again.
        make_tables = self._make_tables if torch.compiler.is_compiling() else self._kept_tables
        cos, sin = make_tables(length, k.device, dtype)
        return self._rotate(q, cos, sin), self._rotate(k, cos, sin), v

    def _frequencies(self, device: torch.device | None) -> torch.Tensor:
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device) / self.head_dim
        return 1.0 / (self.base_freq**exponents)

    def _kept_tables(self, length: int, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        kept = self._tables
        if kept is None or kept[0].shape[0] < length or kept[0].device != device or kept[0].dtype != dtype:
            # Tables first made during an evaluation must also serve training, which cannot save inference tensors for
            # the backward pass.
            with torch.inference_mode(False), torch.no_grad():
                kept = self._tables = self._make_tables(length, device, dtype)
        return kept[0][:length], kept[1][:length]

    def _make_tables(self, length: int, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(length, dtype=torch.float32, device=device)
        # Not from the buffer, which `.to(bfloat16)` would have rounded.
        angles = torch.outer(positions, self._frequencies(device).to(dtype).float()).repeat(1, 2)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        shape = [1] * x.dim()
        shape[self.seq_length_dim], shape[_HEAD_DIMENSION] = cos.shape
        wide = x.to(cos.dtype)
        first, second = wide.chunk(2, dim=_HEAD_DIMENSION)
        rotated = torch.cat((-second, first), dim=_HEAD_DIMENSION)
        return (wide * cos.view(shape) + rotated * sin.view(shape)).type_as(x)


def build_qkv_transform(entry: RotaryTransformEntry | IdentityTransformEntry) -> nn.Module:
    """The transform that a config entry asks for."""
    if isinstance(entry, RotaryTransformEntry):
        return RotaryTransform(**entry.config.model_dump())
    return IdentityTransform()


class CausalSelfAttention(nn.Module):
    """Causal self attention where `n_head_q // n_head_kv` consecutive query heads share one head of keys and values.

    Raises:
        ConfigError: `dao_flash` is asked for and its package is not installed.
    """

    def __init__(
        self,
        n_head_q: int,
        n_head_kv: int,
        n_embd: int,
        attention_config: AttentionConfig,
        attention_implementation: AttentionImplementation,
        bias: bool,
        dropout: float,
        dropout_in_evaluation: bool = False,
    ) -> None:
        super().__init__()
        self.n_head_q = n_head_q
        self.n_head_kv = n_head_kv
        self.head_dim = n_embd // n_head_q
        self.dropout = dropout
        self.dropout_in_evaluation = dropout_in_evaluation
        if attention_implementation is AttentionImplementation.DAO_FLASH:
            _refuse_missing_flash_attn()  # better here than in the first forward pass
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
        """Attend: (batch, T, n_embd) -> (batch, T, n_embd).

        Numbers of heads are taken from the projections' outputs, as under tensor parallelism a rank has some of them.
        """
        batch_size, length, _ = x.shape
        q = self.q_attn(x).view(batch_size, length, -1, self.head_dim).transpose(1, 2)
        k = self.k_attn(x).view(batch_size, length, -1, self.head_dim).transpose(1, 2)
        v = self.v_attn(x).view(batch_size, length, -1, self.head_dim).transpose(1, 2)
        for transform in self.qkv_transforms:
            q, k, v = transform(q, k, v)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        y = self._dot_product(q, k, v, self.dropout if self.training or self.dropout_in_evaluation else 0.0)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).reshape(batch_size, length, -1)))


def _manual(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float) -> torch.Tensor:
    """Scores in full, of shape (batch, key heads, queries per key, T, T): easy to follow, slow and large for long T."""
    grouped = q.unflatten(1, (k.shape[1], -1))
    length = q.shape[-2]
    scores = grouped @ k.unsqueeze(2).transpose(-2, -1) / math.sqrt(q.shape[_HEAD_DIMENSION])
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(diagonal=1)
    probabilities = scores.masked_fill(future, -math.inf).softmax(dim=-1)
    return (functional.dropout(probabilities, p=dropout) @ v.unsqueeze(2)).flatten(1, 2)


def _pytorch_flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float) -> torch.Tensor:
    return functional.scaled_dot_product_attention(
        q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
    )


def _dao_flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float) -> torch.Tensor:
    """Attention of the flash-attn package, which only CUDA machines have; it wants (batch, T, heads, head_dim)."""
    if q.dtype not in (torch.bfloat16, torch.float16):
        raise UserError(
            f"attention_implementation 'dao_flash' computes in bfloat16 or float16, not in {q.dtype}. Use mixed "
            "precision, or 'pytorch_flash'."
        )
    flash_attn = importlib.import_module("flash_attn")
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    y: torch.Tensor = flash_attn.flash_attn_func(q, k, v, dropout_p=dropout, causal=True)
    return y.transpose(1, 2)


def _refuse_missing_flash_attn() -> None:
    try:
        importlib.import_module("flash_attn")
    except ImportError as error:
        raise ConfigError(
            f"attention_implementation 'dao_flash' needs the package flash-attn, which cannot be imported ({error}). "
            "Install it, or use 'pytorch_flash'."
        ) from None


_DOT_PRODUCTS: dict[AttentionImplementation, Callable[[Any, Any, Any, float], torch.Tensor]] = {
    AttentionImplementation.MANUAL: _manual,
    AttentionImplementation.PYTORCH_FLASH: _pytorch_flash,
    AttentionImplementation.DAO_FLASH: _dao_flash,
}
