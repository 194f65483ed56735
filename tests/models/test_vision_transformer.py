"""The vision transformer on its own, as a classifier of images."""

import numpy as np
import pytest
import torch

from modalities_pipeline.models.coca_configs import VisionTransformerConfig
from modalities_pipeline.models.vision_transformer import VisionTransformer


def _build(**fields) -> VisionTransformer:
    return VisionTransformer(VisionTransformerConfig(sample_key="images", prediction_key="logits", **fields))


@pytest.mark.parametrize("name", ["vit_cls_head", "vit_mean_head_flash"])
def test_names_and_logits_are_those_of_modalities(name, read_vectors, fill, hashed_images):
    case = read_vectors("coca_vit.json")[name]
    model = VisionTransformer(VisionTransformerConfig(**case["config"])).eval()
    assert [[key, [*parameter.shape]] for key, parameter in model.named_parameters()] == case["parameters"]
    assert sum(parameter.numel() for parameter in model.parameters()) == case["num_parameters"]
    assert model.block_size == case["block_size"]
    fill(model)
    logits = model({"images": hashed_images})["logits"]
    assert np.abs(logits.detach().numpy() - read_vectors("coca_vit.npz")[f"{name}/logits"]).max() < 2e-5
    assert torch.equal(model(hashed_images), logits)


def test_images_may_be_higher_than_wide():
    """W23: Modalities refuses every pair."""
    model = _build(img_size=[12, 8], patch_size=4, patch_stride=4, n_layer=1, n_embd=16, n_head=2, n_classes=None)
    assert model.block_size == 3 * 2 + 1
    assert model(torch.randn(2, 3, 12, 8)).shape == (2, 7, 16)


def test_width_of_the_feed_forward_network_can_be_chosen():
    """W21: in Modalities it is 3072."""
    assert _build(n_layer=1, ffn_hidden=8).blocks[0].mlp.fc1.weight.shape == (8, 768)
    assert _build(n_layer=1).blocks[0].mlp.fc1.weight.shape == (3072, 768)


def test_attention_has_biases_in_any_case():
    """As in Modalities, so that checkpoints interchange."""
    model = _build(n_layer=1, n_embd=16, n_head=2, ffn_hidden=8, bias=False)
    biases = {name for name, _ in model.named_parameters() if name.endswith("bias") and ".norm" not in name}
    attention = {f"blocks.0.attention.{name}.bias" for name in ("wq", "wk", "wv", "c_proj")}
    assert {name for name in biases if name.startswith("blocks")} == attention


def test_patches_may_overlap():
    model = _build(img_size=8, patch_size=4, patch_stride=2, n_layer=1, n_embd=16, n_head=2, add_cls_token=False)
    assert model.block_size == 9
