"""The attention of CoCa against torch's own."""

import pytest
import torch
from torch.nn import functional

from modalities_pipeline.models.coca_configs import CoCaAttentionConfig
from modalities_pipeline.models.multi_head_attention import AttentionType, MultiHeadAttention

FLASH = CoCaAttentionConfig(attention_engine_type="pytorch_flash_attention")


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(2, -1, 4, 8).transpose(1, 2)


@pytest.mark.parametrize("attention_config", [None, FLASH])
@pytest.mark.parametrize("attention_type", list(AttentionType))
def test_each_type_looks_at_what_it_should(attention_type, attention_config):
    attention = MultiHeadAttention(32, 4, attention_type, attention_config=attention_config)
    x, context = torch.randn(2, 5, 32), torch.randn(2, 7, 32)
    is_cross = attention_type is AttentionType.CROSS_ATTENTION
    source = context if is_cross else x
    q, k, v = _heads(attention.wq(x)), _heads(attention.wk(source)), _heads(attention.wv(source))
    is_causal = attention_type is AttentionType.CAUSAL_SELF_ATTENTION
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal).transpose(1, 2).reshape(2, 5, 32)
    actual = attention(x, context=context if is_cross else None)
    assert torch.allclose(actual, attention.c_proj(expected), atol=1e-6)


def test_heads_have_to_be_of_equal_size():
    with pytest.raises(ValueError, match=r"n_embd \(32\) is not divisible by n_head \(5\)"):
        MultiHeadAttention(32, 5, AttentionType.CAUSAL_SELF_ATTENTION)


def test_the_mask_can_be_written_anew():
    """Its memory has no values after the meta device."""
    attention = MultiHeadAttention(8, 2, AttentionType.CAUSAL_SELF_ATTENTION)
    expected = attention.bias.clone()
    attention.bias.fill_(float("nan"))
    attention.reset_parameters()
    assert torch.equal(attention.bias, expected)
    assert torch.equal(expected, torch.ones(1024, 1024).tril()[None, None])
