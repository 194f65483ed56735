"""Whether what a training config says of the inside of its model is there."""

import importlib.util
from collections.abc import Iterator
from typing import Any

from modalities_pipeline.config.checking.suggestions import suggestion
from modalities_pipeline.config.model_parts import models_inside
from modalities_pipeline.config.origins import KeyPath
from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.config.schemas.sections import Sections, base_model_of, look, number, path_of, text
from modalities_pipeline.config.unbuilt import Unbuilt

_GROUPS = ("linear", "embedding", "layernorm")  # of parameters, as all models below name them
_TORCH_CLASSES = (
    *("Linear", "Embedding", "Dropout", "GELU", "Identity"),
    *("LayerNorm", "RMSNorm", "ModuleDict", "ModuleList"),
)
_CLASSES = {  # model -> classes of the modules that it may have inside
    "gpt2": (
        *("GPT2LLM", "GPT2Block", "CausalSelfAttention", "TransformerMLP", "SwiGLU"),
        *("RotaryTransform", "IdentityTransform", "RMSLayerNorm", "LinearCrossEntropy"),
        *_TORCH_CLASSES,
    ),
    "coca": (
        *("CoCa", "AttentionPooling", "VisionTransformer", "VisionTransformerBlock", "ImagePatchEmbedding", "MLP"),
        *("TextDecoder", "MultiModalDecoder", "TransformerBlock", "MultiHeadAttention", "SwiGLU"),
        *("Conv2d", *_TORCH_CLASSES),
    ),
}
_LAYERS = {  # model -> name of a list of layers -> their class
    "gpt2": {"transformer.h": "GPT2Block"},
    "coca": {
        "vision_encoder.blocks": "VisionTransformerBlock",
        "text_decoder.transformer.h": "TransformerBlock",
        "multimodal_decoder.transformer.h": "TransformerBlock",
    },
}
_WITHOUT_GROUPS = "huggingface_pretrained_model"
_SHARDED = ("fsdp1_wrapped", "fsdp2_wrapped")
_NOT_SHARDED = (
    *("model_initialized", "activation_checkpointed", "compiled", "debugging_enriched"),
    *(_WITHOUT_GROUPS, *_CLASSES),
)


def check_architecture(sections: Sections) -> Iterator[Finding]:
    """What names a group of parameters, a class or a package that the model lacks, of models that are known here.

    Also a model of which every process would train a copy of its own.
    """
    optimizer = sections.get("optimizer") or look(sections.get("app_state"), "optimizer")
    yield from _check_groups(optimizer, sections)
    yield from _check_sharding(look(optimizer, "wrapped_model"), sections)
    for component in models_inside(look(optimizer, "wrapped_model")):
        yield from _check_block_names(component, sections)
        yield from _check_layers(component, sections)
    base = base_model_of(sections)
    if text(base, "attention_implementation") == "dao_flash" and importlib.util.find_spec("flash_attn") is None:
        message = (
            "dao_flash needs the package flash-attn, which is not installed here; install it, or use pytorch_flash"
        )
        yield Finding(path_of(base, sections, ("model_raw",), "attention_implementation"), message, is_note=True)


def _check_groups(optimizer: Any, sections: Sections) -> Iterator[Finding]:
    names = look(optimizer, "weight_decay_groups_excluded")
    model = _name_of(look(optimizer, "wrapped_model"))
    if not isinstance(names, list) or model is None:
        return
    key_path = path_of(optimizer, sections, ("app_state", "config", "optimizer"), "weight_decay_groups_excluded")
    if model == _WITHOUT_GROUPS:
        if names:
            yield Finding(key_path, f"{model} has no groups of parameters; set it to []")
        return
    yield from _unknown(names, _GROUPS, key_path, f"{model} has no group of parameters")
    weight_decay = look(optimizer, "weight_decay")
    if isinstance(weight_decay, int | float) and weight_decay > 0 and set(names) >= set(_GROUPS):
        message = f"leaves no parameter with weight decay, but weight_decay is {weight_decay}; set that to 0"
        yield Finding(key_path, message)


def _check_sharding(model: Any, sections: Sections) -> Iterator[Finding]:
    num_ranks = number(sections, "settings", "step_profile", "dp_degree")
    if num_ranks is None or num_ranks == 1 or _name_of(model) is None or not all(map(_is_whole, models_inside(model))):
        return
    message = (
        f"{num_ranks} ranks see different samples, but each would train a model of its own, for gradients are not "
        "exchanged; wrap the model with fsdp2_wrapped"
    )
    yield Finding(path_of(model, sections, ("app_state",)), message)


def _is_whole(component: Unbuilt) -> bool:
    """Whether a model is known not to be sharded by this component; checkpoint_loading/fsdp1 shards what it loads."""
    if component.variant_key == "fsdp1_checkpointed":
        return getattr(look(component, "checkpoint_loading"), "variant_key", None) == "torch"
    return component.variant_key in _NOT_SHARDED


def _check_block_names(component: Unbuilt, sections: Sections) -> Iterator[Finding]:
    names, model = look(component, "block_names"), _name_of(component)
    if component.variant_key in _SHARDED and isinstance(names, list) and model in _CLASSES:
        key_path = path_of(component, sections, ("app_state",), "block_names")
        yield from _unknown(names, _CLASSES[model], key_path, f"{model} has no class of a module")


def _check_layers(component: Unbuilt, sections: Sections) -> Iterator[Finding]:
    """Activation checkpointing takes a list of layers, none of which is compiled already."""
    layers_fqn, model = text(component, "layers_fqn"), _name_of(component)
    if component.variant_key != "activation_checkpointed" or layers_fqn is None or model not in _LAYERS:
        return
    layers = _LAYERS[model]
    if layers_fqn not in layers:
        key_path = path_of(component, sections, ("app_state",), "layers_fqn")
        yield Finding(key_path, f"{model} has no layers '{layers_fqn}'; it has {', '.join(layers)}")
        return
    compiled = [inner for inner in models_inside(component) if inner.variant_key == "compiled"]
    if any(layers[layers_fqn] in (look(inner, "block_names") or ()) for inner in compiled):
        message = "its layers are compiled already; apply activation_checkpointed first, then compiled"
        yield Finding(path_of(component, sections, ("app_state",), "model"), message)


def _unknown(names: list[Any], known: tuple[str, ...], key_path: KeyPath, message: str) -> Iterator[Finding]:
    for index, name in enumerate(names):
        if name not in known:
            yield Finding((*key_path, index), f"{message} '{name}'{suggestion(str(name), known)}")


def _name_of(model: Any) -> str | None:
    """The variant of the model without its wrappers, None if nothing is known of it here."""
    models = list(models_inside(model))
    is_known = bool(models) and models[-1].component_key == "model"
    return models[-1].variant_key if is_known and models[-1].variant_key in (*_CLASSES, _WITHOUT_GROUPS) else None
