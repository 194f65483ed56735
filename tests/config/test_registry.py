"""Every component in the table exists and takes what its config has."""

import inspect

import pytest

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.components import COMPONENTS
from modalities_pipeline.config.registry import ComponentEntity, Registry
from modalities_pipeline.exceptions import ConfigError


class _Config(ComponentConfig):
    size: int


@pytest.mark.parametrize(("component_key", "variant_key"), sorted(COMPONENTS))
def test_builder_takes_every_field_of_its_config(component_key, variant_key):
    """A variant whose class wants other names than its config has could never be built."""
    registry = Registry()
    config = registry.get_config(component_key, variant_key)
    assert config.model_config["extra"] == "forbid"
    signature = inspect.signature(registry.get_component(component_key, variant_key))
    signature.bind(**dict.fromkeys(config.model_fields))


@pytest.mark.parametrize(
    ("component_key", "variant_key", "message"),
    [
        ("modle", "gpt2", "unknown component_key 'modle'; did you mean 'model'?"),
        ("model", "gtp2", "unknown variant_key 'gtp2' of component 'model'; did you mean 'gpt2'?"),
        ("app_state", "zzz", "unknown variant_key 'zzz' of component 'app_state'; known: dcp, raw"),
    ],
)
def test_unknown_names_are_told_with_the_right_ones(component_key, variant_key, message):
    """B077"""
    with pytest.raises(ConfigError) as error:
        Registry().get_component(component_key, variant_key)
    assert str(error.value) == message


def test_entities_can_be_added_and_replaced():
    registry = Registry([ComponentEntity("thing", "one", dict, _Config)])
    registry.add_entity("thing", "one", list, _Config)
    registry.add_entity("thing", "two", "builtins:dict", _Config)
    assert registry.get_component("thing", "one") is list
    assert registry.get_component("thing", "two") is dict
    assert registry.get_config("thing", "two") is _Config
