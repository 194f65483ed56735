"""Builds everything in a YAML file, and knows which rows of the table of components that took."""

from pathlib import Path
from typing import Any

from pydantic import create_model

from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.interfaces import NUMBER
from modalities_pipeline.config.loader import load_app_config_dict
from modalities_pipeline.config.nodes import is_component
from modalities_pipeline.config.origins import KeyPath
from modalities_pipeline.config.registry import Registry, import_target

CONFIGS = Path(__file__).parent / "configs"

Row = tuple[str, str]


class RecordingFactory(ComponentFactory):
    """Remembers which row each object was built from."""

    def __init__(self) -> None:
        super().__init__(Registry())
        self.built: list[tuple[Row, Any]] = []

    def create(self, component_key: str, variant_key: str, config: dict[str, Any], key_path: KeyPath) -> Any:
        component = super().create(component_key, variant_key, config, key_path)
        self.built.append(((component_key, variant_key), component))
        return component


def load(path: Path, data: Path, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """A resolved config, in which `${data:name}` is a path below `data`."""
    resolvers = {"data": lambda name: str(data / name)}
    return load_app_config_dict(path, additional_resolver_funs=resolvers, overrides=overrides)


def build_everything(config: dict[str, Any]) -> tuple[Any, list[tuple[Row, Any]]]:
    """(an object with an attribute for each top-level key, each component with its row), after the static checks."""
    fields: dict[str, Any] = dict.fromkeys(config, (Any, ...))
    factory = RecordingFactory()
    return factory.build_components(config, create_model("Everything", **fields)), factory.built


def rows_in(node: Any) -> set[Row]:
    """The rows that a config asks for."""
    rows = {(node["component_key"], node["variant_key"])} if is_component(node) else set()
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return rows.union(*map(rows_in, children))


def check_interfaces(built: list[tuple[Row, Any]]) -> None:
    """Fail if an object is not what its row says; a list of them is what becomes of parts of a pipeline."""
    for (component_key, variant_key), component in built:
        interface = Registry().get_entity(component_key, variant_key).interface
        if interface is None:
            continue
        wanted = int if interface == NUMBER else import_target(interface)
        components = component if isinstance(component, list) else [component]
        assert components, f"{component_key}/{variant_key} is an empty list"
        for item in components:
            assert isinstance(item, wanted), f"{component_key}/{variant_key} is {type(item)}, not {wanted}"
