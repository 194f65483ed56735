"""YAML files: reading them with positions, applying overrides, and resolving `${...}`. Imports no torch."""

import copy
import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from modalities_pipeline.exceptions import ConfigError

KeyPath = tuple[str | int, ...]
Position = tuple[int, int]

_MAX_NODES = 1_000_000
_RANK_VARIABLES = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1}


class _Loader(yaml.SafeLoader):
    """YAML as people mean it: `1e-4` is a float, a date is text, `1:30` is text, `010` is refused."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (the name and kind that PyYAML wants)
        first: [
            (tag, pattern)
            for tag, pattern in resolvers
            if tag.rsplit(":", 1)[-1] not in ("int", "float", "timestamp", "value")
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_number(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node).replace("_", "")
        try:
            return int(text, 0)
        except ValueError:
            raise yaml.constructor.ConstructorError(
                None, None, f"{text} could mean two numbers; write it without leading zeros", node.start_mark
            ) from None


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*|0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+"
        r"|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_number)


@dataclasses.dataclass(frozen=True)
class YamlDocument:
    """The content of a YAML file (plain dicts, lists, scalars; `${...}` unresolved) and where its keys stand."""

    path: Path
    data: dict[str, Any]
    positions: Mapping[KeyPath, Position]

    def position(self, key_path: KeyPath) -> Position | None:
        """Line and column (from 1) of a key or list element, None if the file has no such key."""
        return self.positions.get(key_path)


def load_yaml(path: Path) -> YamlDocument:
    """Read a YAML file with the safe loader.

    Raises:
        ConfigError: the file is missing, is no valid YAML, has a key twice or one that is no text, contains itself by
            an alias, or its top level is not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    loader = None
    positions: dict[KeyPath, Position] = {}
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return YamlDocument(path, {}, positions)
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{path}:{node.start_mark.line + 1}: the top level has to be a mapping (key: value).")
        _collect_positions(node, (), positions, path, frozenset())
        return YamlDocument(path, loader.construct_document(node), positions)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ConfigError(f"{where}: {' '.join(filter(None, (error.context, error.problem)))}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}.") from None
    except RecursionError:
        raise ConfigError(f"{path}: lists and mappings are nested too deeply. Write it flatter.") from None
    except (TypeError, AttributeError, LookupError, ValueError) as error:  # what explicit tags make PyYAML raise
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}: a value does not fit its tag (!!...): {error}. Leave the tag out.") from None
    finally:
        if loader is not None:
            loader.dispose()


def _collect_positions(
    node: yaml.Node, key_path: KeyPath, positions: dict[KeyPath, Position], path: Path, around: frozenset[int]
) -> None:
    """Fill `positions`; `around` are the ids of the nodes that this one stands in."""
    line, column = _position(node)
    if id(node) in around:
        raise ConfigError(f"{path}:{line}:{column}: an anchor (&) contains an alias (*) of itself.")
    if len(positions) > _MAX_NODES:
        raise ConfigError(f"{path}:{line}:{column}: aliases (*) make more than {_MAX_NODES} values of the file.")
    around |= {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            child_path = (*key_path, index)
            positions[child_path] = _position(child)
            _collect_positions(child, child_path, positions, path, around)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            line, column = _position(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"{path}:{line}:{column}: a key has to be a text, not a list or a mapping.")
            if key in lines and key != "<<":
                raise ConfigError(
                    f"{path}:{line}: the key '{key}' is there twice; it first stands in line {lines[key]}."
                )
            lines[key] = line
            child_path = (*key_path, key)
            positions[child_path] = _position(key_node)
            _collect_positions(value_node, child_path, positions, path, around)


def _position(node: yaml.Node) -> Position:
    return node.start_mark.line + 1, node.start_mark.column + 1


def apply_overrides(data: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `data` with `overrides` (dotted key, list elements by index -> value) set in it.

    Raises:
        ConfigError: a part of a dotted key before the last does not exist.
    """
    result = copy.deepcopy(data)
    for dotted_key, value in overrides.items():
        *parents, last = dotted_key.split(".")
        target: Any = result
        for depth, part in enumerate(parents):
            try:
                target = target[int(part)] if isinstance(target, list) else target[part]
            except (KeyError, IndexError, TypeError, ValueError):
                raise _override_error(dotted_key, parents[: depth + 1]) from None
        try:
            target[int(last) if isinstance(target, list) else last] = copy.deepcopy(value)
        except (IndexError, TypeError, ValueError):
            raise _override_error(dotted_key, [*parents, last]) from None
    return result


def _override_error(dotted_key: str, missing: list[str]) -> ConfigError:
    return ConfigError(f"The override '{dotted_key}' does not fit: there is no '{'.'.join(missing)}' in the config.")


def load_app_config_dict(
    config_file_path: Path,
    experiments_root_path: Path | None = None,
    experiment_id: str | None = None,
    additional_resolver_funs: Mapping[str, Callable[..., Any]] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Read a YAML file and resolve all of its `${...}` into plain dicts, lists and scalars.

    Resolvers: `cuda_env`, `modalities_env`, `node_env`, OmegaConf's own (`oc.env`, ...), and
    `additional_resolver_funs`, which may replace any of them.

    Raises:
        ConfigError: the file is wrong, an override does not fit, or a `${...}` cannot be resolved.
    """
    document = load_yaml(Path(config_file_path))
    data = apply_overrides(document.data, overrides or {})
    return resolve(data, document, experiments_root_path, experiment_id, additional_resolver_funs)


def resolve(
    data: dict[str, Any],
    document: YamlDocument,
    experiments_root_path: Path | None = None,
    experiment_id: str | None = None,
    additional_resolver_funs: Mapping[str, Callable[..., Any]] | None = None,
) -> dict[str, Any]:
    """Resolve every `${...}` in `data`, the (perhaps changed) content of `document`; see `load_app_config_dict`."""
    # Dagster loads this module with the definitions, which need no resolving
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    modalities_values: dict[str, Any] = {
        "config_file_path": document.path,
        "config_folder_path": document.path.parent,
    }
    if experiments_root_path is not None:
        modalities_values["experiments_root_path"] = Path(experiments_root_path)
    if experiment_id is not None:
        modalities_values["experiment_id"] = experiment_id
    resolvers: dict[str, Callable[..., Any]] = {
        "cuda_env": _resolve_cuda_env,
        "modalities_env": lambda name: _look_up("modalities_env", modalities_values, name),
        "node_env": lambda name: _look_up("node_env", {"num_cpus": os.cpu_count()}, name),
        **(additional_resolver_funs or {}),
    }
    for name, function in resolvers.items():
        OmegaConf.register_resolver(name, function, replace=True, annotation_validation="off")
    try:
        resolved = OmegaConf.to_container(OmegaConf.create(data), resolve=True)
    except OmegaConfBaseException as error:
        key = error.full_key or ""
        position = document.position(
            tuple(int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", key))
        )
        where = f"{document.path}:{position[0]}" if position else str(document.path)
        raise ConfigError(f"{where}: {key}: {_cause(error)}") from error
    return resolved  # type: ignore[return-value]


def _cause(error: BaseException) -> str:
    """The message of the `ConfigError` that a resolver raised, else OmegaConf's own."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConfigError):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    return str(getattr(error, "msg", None) or error).splitlines()[0]


def _look_up(resolver: str, values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise ConfigError(f"unknown {resolver} variable '{name}'; known here: {', '.join(values)}")
    return values[name]


def _resolve_cuda_env(name: str) -> int | str:
    """An environment variable; a process that no launcher started is rank 0 of 1."""
    if name in _RANK_VARIABLES and not any(variable in os.environ for variable in _RANK_VARIABLES):
        return _RANK_VARIABLES[name]
    if name not in os.environ:
        hint = "; start training with torchrun" if name in _RANK_VARIABLES else ""
        raise ConfigError(f"the environment variable {name} is not set{hint}")
    value = os.environ[name]
    return int(value) if name in _RANK_VARIABLES else value
