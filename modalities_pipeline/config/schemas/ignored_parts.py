"""Parts of a training config that are valid, but that the training does not use yet."""

from collections.abc import Iterator, Mapping
from typing import Any

from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.config.schemas.sections import look

_IGNORED_SECTIONS = ("profiler", "mfu_calculator")
_IGNORED_SETTING = "debugging"
_MESSAGE = "is not used by the training yet, and ignored"
_NO_PROFILER = "no_profiler"


def find_ignored_parts(config: Mapping[str, Any]) -> Iterator[Finding]:
    """A note for each part that is there; `config` holds nodes of a file or (unbuilt) components."""
    for name in _IGNORED_SECTIONS:
        if config.get(name) is not None and _variant_of(config[name]) != _NO_PROFILER:
            yield Finding((name,), _MESSAGE, is_note=True)
    if look(config, "settings", _IGNORED_SETTING) is not None:
        yield Finding(("settings", _IGNORED_SETTING), _MESSAGE, is_note=True)


def without_ignored_parts(config: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a config without these parts, so that they are not built."""
    result = {name: value for name, value in config.items() if name not in _IGNORED_SECTIONS}
    settings = result.get("settings")
    if isinstance(settings, Mapping):
        result["settings"] = {name: value for name, value in settings.items() if name != _IGNORED_SETTING}
    return result


def _variant_of(component: Any) -> Any:
    if isinstance(component, Mapping):
        return component.get("variant_key")
    return getattr(component, "variant_key", None)
