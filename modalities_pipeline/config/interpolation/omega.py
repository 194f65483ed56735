"""A config as OmegaConf has it."""

import re
from typing import Any

from modalities_pipeline.config.interpolation.interpolation_faults import describe_grammar_error
from modalities_pipeline.config.interpolation.resolvers import BROKEN_RESOLVER, NotResolvableError

# more parts than a config has levels; to read it alone would take OmegaConf minutes
LONG_REFERENCE = re.compile(r"\$\{\s*(\.*[^${}:.\[\]\s]+(?:[.\[]+[^${}:.\[\]\s]+\]?){60,})\s*\}")


def is_interpolated(value: Any) -> bool:
    """Whether a value of a config is a text that holds `${`."""
    return isinstance(value, str) and "${" in value


def omegaconf_container(data: dict[str, Any]) -> Any:
    """The config as OmegaConf has it; a text that is no valid interpolation fails when it is resolved, not before."""
    from omegaconf import OmegaConf
    from omegaconf.errors import GrammarParseError

    flags = {"allow_objects": True}
    data = _without_long(data)
    try:
        return OmegaConf.create(data, flags=flags)
    except GrammarParseError:
        OmegaConf.register_resolver(BROKEN_RESOLVER, _raise_broken, replace=True, annotation_validation="off")
        return OmegaConf.create(_without_broken(data), flags=flags)


def _without_long(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_long(item) for key, item in data.items()}
    if isinstance(data, list):
        return [_without_long(item) for item in data]
    return LONG_REFERENCE.sub("", data) if is_interpolated(data) else data


def _raise_broken(text: str) -> None:
    raise NotResolvableError(describe_grammar_error(bytes.fromhex(text).decode("utf-8", "surrogatepass")))


def _without_broken(data: Any) -> Any:
    """The data with every text that is no valid interpolation replaced by one that fails when it is resolved."""
    from omegaconf import OmegaConf
    from omegaconf.errors import GrammarParseError

    if isinstance(data, dict):
        return {key: _without_broken(item) for key, item in data.items()}
    if isinstance(data, list):
        return [_without_broken(item) for item in data]
    if is_interpolated(data):
        try:
            OmegaConf.create([data])
        except GrammarParseError:
            return f"${{{BROKEN_RESOLVER}:'{data.encode('utf-8', 'surrogatepass').hex()}'}}"
    return data
