"""CoCa: the numbers of Modalities, and what is right where those are not."""

import re

import numpy as np
import pytest
import torch
from coca_helpers import coca_config, coca_inputs

from modalities_pipeline.exceptions import UserError
from modalities_pipeline.models.coca import build_coca
from modalities_pipeline.models.initialization import get_composed_model_initializer, get_initialized_model
from modalities_pipeline.models.multi_head_attention import MultiHeadAttention
from modalities_pipeline.optim.optimizers import get_adam_w

FLASH = {"attention_config": {"attention_engine_type": "pytorch_flash_attention"}}


@pytest.fixture(scope="module")
def vector(read_vectors):
    return read_vectors("coca_vit.json")["coca"]


def test_names_and_shapes_are_those_of_modalities(vector):
    model = build_coca(**vector["config"])
    assert [[name, [*parameter.shape]] for name, parameter in model.named_parameters()] == vector["parameters"]
    assert [[name, [*buffer.shape]] for name, buffer in model.named_buffers()] == vector["buffers"]
    assert list(model.state_dict()) == vector["state_dict_keys"]
    assert sum(parameter.numel() for parameter in model.parameters()) == vector["num_parameters"]


def test_predictions_are_those_of_modalities(vector, read_vectors, fill, hashed_images):
    model = build_coca(**vector["config"]).eval()
    fill(model)
    predictions = model({"images": hashed_images, "input_ids": torch.tensor(vector["input_ids"])})
    assert {key: [*value.shape] for key, value in predictions.items()} == vector["outputs"]
    for key, prediction in predictions.items():
        expected = read_vectors("coca_vit.npz")[f"coca/{key}"]
        assert np.abs(prediction.detach().numpy() - expected).max() < 2e-5, key


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_both_engines_of_attention_compute_the_same(activation):
    text = {"activation": activation}
    masked, flash = (build_coca(**coca_config({**vision}, {**text, **vision})).eval() for vision in ({}, FLASH))
    assert not list(flash.buffers())
    flash.load_state_dict(
        {key: value for key, value in masked.state_dict().items() if not key.endswith("attn.bias")}, strict=False
    )
    expected = masked(coca_inputs())
    assert all(torch.allclose(value, expected[key], atol=1e-6) for key, value in flash(coca_inputs()).items())


def test_text_longer_than_the_block_size_is_refused(vector):
    """W21: one token more passed the check, and the position table had no row for it."""
    model = build_coca(**coca_config())
    assert model(coca_inputs(num_tokens=12))["logits"].shape == (2, 12, 64)
    with pytest.raises(UserError, match=r"13 tokens per text, more than its block_size \(12\)"):
        model(coca_inputs(num_tokens=13))


def test_images_of_another_size_are_refused():
    inputs = coca_inputs()
    inputs["images"] = inputs["images"][..., :4]
    with pytest.raises(UserError, match=re.escape("(3, 8, 4), but it is for (channels, height, width) (3, 8, 8)")):
        build_coca(**coca_config())(inputs)


def test_a_later_token_changes_no_earlier_logits_but_the_embedding_of_the_text():
    model, inputs = build_coca(**coca_config()).eval(), coca_inputs()
    changed = {**inputs, "input_ids": inputs["input_ids"].clone()}
    changed["input_ids"][:, 8] += 1
    changed["input_ids"] %= 64
    before, after = model(inputs), model(changed)
    assert torch.equal(before["logits"][:, :8], after["logits"][:, :8])
    assert not torch.allclose(before["logits"][:, 8], after["logits"][:, 8])
    assert not torch.allclose(before["text_cls"], after["text_cls"])
    assert torch.equal(before["vision_cls"], after["vision_cls"])


def test_logits_depend_on_the_image():
    model, inputs = build_coca(**coca_config()).eval(), coca_inputs()
    other = model({**inputs, "images": inputs["images"].flip(0)})
    assert not torch.allclose(model(inputs)["logits"], other["logits"])


def test_texts_may_be_longer_than_the_masks_of_checkpoints():
    """Modalities' masks have 1024 positions whatever the block size."""
    masked, flash = (build_coca(**coca_config(text={"block_size": 1100, **text})).eval() for text in ({}, FLASH))
    assert {buffer.shape[-1] for buffer in masked.buffers()} == {1024}
    flash.load_state_dict(masked.state_dict(), strict=False)
    inputs = coca_inputs(1, 1100)
    assert torch.allclose(masked(inputs)["logits"], flash(inputs)["logits"], atol=1e-5)


def test_the_gelu_network_has_the_names_of_modalities():
    model = build_coca(**coca_config(text={"activation": "gelu"}))
    names = {name for name, _ in model.named_parameters() if ".mlp" in name and "vision" not in name}
    layers = {re.sub(r".*\.(mlp(_2)?\.)", r"\1", name) for name in names}
    parts = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
    assert layers == {f"{network}.{part}" for network in ("mlp", "mlp_2") for part in parts}


def test_attention_never_drops():
    """As in Modalities, whose blocks give dropout to embeddings and feed-forward networks only."""
    model = build_coca(**coca_config({"dropout": 0.5}, {"dropout": 0.5}))
    rates = {module.dropout for module in model.modules() if isinstance(module, MultiHeadAttention)}
    assert rates == {0.0}


def test_dropout_is_for_training_only():
    model = build_coca(**coca_config({"dropout": 0.5}, {"dropout": 0.5}))
    training = [model(coca_inputs())["logits"] for _ in range(2)]
    assert not torch.allclose(*training)
    model.eval()
    evaluation = [model(coca_inputs())["logits"] for _ in range(2)]
    assert torch.equal(*evaluation)


@pytest.mark.parametrize("dtype", [torch.float64, torch.uint8])
def test_images_of_any_dtype_are_taken(dtype):
    """Random images of `dummy_dataset` are float64."""
    inputs = coca_inputs()
    images = (inputs["images"] * 50).to(torch.uint8)
    model = build_coca(**coca_config()).eval()
    expected = model({**inputs, "images": images.float()})["logits"]
    assert torch.equal(model({**inputs, "images": images.to(dtype)})["logits"], expected)


def test_weights_are_decided_by_the_seed_and_nothing_global_is_seeded():
    """W21, W32: also those of the text's class token, which was uninitialised memory."""
    states = []
    for global_seed, seed in ((1, 5), (2, 5), (2, 6)):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        states.append(build_coca(**coca_config(seed=seed)).state_dict())
        assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())
    for key in ("text_decoder.cls_token", "vision_queries"):
        assert not torch.equal(states[0][key], states[2][key])
        assert 0.5 < states[0][key].std() < 1.5


def test_every_parameter_is_in_one_group_for_weight_decay():
    model = build_coca(**coca_config())
    optimizer = get_adam_w(1e-3, model, (0.9, 0.95), 1e-8, 0.1, ["embedding", "layernorm"])
    groups = [{id(parameter) for parameter in group["params"]} for group in optimizer.param_groups]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    without = [name for name, parameter in model.named_parameters() if id(parameter) in groups[1]]
    kinds = ("norm", "ln_", "wte", "wpe", "positional", "cls_token", "vision_queries")
    assert without == [name for name, _ in model.named_parameters() if any(kind in name for kind in kinds)]
    assert len(groups[0]) + len(groups[1]) == len(list(model.parameters()))


@pytest.mark.parametrize("scheme", ["plain", "scaled_embed"])
def test_a_model_from_the_meta_device_equals_one_that_had_memory(scheme):
    """Masks are there again, and the head is the embedding still (B063)."""
    num_layers = None if scheme == "plain" else 2
    initializer = get_composed_model_initializer("coca", scheme, 0.0, 0.02, num_layers=num_layers)
    plain = get_initialized_model(build_coca(**coca_config()), initializer)
    with torch.device("meta"):
        from_meta = build_coca(**coca_config())
    get_initialized_model(from_meta, initializer)
    state = from_meta.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in plain.state_dict().items())
    assert from_meta.multimodal_decoder.lm_head.weight is from_meta.text_decoder.transformer["wte"].weight
    assert torch.equal(plain(coca_inputs())["logits"], from_meta(coca_inputs())["logits"])


def test_bfloat16_is_close_to_float32():
    model = build_coca(**coca_config())
    get_initialized_model(model, get_composed_model_initializer("coca", "plain", 0.0, 0.02))
    expected = model(coca_inputs())
    rounded = model.to(torch.bfloat16)(coca_inputs())
    for key, value in rounded.items():
        assert value.dtype == torch.bfloat16
        assert torch.allclose(value.float(), expected[key], atol=0.05), key
