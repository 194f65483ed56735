"""Every example of a component is a config that it accepts."""

from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import Field

from modalities_pipeline.config.checking.validation import validate_unbuilt
from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import can_be
from modalities_pipeline.config.pydantic_if_types import PydanticDatasetIFType
from modalities_pipeline.config.reference.examples import example_config, example_of
from modalities_pipeline.config.reference.field_words import fields_in_words
from modalities_pipeline.config.reference.rows import keys_of_interface
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.progress.training_progress import parse_checkpoint_name

REGISTRY = Registry()
ENTITIES = {f"{entity.component_key}/{entity.variant_key}": entity for entity in REGISTRY.entities()}


_SHAPE = [1]


class _Config(ComponentConfig):
    dataset: PydanticDatasetIFType
    num_steps: Annotated[int, Field(gt=1)]
    rate: float
    name: str
    target: Annotated[str | None, Field(examples=["x"])] = None
    shapes: Annotated[list[list[int]], Field(examples=[[_SHAPE, _SHAPE]])]
    left_out: int = 5


def _keys_of(interface: str) -> list[str]:
    return sorted(
        {row.component_key for row in REGISTRY.entities() if row.interface and can_be(row.interface, interface)}
    )


OF_THE_RUN = {  # as on the second of two processes
    "${cuda_env:RANK}": 1,
    "${cuda_env:LOCAL_RANK}": 1,
    "${cuda_env:WORLD_SIZE}": 2,
    "${modalities_env:experiment_id}": "run",
}


def _with_unbuilt(value: Any) -> Any:
    """The example with components in place of references, after making the files that it names."""
    if isinstance(value, dict) and "instance_key" in value:
        kind = value["instance_key"].removesuffix("_raw")
        interfaces = {entity.interface for entity in REGISTRY.entities(kind)}
        return Unbuilt(kind, "any", interfaces.pop() if len(interfaces) == 1 else None)
    if isinstance(value, str) and "${" in value:
        return OF_THE_RUN[value]
    if isinstance(value, dict):
        return {key: _with_unbuilt(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_unbuilt(item) for item in value]
    if isinstance(value, str) and value.startswith("path/to/"):
        Path(value).parent.mkdir(parents=True, exist_ok=True)
        Path(value).touch()
    return value


@pytest.mark.parametrize("name", sorted(ENTITIES))
def test_the_example_of_every_component_is_accepted(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entity = ENTITIES[name]
    config_type = REGISTRY.get_config(entity.component_key, entity.variant_key)
    node = yaml.safe_load(example_of(entity, config_type, _keys_of))[entity.component_key]
    assert (node["component_key"], node["variant_key"]) == (entity.component_key, entity.variant_key)
    config, faults = validate_unbuilt(config_type, _with_unbuilt(node["config"]))
    assert not faults
    assert config is not None


def _keys_referred_to(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["instance_key"]} if "instance_key" in value else set()
        return own.union(*map(_keys_referred_to, value.values()))
    return set().union(*map(_keys_referred_to, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("name", sorted(ENTITIES))
def test_no_example_refers_to_itself_or_names_one_process_for_all(name):
    """A section that refers to itself is refused; a rank that is written out is that of one process only."""
    entity = ENTITIES[name]
    text = example_of(
        entity, REGISTRY.get_config(entity.component_key, entity.variant_key), keys_of_interface(REGISTRY)
    )
    assert entity.component_key not in _keys_referred_to(yaml.safe_load(text))
    config = yaml.safe_load(text)[entity.component_key]["config"]
    for field in ("global_rank", "local_rank", "rank", "world_size", "num_replicas"):
        assert str(config.get(field, "${")).startswith("${")
    assert not any(key.startswith("<") for key in _keys_of_mappings(config))


def _keys_of_mappings(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(_keys_of_mappings, value.values()))
    return set().union(*map(_keys_of_mappings, value)) if isinstance(value, list) else set()


def test_the_checkpoint_of_an_example_is_named_as_one():
    for name in ENTITIES:
        if name.endswith("_from_checkpoint_path"):
            entity = ENTITIES[name]
            config = example_config(REGISTRY.get_config(entity.component_key, entity.variant_key), _keys_of)
            assert parse_checkpoint_name(Path(config["checkpoint_path"])) is not None


def test_an_example_of_a_mapping_has_a_plain_key():
    class Config(ComponentConfig):
        sizes: dict[str, int]

    assert example_config(Config, _keys_of) == {"sizes": {"size": 0}}


def test_every_field_of_this_package_is_described():
    """Those of mappings by their class, and those of components by what they are."""
    without = [
        f"{entity.component_key}/{entity.variant_key}: {field.name}"
        for entity in ENTITIES.values()
        for field in fields_in_words(REGISTRY.get_config(entity.component_key, entity.variant_key), _keys_of)
        if not field.description and not field.nested and "component" not in field.type_words
    ]
    assert without == []


def test_an_example_has_what_is_required_and_what_has_an_example_of_its_own():
    entity = ComponentEntity("thing", "one", None, _Config)
    assert example_of(entity, _Config, lambda interface: ["dataset"]) == (
        "thing:\n"
        "  component_key: thing\n"
        "  variant_key: one\n"
        "  config:\n"
        "    dataset: {instance_key: dataset, pass_type: BY_REFERENCE}\n"
        "    num_steps: 2\n"
        "    rate: 1.0\n"
        "    name: <name>\n"
        "    target: x\n"
        "    shapes:\n"
        "      - - 1\n"
        "      - - 1\n"
    )
