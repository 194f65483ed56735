"""The table of components: every name that a component ever had, what builds it, what its config takes."""

import inspect
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from modalities_pipeline.config import registry as registry_module
from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.components import COMPONENTS
from modalities_pipeline.config.interfaces import NUMBER
from modalities_pipeline.config.registry import ComponentEntity, Registry, import_target
from modalities_pipeline.exceptions import ConfigError

NAMES = json.loads((Path(__file__).parent / "vectors" / "component_names.json").read_text("utf-8"))
ALL_NAMES = sorted({*NAMES["documented_table"], *NAMES["latest_version"]})

ENTITIES = [pytest.param(entity, id=f"{entity.component_key}/{entity.variant_key}") for entity in COMPONENTS]


class _Config(ComponentConfig):
    size: int


@pytest.fixture
def _no_warning_given(monkeypatch):
    monkeypatch.setattr(registry_module, "_warnings_given", set())


@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_component_is_known_under_every_name_it_ever_had(name):
    entity = Registry().get_entity(*name.split("/"))
    assert issubclass(import_target(entity.component_config_type), ComponentConfig)


@pytest.mark.parametrize(
    ("old_name", "new_name"),
    [
        ("model/checkpointed", "model/fsdp1_checkpointed"),
        ("model/fsdp_wrapped", "model/fsdp1_wrapped"),
        ("optimizer/checkpointed", "optimizer/fsdp1_checkpointed"),
        ("checkpoint_saving_execution/fsdp", "checkpoint_saving_execution/fsdp1"),
        ("checkpoint_loading/fsdp", "checkpoint_loading/fsdp1"),
        ("gradient_clipper/fsdp", "gradient_clipper/fsdp1"),
        ("gradient_clipper/fsdp_logging_only", "gradient_clipper/fsdp1_logging_only"),
    ],
)
@pytest.mark.usefixtures("_no_warning_given")
def test_a_name_of_an_earlier_version_stands_for_todays_component(old_name, new_name, caplog):
    entity = Registry().get_entity(*old_name.split("/"))
    assert f"{entity.component_key}/{entity.variant_key}" == new_name
    assert f"component {old_name} is called {new_name} now" in caplog.text


def test_no_name_is_there_twice():
    names = [(row.component_key, name) for row in COMPONENTS for name in (row.variant_key, *row.old_variant_keys)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("entity", ENTITIES)
def test_every_component_is_described_in_a_line(entity):
    assert entity.description
    assert "\n" not in entity.description
    assert not entity.description.endswith(".")


@pytest.mark.parametrize("entity", ENTITIES)
def test_builder_takes_every_field_of_its_config(entity):
    """A variant whose class wants other names than its config has could never be built."""
    config = import_target(entity.component_config_type)
    assert config.model_config["extra"] == "forbid"
    signature = inspect.signature(import_target(entity.component_type))
    signature.bind(**{name: None for name, field in config.model_fields.items() if not field.exclude})


@pytest.mark.parametrize(
    "interface", sorted({row.interface for row in COMPONENTS if row.interface not in (None, NUMBER)})
)
def test_every_interface_exists(interface):
    assert inspect.isclass(import_target(interface))


def test_all_configs_are_loaded_without_anything_that_takes_long():
    code = """
import sys
from modalities_pipeline.config.registry import Registry
registry = Registry()
for entity in registry.entities():
    registry.get_config(entity.component_key, entity.variant_key)
heavy = {"torch", "transformers", "numpy", "dagster", "sentencepiece", "wandb", "rich", "xxhash", "orjson", "jinja2"}
print(sorted(heavy & sys.modules.keys()))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("component_key", "variant_key", "message"),
    [
        ("modle", "gtp2", "unknown component_key 'modle'; did you mean 'model'?"),
        ("model", "gtp2", "unknown variant_key 'gtp2' of component 'model'; did you mean 'gpt2'?"),
        ("app_state", "zzz", "unknown variant_key 'zzz' of component 'app_state'; known: dcp, raw"),
        ("sampler", "distributed", "unknown variant_key 'distributed' of component 'sampler'; did you mean"),
        ("zzz", "coca", "unknown component_key 'zzz'; there is model/coca"),
    ],
)
def test_unknown_names_are_told_with_the_right_ones(component_key, variant_key, message):
    """B077"""
    for ask in (Registry().get_component, Registry().get_config, Registry().get_entity):
        with pytest.raises(ConfigError) as error:
            ask(component_key, variant_key)
        assert str(error.value).startswith(message)


@pytest.mark.usefixtures("_no_warning_given")
def test_an_old_name_stands_for_the_new_one_and_is_told_once(caplog):
    registry = Registry([ComponentEntity("thing", "new", dict, _Config, old_variant_keys=("old", "older"))])
    with caplog.at_level(logging.WARNING):
        assert registry.get_component("thing", "old") is dict
        assert registry.get_config("thing", "old") is _Config
        assert registry.get_entity("thing", "older").variant_key == "new"
    told = [record.getMessage() for record in caplog.records]
    assert told == ["component thing/old is called thing/new now", "component thing/older is called thing/new now"]


@pytest.mark.parametrize("config_type", [dict, None, 3])
def test_a_config_type_that_is_no_model_is_refused_at_once(config_type):
    with pytest.raises(ConfigError, match="thing/one: the config type has to be a subclass of pydantic's BaseModel"):
        Registry([]).add_entity("thing", "one", dict, config_type)


def test_nothing_is_said_of_variants_whose_fault_is_told_elsewhere():
    registry = Registry([])
    registry.add_broken("thing", "one")
    assert registry.is_broken("thing", "one")
    assert not registry.is_broken("thing", "two")


@pytest.mark.usefixtures("_no_warning_given")
def test_entities_can_be_added_and_replaced(caplog):
    registry = Registry([ComponentEntity("thing", "one", dict, _Config)])
    registry.add_entity("thing", "one", list, _Config)
    registry.add_entity("thing", "two", "builtins:dict", _Config)
    assert registry.get_component("thing", "one") is list
    assert registry.get_component("thing", "two") is dict
    assert registry.get_config("thing", "two") is _Config
    assert [entity.variant_key for entity in registry.entities("thing")] == ["one", "two"]
    assert "component thing/one is replaced by list" in caplog.text
