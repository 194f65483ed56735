"""Nodes as people write them in configs for Modalities: models, meshes, initialisations."""

from typing import Any

from modalities_nodes import ENV, Node, node, ref


def norm(norm_type: str = "layer_norm", **config: Any) -> Node:
    """The wrapper that model/gpt2 takes a norm in."""
    return {"norm_type": norm_type, "config": config or {"normalized_shape": 128, "eps": 1e-5}}


def gpt2(**changes: Any) -> Node:
    """model/gpt2 with rotary positions and SwiGLU."""
    config = {
        "use_meta_device": True,
        "sample_key": "input_ids",
        "poe_type": "NOPE",
        "sequence_length": 256,
        "prediction_key": "logits",
        "vocab_size": 50304,
        "n_layer": 2,
        "n_head_q": 8,
        "n_head_kv": 4,
        "ffn_hidden": 128,
        "n_embd": 128,
        "dropout": 0.0,
        "bias": True,
        "attention_config": {
            "qkv_transforms": [
                {
                    "type_hint": "RotaryTransform",
                    "config": {"n_embd": 128, "n_head": 8, "seq_length_dim": -2, "base_freq": 10000},
                }
            ]
        },
        "attention_implementation": "manual",
        "activation_type": "swiglu",
        "attention_norm_config": norm(),
        "ffn_norm_config": norm("pytorch_rms_norm", normalized_shape=128),
        "lm_head_norm_config": norm("rms_norm", ndim=128, bias=True, epsilon=1e-5),
        "use_weight_tying": False,
    }
    return node("model/gpt2", **{**config, **changes})


def composed(model_type: str = "gpt2", **changes: Any) -> Node:
    """The usual initialisation."""
    config = {"weight_init_type": "scaled", "mean": 0.0, "std": 0.02, "num_layers": 2}
    return node("model_initialization/composed", model_type=model_type, **{**config, **changes})


def initialized(model: str, initializer: Node | None = None) -> Node:
    """model/model_initialized."""
    return node("model/model_initialized", model=ref(model), model_initializer=initializer or composed())


def fsdp2(model: str, **changes: Any) -> Node:
    """model/fsdp2_wrapped."""
    config = {
        "model": ref(model),
        "mixed_precision_settings": {"param_dtype": "BF_16", "reduce_dtype": "BF_16"},
        "block_names": ["GPT2Block"],
        "device_mesh": ref("device_mesh"),
    }
    return node("model/fsdp2_wrapped", **{**config, **changes})


def fsdp1(model: str, variant: str = "fsdp1_wrapped", block_names: tuple[str, ...] = ("GPT2Block",)) -> Node:
    """model/fsdp1_wrapped."""
    return node(
        f"model/{variant}",
        model=ref(model),
        sync_module_states=True,
        mixed_precision_settings="BF_16",
        sharding_strategy="FULL_SHARD",
        block_names=list(block_names),
    )


def mesh(**degrees: int) -> Node:
    """device_mesh/default; degrees without the ending `_parallel_degree`."""
    config: dict[str, Any] = {"device_type": "cuda", "data_parallel_replicate_degree": 1}
    config |= {f"{name}_parallel_degree": degree for name, degree in degrees.items()}
    config |= {"data_parallel_shard_degree": -1, "world_size": ENV + "world_size}"}
    return node("device_mesh/default", **config)


def coca() -> Node:
    """model/coca, with its vision transformer."""
    attention = {"attention_engine_type": "default_attention"}
    return node(
        "model/coca",
        prediction_key="logits",
        vision_embd_prediction_key="vision_embeddings",
        text_embd_prediction_key="text_embeddings",
        vision_cls_prediction_key="vision_cls",
        text_cls_prediction_key="text_cls",
        vision_encoder_config={
            "sample_key": "images",
            "prediction_key": "vision_embeddings",
            "img_size": 224,
            "n_classes": None,
            "n_layer": 2,
            "attention_config": attention,
            "n_head": 4,
            "n_embd": 128,
            "dropout": 0.0,
            "patch_size": 16,
            "patch_stride": 16,
            "n_img_channels": 3,
            "add_cls_token": False,
            "bias": True,
        },
        text_decoder_config={
            "sample_key": "input_ids",
            "prediction_key": "logits",
            "block_size": 64,
            "vocab_size": 50304,
            "n_layer_text": 1,
            "n_layer_multimodal_text": 1,
            "attention_config": attention,
            "n_head": 4,
            "n_embd": 128,
            "ffn_hidden": 256,
            "dropout": 0.0,
            "bias": True,
            "activation": "gelu",
            "epsilon": 1e-5,
        },
        n_pool_head=4,
        n_vision_queries=16,
        bias_attn_pool=False,
        epsilon_attn_pool=1e-5,
    )
