"""Whether what a training config says of the inside of its model is there."""

import importlib.util
from collections.abc import Iterator
from typing import Any

from modalities_pipeline.config.checking.suggestions import suggestion
from modalities_pipeline.config.origins import KeyPath
from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.config.schemas.sections import Sections, base_model_of, look, path_of, text
from modalities_pipeline.config.unbuilt import Unbuilt

_GPT2 = "gpt2"
_GROUPS_OF_GPT2 = ("linear", "embedding", "layernorm")  # of parameters, as `models.gpt2` names them
_OWN_CLASSES_OF_GPT2 = (
    *("GPT2LLM", "GPT2Block", "CausalSelfAttention", "TransformerMLP", "SwiGLU"),
    *("RotaryTransform", "IdentityTransform", "RMSLayerNorm"),
)
_TORCH_CLASSES_OF_GPT2 = (
    *("Linear", "Embedding", "Dropout", "GELU", "Identity"),
    *("LayerNorm", "RMSNorm", "ModuleDict", "ModuleList"),
)
_CLASSES_OF_GPT2 = (*_OWN_CLASSES_OF_GPT2, *_TORCH_CLASSES_OF_GPT2)
_SHARDED = ("fsdp1_wrapped", "fsdp2_wrapped")


def check_architecture(sections: Sections) -> Iterator[Finding]:
    """What names a group of parameters, a class or a package that the model does not have; models of gpt2 only."""
    optimizer = sections.get("optimizer") or look(sections.get("app_state"), "optimizer")
    yield from _check_groups(optimizer, sections)
    for component in _wrappers(look(optimizer, "wrapped_model")):
        yield from _check_block_names(component, sections)
        if text(look(component, "model_initializer"), "model_type") == "coca":
            key_path = path_of(component, sections, ("model",), "model_initializer")
            yield Finding(
                key_path, "models of type coca cannot be initialised by this version, only gpt2", is_note=True
            )
    base = base_model_of(sections)
    if text(base, "attention_implementation") == "dao_flash" and importlib.util.find_spec("flash_attn") is None:
        message = (
            "dao_flash needs the package flash-attn, which is not installed here; install it, or use pytorch_flash"
        )
        yield Finding(path_of(base, sections, ("model_raw",), "attention_implementation"), message, is_note=True)


def _check_groups(optimizer: Any, sections: Sections) -> Iterator[Finding]:
    names = look(optimizer, "weight_decay_groups_excluded")
    if not isinstance(names, list) or not _is_gpt2(look(optimizer, "wrapped_model")):
        return
    key_path = path_of(optimizer, sections, ("app_state", "config", "optimizer"), "weight_decay_groups_excluded")
    yield from _unknown(names, _GROUPS_OF_GPT2, key_path, "group of parameters")


def _check_block_names(component: Any, sections: Sections) -> Iterator[Finding]:
    names = look(component, "block_names")
    if component.variant_key in _SHARDED and isinstance(names, list) and _is_gpt2(component):
        key_path = path_of(component, sections, ("app_state",), "block_names")
        yield from _unknown(names, _CLASSES_OF_GPT2, key_path, "class of a module")


def _unknown(names: list[Any], known: tuple[str, ...], key_path: KeyPath, what: str) -> Iterator[Finding]:
    for index, name in enumerate(names):
        if name not in known:
            yield Finding((*key_path, index), f"gpt2 has no {what} '{name}'{suggestion(str(name), known)}")


def _wrappers(model: Any) -> Iterator[Unbuilt]:
    """The model and all models inside it, from outside in."""
    while isinstance(model, Unbuilt):
        yield model
        model = look(model, "model")
        model = model[0] if isinstance(model, list) and len(model) == 1 else model


def _is_gpt2(model: Any) -> bool:
    models = list(_wrappers(model))
    return bool(models) and models[-1].component_key == "model" and models[-1].variant_key == _GPT2
