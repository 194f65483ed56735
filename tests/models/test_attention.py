"""Rotary embedding and the implementations of attention."""

import pytest
import torch

from modalities_pipeline.models.attention import CausalSelfAttention
from modalities_pipeline.models.attention import RotaryTransform as Rotary
from modalities_pipeline.models.attention_configs import AttentionConfig, AttentionImplementation


def test_rotary_embedding_matches_modalities(read_vectors):
    vectors = {name: torch.from_numpy(values) for name, values in read_vectors("rope_attention.npz").items()}
    rotary = Rotary(n_embd=64, n_head=4)
    q, k, v = rotary(vectors["q"], vectors["k"], vectors["v"])
    assert torch.allclose(rotary.inv_freq, vectors["inv_freq"], rtol=1e-6, atol=0)
    assert torch.allclose(q, vectors["q_rot"], rtol=0, atol=1e-6)
    assert torch.allclose(k, vectors["k_rot"], rtol=0, atol=1e-6)
    assert v is vectors["v"]


@pytest.mark.parametrize(("implementation", "key"), [("manual", "attn_gqa_manual"), ("pytorch_flash", "attn_gqa_sdpa")])
def test_grouped_query_attention_matches_modalities(implementation, key, read_vectors):
    vectors = {name: torch.from_numpy(values) for name, values in read_vectors("rope_attention.npz").items()}
    attention = _attention(implementation)
    y = attention._dot_product(vectors["q"], vectors["k"], vectors["v"], 0.0)
    assert torch.allclose(y.transpose(1, 2), vectors[key], rtol=0, atol=2e-6)


def test_rotary_tables_stay_float32_in_a_bfloat16_model():
    exact, rounded = Rotary(n_embd=64, n_head=1), Rotary(n_embd=64, n_head=1).to(torch.bfloat16)
    q = torch.randn(1, 1, 4096, 64, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    expected, _, _ = exact(q.float(), q.float(), q)
    actual, _, _ = rounded(q, q, q)
    assert actual.dtype == torch.bfloat16
    assert torch.allclose(actual.float(), expected, rtol=0, atol=0.02)


def test_rotary_tables_serve_shorter_and_longer_sequences():
    rotary = Rotary(n_embd=16, n_head=1)
    q = torch.randn(1, 1, 12, 16)
    short, _, _ = rotary(q[:, :, :5], q[:, :, :5], q)
    full, _, _ = rotary(q, q, q)
    again, _, _ = rotary(q[:, :, :5], q[:, :, :5], q)
    assert torch.equal(short, again)
    assert torch.equal(short, full[:, :, :5])


def test_dao_flash_without_its_package_says_what_to_do():
    with pytest.raises(NotImplementedError, match="needs the package flash-attn"):
        _attention("dao_flash")  # before any forward pass


def _attention(implementation: str) -> CausalSelfAttention:
    return CausalSelfAttention(
        n_head_q=4,
        n_head_kv=2,
        n_embd=64,
        attention_config=AttentionConfig(qkv_transforms=[]),
        attention_implementation=AttentionImplementation(implementation),
        bias=False,
        dropout=0.0,
    )
