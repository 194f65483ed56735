"""A tiny CoCa and its inputs, as several tests want them."""

from typing import Any

import torch


def coca_config(
    vision: dict[str, Any] | None = None, text: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """Fields of a CoCa with one layer of each kind; `vision` and `text` change those of its parts."""
    return {
        "prediction_key": "logits",
        "vision_embd_prediction_key": "vision_embeddings",
        "text_embd_prediction_key": "text_embeddings",
        "vision_cls_prediction_key": "vision_cls",
        "text_cls_prediction_key": "text_cls",
        "vision_encoder_config": {
            "sample_key": "images",
            "prediction_key": "vision_embeddings",
            "img_size": 8,
            "n_classes": None,
            "n_layer": 1,
            "n_head": 2,
            "n_embd": 32,
            "ffn_hidden": 64,
            "patch_size": 4,
            "patch_stride": 4,
            **(vision or {}),
        },
        "text_decoder_config": {
            "sample_key": "input_ids",
            "prediction_key": "text_embeddings",
            "block_size": 12,
            "vocab_size": 64,
            "n_layer_text": 1,
            "n_layer_multimodal_text": 1,
            "n_head": 2,
            "n_embd": 32,
            "ffn_hidden": 64,
            "dropout": 0.0,
            "bias": True,
            "activation": "gelu",
            "epsilon": 1e-5,
            **(text or {}),
        },
        "n_pool_head": 2,
        "n_vision_queries": 3,
        "bias_attn_pool": False,
        "epsilon_attn_pool": 1e-5,
        "seed": 5,
        **changes,
    }


def coca_inputs(num_samples: int = 2, num_tokens: int = 12) -> dict[str, torch.Tensor]:
    """Images and texts that are the same each time."""
    generator = torch.Generator().manual_seed(0)
    return {
        "images": torch.randn(num_samples, 3, 8, 8, generator=generator),
        "input_ids": torch.randint(64, (num_samples, num_tokens), generator=generator),
    }
