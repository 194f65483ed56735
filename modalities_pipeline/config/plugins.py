"""Components of the user's own, named by a config file: no Python script is needed to make them known.

plugins:
  - component_key: model
    variant_key: my_model
    component_path: my_package.models:MyModel   # or my_models.py:MyModel, relative to the file that says so
    config_path: my_package.models:MyModelConfig  # default: made from the component's parameters
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import types
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from modalities_pipeline.config.checking.errors import faults_in_words
from modalities_pipeline.config.checking.faults import Fault, fault_at
from modalities_pipeline.config.checking.suggestions import suggestion
from modalities_pipeline.config.checking.wording import with_article
from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.origins import ConfigDocument, KeyPath
from modalities_pipeline.config.overlays import PLUGINS_KEY
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.exceptions import ConfigError

_TARGET_PATTERN = r"^[^:]+:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
_ARBITRARY_TYPES = ConfigDict(arbitrary_types_allowed=True)


class PluginSpec(BaseModel):
    """One entry of `plugins`; paths are "package.module:Name" or "file.py:Name"."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    component_key: str
    variant_key: str
    component_path: str = Field(pattern=_TARGET_PATTERN)
    config_path: str | None = Field(default=None, pattern=_TARGET_PATTERN)


def add_plugins(registry: Registry, plugins: Any, document: ConfigDocument) -> list[Fault]:
    """Add the plugins of a config to a registry; what is wrong with them comes back, and those are left out.

    Args:
        registry: takes the plugins.
        plugins: the value of the config's key `plugins`, None if it has none.
        document: where they stand; files are relative to the folder of the file that names them.
    """
    if plugins is None:
        return []
    if not isinstance(plugins, list):
        return [fault_at((PLUGINS_KEY,), "has to be a list of components", document)]
    faults: list[Fault] = []
    for index, entry in enumerate(plugins):
        key_path = (PLUGINS_KEY, index)
        try:
            spec = PluginSpec.model_validate(entry)
        except ValidationError as error:
            _add_broken(registry, entry)
            faults += [
                fault_at((*key_path, *where), message, document)
                for where, message in faults_in_words(error, PluginSpec)
            ]
        else:
            faults += _add_plugin(registry, spec, document, key_path)
    return faults


def _add_broken(registry: Registry, entry: Any) -> None:
    """Let nodes that use a faulty plugin cause no faults of their own, as far as the entry says what it is."""
    names = entry if isinstance(entry, dict) else {}
    component_key, variant_key = names.get("component_key"), names.get("variant_key")
    if isinstance(component_key, str) and isinstance(variant_key, str):
        registry.add_broken(component_key, variant_key)


def _add_plugin(registry: Registry, spec: PluginSpec, document: ConfigDocument, key_path: KeyPath) -> list[Fault]:
    source = Path(document.origin(key_path).source)
    folder = (source if source.is_file() else document.path).parent
    at = (*key_path, "component_path")
    try:
        component = _import(spec.component_path, folder)
        if not callable(component):
            raise ConfigError(
                f"{spec.component_path} is {with_article(type(component).__name__)}; it has to be a class or a function"
            )
        if spec.config_path is None:
            config = config_of(component)
        else:
            at = (*key_path, "config_path")
            config = _import(spec.config_path, folder)
            if not (isinstance(config, type) and issubclass(config, BaseModel)):
                raise ConfigError(f"{spec.config_path} has to be a subclass of pydantic's BaseModel")
    except ConfigError as error:
        registry.add_broken(spec.component_key, spec.variant_key)
        return [fault_at(at, str(error), document)]
    registry.add_entity(spec.component_key, spec.variant_key, component, config)
    return []


def _import(target: str, folder: Path) -> Any:
    module_name, _, name = target.rpartition(":")
    try:
        module = _import_file(folder / module_name) if module_name.endswith(".py") else _import_module(module_name)
    except ConfigError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # even one that ends the program is a fault of the plugin
        raise ConfigError(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from error
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            names = [other for other in vars(value) if not other.startswith("_")]
            raise ConfigError(f"there is no '{part}' in {module_name}{suggestion(part, names)}")
        value = getattr(value, part)
    return value


def _import_module(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise  # it is there, and needs something that is not
        raise ConfigError(f"there is no module {name}; install it, or put its folder into PYTHONPATH") from error


def _import_file(path: Path) -> types.ModuleType:
    """Import a file, under its own name if nothing else has it: then other processes can import it by that, too.

    Processes that `multiprocessing` starts get the same `sys.path`; with a name made up here, objects of the module
    could not be sent to them.
    """
    path = path.resolve()
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    folder = str(path.parent)
    if path.stem.isidentifier():
        is_new = folder not in sys.path
        if is_new:
            sys.path.append(folder)
        spec = importlib.util.find_spec(path.stem)
        if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path:
            return importlib.import_module(path.stem)
        if is_new:
            sys.path.remove(folder)
    name = f"modalities_pipeline_plugin_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    return _import_as(name, path)


def _import_as(name: str, path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def config_of(component: Callable[..., Any]) -> type[BaseModel]:
    """A config class whose fields are a component's parameters; types that pydantic does not know are not checked.

    Raises:
        ConfigError: it takes parameters that have no name in a config, such as `**kwargs`.
    """
    name = getattr(component, "__name__", type(component).__name__)
    try:
        parameters = inspect.signature(component).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the parameters of {name} cannot be found out; give a config_path") from error
    types_by_name = _types_of(component)
    fields: dict[str, Any] = {}
    for parameter in parameters:
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if not is_named or parameter.name.startswith("_"):
            raise ConfigError(f"{name} takes {parameter}, which cannot be a key of a config; give a config_path")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (_checkable(types_by_name.get(parameter.name, Any)), default)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a field may be called like a method of BaseModel
            return create_model(f"{name}Config", __base__=ComponentConfig, __module__=__name__, **fields)
    except (PydanticUserError, NameError, ValueError, TypeError) as error:
        raise ConfigError(
            f"no config can be made from the parameters of {name}; give a config_path: {error}"
        ) from error


def _types_of(component: Callable[..., Any]) -> dict[str, Any]:
    function = component.__init__ if inspect.isclass(component) else component
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # names that exist only for type checkers
        return {}


def _checkable(annotation: Any) -> Any:
    """The annotation, or `Any` if pydantic cannot check it."""
    try:
        TypeAdapter(annotation, config=None if _is_model(annotation) else _ARBITRARY_TYPES)
    except (PydanticUserError, SchemaError, NameError, TypeError):
        return Any
    return annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
