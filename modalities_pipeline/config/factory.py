"""Builds components from a resolved config: references, sharing, order. All faults of a file are reported together."""

import logging
import sys
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from modalities_pipeline import exceptions
from modalities_pipeline.config.checking.errors import faults_in_words
from modalities_pipeline.config.checking.faults import Fault, fault_at, raise_faults
from modalities_pipeline.config.checking.static_check import StaticCheck
from modalities_pipeline.config.checking.validation import arguments_of, validate_config
from modalities_pipeline.config.checking.variables import without_variables
from modalities_pipeline.config.nodes import is_component, is_reference
from modalities_pipeline.config.origins import ConfigDocument, KeyPath
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.exceptions import ConfigError, UserError

logger = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", bound=BaseModel)

# what a component raises if it cannot work with what it was given; anything else is a fault of its code
_REFUSALS = (ValueError, NotImplementedError, ImportError, OSError, SystemExit)


class ComponentFactory:
    """Turns component nodes into objects.

    A node `{component_key, variant_key, config}` becomes what the registry says; `{instance_key, pass_type}` becomes
    the object built for the top-level key `instance_key`, the same object for everyone who refers to it; anything else
    is data.

    Args:
        registry: the known components.
        document: where the nodes of the config stand in its file, for messages.
    """

    def __init__(self, registry: Registry, document: ConfigDocument | None = None) -> None:
        self._registry = registry
        self._document = document

    def build_components(self, config_dict: dict[str, Any], components_model_type: type[ModelT]) -> ModelT:
        """Build the top-level keys that are fields of `components_model_type`, and what they refer to.

        Required fields come first, then the optional ones that are there, in the order of their declaration; what they
        refer to is built at its first use. Everything that can be checked without building anything is checked first.

        Raises:
            ConfigError: all faults found, one a line, with file, line, key and the closest valid name; or what a
                component said when it was built.
        """
        self.check(config_dict, components_model_type)
        return self.build_checked(config_dict, components_model_type)

    def check(self, config_dict: dict[str, Any], components_model_type: type[BaseModel]) -> StaticCheck:
        """Check everything that can be checked without building anything; log what is only worth knowing.

        Raises:
            ConfigError: all faults found, as of `build_components`.
        """
        check = StaticCheck(config_dict, self._registry, self._document)
        check.check_model(components_model_type)
        raise_faults(check.faults, self._document.path if self._document else None)
        for note in check.faults if _is_rank_0() else ():
            logger.warning("%s", note)
        return check

    def build_checked(self, config_dict: dict[str, Any], components_model_type: type[ModelT]) -> ModelT:
        """Build what `check` found nothing wrong with; see `build_components`."""
        build = _Build(self, config_dict)
        fields = components_model_type.model_fields
        ordered = sorted(fields, key=lambda name: not fields[name].is_required())
        built = {name: build.top_level(name) for name in ordered if name in config_dict}
        built = without_variables(components_model_type, built, self._document)
        components = self._validate(components_model_type, built, (), is_config=False)
        self._check_built(components)
        return components

    def _check_built(self, components: BaseModel) -> None:
        """What has to hold between sections, once more: of custom components, sizes are known only now."""
        cross_checks = getattr(components, "cross_checks", None)
        if cross_checks is not None:
            sections = {name: getattr(components, name) for name in type(components).model_fields}
            raise_faults(
                fault_at(finding.key_path, finding.message, self._document, finding.is_note)
                for finding in (Finding(*found) for found in cross_checks(sections))
            )

    def build_component(self, node: dict[str, Any]) -> Any:
        """Build one component node that refers to nothing outside itself."""
        return self.build_components({"component": node}, _OneComponent).component

    def create(self, component_key: str, variant_key: str, config: dict[str, Any], key_path: KeyPath) -> Any:
        """Validate a config whose components are built already, and build the component.

        Raises:
            UserError: of the kind that the component raised, with the place in the file.
        """
        config_type = self._registry.get_config(component_key, variant_key)
        validated = self._validate(config_type, config, (*key_path, "config"), is_config=True)
        build = self._registry.get_component(component_key, variant_key)
        try:
            component = build(**arguments_of(validated))
        except _REFUSALS as error:
            self._refuse(f"{component_key}/{variant_key}", error, key_path)
        except Exception as error:
            error.add_note(str(self._fault(key_path, f"while {component_key}/{variant_key} was built")))
            raise
        if _is_rank_0():
            logger.debug("Instantiated %s: %s", type(component), " -> ".join(map(str, key_path)))
        return component

    def _refuse(self, name: str, error: BaseException, key_path: KeyPath) -> NoReturn:
        if isinstance(error, UserError):
            message = str(self._fault(key_path, str(error)))
            is_ours = type(error).__module__ == exceptions.__name__  # those take a message and nothing else
            raise (type(error) if is_ours else ConfigError)(message) from error
        what = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ConfigError(str(self._fault(key_path, f"{name} cannot be built: {what}"))) from error

    def _validate(self, model: type[ModelT], values: dict[str, Any], key_path: KeyPath, is_config: bool) -> ModelT:
        try:
            return validate_config(model, values) if is_config else model.model_validate(values)
        except ValidationError as error:
            faults = faults_in_words(error, model)
            raise_faults(self._fault((*key_path, *where), message) for where, message in faults)
            raise

    def _fault(self, key_path: KeyPath, message: str) -> Fault:
        return fault_at(key_path, message, self._document)


def _is_rank_0() -> bool:
    """Whether this process is rank 0; looked up without importing torch, which a tokenizer does not need."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return True
    return bool(distributed.get_rank() == 0)


class _OneComponent(BaseModel):
    component: Any


class _Build:
    """One pass over one config; remembers what was built for each top-level key."""

    def __init__(self, factory: ComponentFactory, config_dict: dict[str, Any]) -> None:
        self._factory = factory
        self._config_dict = config_dict
        self._built: dict[str, Any] = {}

    def top_level(self, name: str) -> Any:
        """The object of a top-level key, built at its first use."""
        if name not in self._built:
            self._built[name] = self._node(self._config_dict[name], (name,))
        return self._built[name]

    def _node(self, node: Any, key_path: KeyPath) -> Any:
        if is_reference(node):
            return self.top_level(node["instance_key"])
        if is_component(node):
            config = {key: self._node(value, (*key_path, "config", key)) for key, value in node["config"].items()}
            return self._factory.create(node["component_key"], node["variant_key"], config, key_path)
        if isinstance(node, dict):
            return {key: self._node(value, (*key_path, key)) for key, value in node.items()}
        if isinstance(node, list):
            return [self._node(value, (*key_path, index)) for index, value in enumerate(node)]
        return node
