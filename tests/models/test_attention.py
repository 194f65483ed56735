"""Rotary embedding and the implementations of attention."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch.nn import functional

from modalities_pipeline.exceptions import ConfigError, UserError
from modalities_pipeline.models.attention import CausalSelfAttention
from modalities_pipeline.models.attention import RotaryTransform as Rotary
from modalities_pipeline.models.attention_configs import AttentionConfig, AttentionImplementation

# What Modalities' rotary embedding (heads of size 8, base 10000) makes of linspace(-1, 1, 8) in bfloat16, by position.
ROTATED_BY_MODALITIES = {
    1: [-0.66015625, -0.75390625, -0.435546875, -0.1435546875, -0.76171875, 0.353515625, 0.7109375, 1.0],
    1023: [-0.26953125, -0.201171875, 0.8125, -0.92578125, 0.9765625, -0.80859375, -0.181640625, 0.3984375],
    2047: [-0.1123046875, 0.8203125, -0.6796875, -0.82421875, 1.0078125, 0.12890625, -0.4765625, -0.5859375],
}


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
    """Rounded frequencies are off by more than a radian at the last position here (W3)."""
    exact, rounded = Rotary(n_embd=64, n_head=1), Rotary(n_embd=64, n_head=1).to(torch.bfloat16)
    q = torch.randn(1, 1, 4096, 64, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    expected, _, _ = exact(q.float(), q.float(), q)
    actual, _, _ = rounded(q, q, q)
    assert actual.dtype == torch.bfloat16
    assert torch.allclose(actual.float(), expected, rtol=0, atol=0.02)


def test_rotary_frequencies_come_back_after_the_meta_device():
    with torch.device("meta"):
        rotary = Rotary(n_embd=16, n_head=2)
    rotary.to_empty(device="cpu")
    rotary.inv_freq.fill_(float("nan"))
    rotary.reset_parameters()
    assert torch.equal(rotary.inv_freq, Rotary(n_embd=16, n_head=2).inv_freq)


def test_rotary_tables_serve_shorter_and_longer_sequences():
    rotary = Rotary(n_embd=16, n_head=1)
    q = torch.randn(1, 1, 12, 16)
    short, _, _ = rotary(q[:, :, :5], q[:, :, :5], q)
    full, _, _ = rotary(q, q, q)
    again, _, _ = rotary(q[:, :, :5], q[:, :, :5], q)
    assert torch.equal(short, again)
    assert torch.equal(short, full[:, :, :5])


def test_rounded_frequencies_are_those_of_modalities_to_the_bit():
    q = torch.linspace(-1, 1, 8).to(torch.bfloat16).expand(1, 1, 2048, 8)
    rounded, _, _ = Rotary(n_embd=16, n_head=2, rounds_frequencies=True)(q, q, q)
    exact, _, _ = Rotary(n_embd=16, n_head=2)(q, q, q)
    assert {position: rounded[0, 0, position].tolist() for position in ROTATED_BY_MODALITIES} == ROTATED_BY_MODALITIES
    assert exact[0, 0, 2047].tolist() != ROTATED_BY_MODALITIES[2047]


def test_rounding_frequencies_changes_nothing_in_float32():
    q = torch.randn(1, 2, 12, 8, generator=torch.Generator().manual_seed(0))
    rounding = Rotary(n_embd=16, n_head=2, rounds_frequencies=True)
    rounding(q.to(torch.bfloat16), q.to(torch.bfloat16), q)  # tables of another dtype are not used again
    assert torch.equal(rounding(q, q, q)[0], Rotary(n_embd=16, n_head=2)(q, q, q)[0])


@pytest.mark.parametrize("num_key_heads", [1, 2, 4])
def test_manual_and_fused_attention_agree_in_values_and_gradients(num_key_heads):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, heads, 7, 16) for heads in (4, num_key_heads, num_key_heads)]
    inputs = [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]
    outputs = [_attention(name)._dot_product(*inputs, 0.0) for name in ("manual", "pytorch_flash")]
    weights = torch.randn(2, 4, 7, 16, generator=generator)
    manual, fused = ([y, *torch.autograd.grad((y * weights).sum(), inputs)] for y in outputs)
    for expected, actual in zip(manual, fused, strict=True):
        assert torch.allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_fused_attention_does_not_copy_heads_of_keys(monkeypatch):
    """Repeating them first takes 1.14 times as long (W35)."""
    calls = []

    def attend(q, k, v, **options):
        calls.append((q.shape[1], k.shape[1], v.shape[1], options["enable_gqa"], options["is_causal"]))
        return q

    monkeypatch.setattr(functional, "scaled_dot_product_attention", attend)
    _attention("pytorch_flash")(torch.zeros(2, 5, 64))
    assert calls == [(4, 2, 2, True, True)]


def test_queries_and_keys_are_transformed_in_order_then_normalised():
    order = []
    entries = [{"type_hint": "IdentityTransform", "config": {}}, _rotary_entry(), _rotary_entry()]
    norm = {"norm_type": "rms_norm", "config": {"ndim": 16}}
    attention = _attention("manual", qkv_transforms=entries, qk_norm_config=norm)
    for name, module in attention.named_modules():
        module.register_forward_hook(lambda *_, name=name: order.append(name))
    attention(torch.zeros(1, 3, 64))
    expected = ["qkv_transforms.0", "qkv_transforms.1", "qkv_transforms.2", "q_norm", "k_norm", "c_proj"]
    assert [name for name in order if name in expected] == expected


@pytest.mark.parametrize(
    ("stays_on", "is_training", "expected"), [(False, False, 0.0), (True, False, 0.5), (False, True, 0.5)]
)
def test_attention_dropout_is_off_in_evaluation_unless_it_is_to_stay_on(stays_on, is_training, expected, monkeypatch):
    """It is always on in Modalities (W5)."""
    rates = []
    monkeypatch.setattr(
        functional, "scaled_dot_product_attention", lambda q, k, v, dropout_p, **_: rates.append(dropout_p) or q
    )
    attention = _attention("pytorch_flash", dropout=0.5, dropout_in_evaluation=stays_on).train(is_training)
    attention(torch.zeros(1, 3, 64))
    assert rates == [expected]


def test_dao_flash_without_its_package_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(ConfigError, match=r"needs the package flash-attn, .* or use 'pytorch_flash'"):
        _attention("dao_flash")  # before any forward pass


@pytest.fixture
def flash_attn(monkeypatch) -> SimpleNamespace:
    """Stands for the package; `calls` has the arguments of its function, which computes what it should."""
    calls = []

    def flash_attn_func(q, k, v, dropout_p, causal):
        calls.append(SimpleNamespace(q=q, k=k, v=v, dropout_p=dropout_p, causal=causal))
        heads = (tensor.transpose(1, 2) for tensor in (q, k, v))
        return functional.scaled_dot_product_attention(*heads, is_causal=causal, enable_gqa=True).transpose(1, 2)

    package = ModuleType("flash_attn")
    package.flash_attn_func = flash_attn_func
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    return SimpleNamespace(calls=calls)


def test_dao_flash_gets_its_layout_and_heads_that_are_not_repeated(flash_attn):
    attention = _attention("dao_flash", qkv_transforms=[_rotary_entry()], dropout=0.5).to(torch.bfloat16)
    expected = _attention("pytorch_flash", qkv_transforms=[_rotary_entry()], dropout=0.5).to(torch.bfloat16)
    expected.load_state_dict(attention.state_dict())
    x = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    assert torch.equal(attention.eval()(x), expected.eval()(x))
    attention.train()(x)
    in_evaluation, in_training = flash_attn.calls
    assert [tuple(tensor.shape) for tensor in (in_training.q, in_training.k, in_training.v)] == [
        (2, 5, 4, 16),
        (2, 5, 2, 16),
        (2, 5, 2, 16),
    ]
    assert (in_evaluation.dropout_p, in_training.dropout_p) == (0.0, 0.5)
    assert in_evaluation.causal


def test_dao_flash_in_float32_says_what_to_do(flash_attn):
    with pytest.raises(UserError, match=r"not in torch\.float32\. Use mixed precision, or 'pytorch_flash'"):
        _attention("dao_flash")(torch.zeros(1, 3, 64))


def _rotary_entry() -> dict:
    config = {"n_embd": 64, "n_head": 4, "seq_length_dim": -2, "base_freq": 10000}
    return {"type_hint": "RotaryTransform", "config": config}


def _attention(
    implementation: str,
    qkv_transforms: list[dict] | None = None,
    qk_norm_config: dict | None = None,
    dropout: float = 0.0,
    dropout_in_evaluation: bool = False,
) -> CausalSelfAttention:
    return CausalSelfAttention(
        n_head_q=4,
        n_head_kv=2,
        n_embd=64,
        attention_config=AttentionConfig(qkv_transforms=qkv_transforms or [], qk_norm_config=qk_norm_config),
        attention_implementation=AttentionImplementation(implementation),
        bias=False,
        dropout=dropout,
        dropout_in_evaluation=dropout_in_evaluation,
    )
