"""Training configs as earlier versions of Modalities had them, put into today's words.

Only what concerns a file as a whole is done here; old names of components and of their fields are known to the table of
components and to the config classes.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from modalities_pipeline.config.checking.suggestions import closest_name
from modalities_pipeline.config.nodes import is_component, is_reference
from modalities_pipeline.config.origins import KeyPath

_SCHEDULERS = ("lr_scheduler", "scheduler")  # under these names a file may hold the scheduler


@dataclasses.dataclass(frozen=True)
class Translation:
    """Something that a file lacks: where it was added, what of the file it is made of, and in words."""

    made: KeyPath
    made_of: KeyPath
    note: str


def translate_old_vocabulary(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[Translation]]:
    """The content of a training config in today's vocabulary, and what was changed; `data` stays as it is."""
    result = dict(data)
    translations: list[Translation] = []
    for translate in _TRANSLATIONS:
        translation = translate(result)
        if translation is not None:
            translations.append(translation)
    return result, translations


def _add_app_state(data: dict[str, Any]) -> Translation | None:
    """Without `app_state`, it is made of the model that the optimizer steps, the optimizer, and the scheduler."""
    optimizer = data.get("optimizer")
    if not is_component(optimizer) or closest_name("app_state", map(str, data)) is not None:  # there, or misspelt
        return None
    config = optimizer.get("config")
    model = config.get("wrapped_model") if isinstance(config, Mapping) else None
    if not is_reference(model):
        return None
    app_state = {"model": model, "optimizer": _reference_to("optimizer")}
    scheduler = next((name for name in _SCHEDULERS if name in data), None)
    if scheduler is not None:
        app_state["lr_scheduler"] = _reference_to(scheduler)
    data["app_state"] = {"component_key": "app_state", "variant_key": "raw", "config": app_state}
    parts = " and ".join(filter(None, ("optimizer", scheduler)))
    return Translation(
        ("app_state",), ("optimizer",), f"there is no app_state; it is made of {model['instance_key']}, {parts}"
    )


def _add_model_raw(data: dict[str, Any]) -> Translation | None:
    """Without `model_raw`, it is the model without its wrappers."""
    if "model_raw" in data:
        return None
    name: Any = "model"
    key_path: KeyPath = ("model",)
    node: Any = data.get(name)
    seen: set[Any] = set()
    while is_component(node) and isinstance(node.get("config"), Mapping) and "model" in node["config"]:
        inner = node["config"]["model"]
        if not is_reference(inner):
            return None  # written in place, so that there is nothing to refer to
        name = inner["instance_key"]
        if name in seen or not isinstance(name, str):
            return None
        seen.add(name)
        key_path, node = (name,), data.get(name)
    if not is_component(node):
        return None
    data["model_raw"] = _reference_to(name)
    return Translation(("model_raw",), key_path, f"there is no model_raw; it is {name}")


def _add_dp_degree(data: dict[str, Any]) -> Translation | None:
    """Without `dp_degree`, it is that of the mesh (replicate x shard); without a mesh, the number of processes."""
    settings = data.get("settings")
    if not isinstance(settings, Mapping):
        return None
    profile = settings.get("step_profile")
    if not isinstance(profile, Mapping) or closest_name("dp_degree", map(str, profile)) is not None:
        return None
    dp_degree: Any = "${settings.cuda_env.world_size}"
    what = "the number of processes"
    if data.get("device_mesh") is not None:
        mesh = {"device_mesh": _reference_to("device_mesh"), "parallelism_methods": ["dp_replicate", "dp_shard"]}
        dp_degree = {"component_key": "number_conversion", "variant_key": "parallel_degree", "config": mesh}
        what = "the data parallel degree of device_mesh"
    data["settings"] = {**settings, "step_profile": {**profile, "dp_degree": dp_degree}}
    made_of = ("settings", "step_profile")
    return Translation((*made_of, "dp_degree"), made_of, f"there is no dp_degree; it is {what}")


def _reference_to(name: str) -> dict[str, str]:
    return {"instance_key": name, "pass_type": "BY_REFERENCE"}


_TRANSLATIONS: tuple[Callable[[dict[str, Any]], Translation | None], ...] = (
    _add_app_state,
    _add_model_raw,
    _add_dp_degree,
)
