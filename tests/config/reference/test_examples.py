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
from modalities_pipeline.config.reference.examples import example_of
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.unbuilt import Unbuilt

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


def _with_unbuilt(value: Any) -> Any:
    """The example with components in place of references, after making the files that it names."""
    if isinstance(value, dict) and "instance_key" in value:
        interfaces = {entity.interface for entity in REGISTRY.entities(value["instance_key"])}
        return Unbuilt(value["instance_key"], "any", interfaces.pop() if len(interfaces) == 1 else None)
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
