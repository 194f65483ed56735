"""YAML files: reading them with the place of every value. Imports no torch, and runs nothing that a file says."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from modalities_pipeline.config.checking.suggestions import closest_name
from modalities_pipeline.config.origins import ConfigDocument, KeyPath, Origin
from modalities_pipeline.config.yaml_files.yaml_syntax import refuse_control_characters
from modalities_pipeline.config.yaml_files.yaml_tags import REMOVE_TAG
from modalities_pipeline.config.yaml_files.yaml_tree import Node, parse_yaml
from modalities_pipeline.exceptions import ConfigError

logger = logging.getLogger(__name__)

_MAX_BYTES = 64 * 2**20
_PIECE_IN_BYTES = 2**18
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def load_yaml(path: Path) -> ConfigDocument:
    """Read one YAML file; what it `extends` is left aside (see `overlays.load_config`), `${...}` stay as they are.

    Raises:
        ConfigError: the file is missing, is no valid YAML in UTF-8, has a key twice or one that is no text, contains
            itself by an alias, is far too large, has tags that are not YAML's own, or its top level is not a mapping.
    """
    path = Path(path)
    return document_of(path, load_tree(path))


def load_tree(path: Path) -> Node:
    """Read one YAML file as a mapping `Node`; raises as `load_yaml` does."""
    text = _read_text(path)
    refuse_control_characters(text, str(path))
    node = parse_yaml(text, str(path))
    if node is None or node.value is None:
        return Node({}, Origin(str(path)))
    if not isinstance(node.value, dict):
        found = "a list" if isinstance(node.value, list) else "a single value"
        raise ConfigError(
            f"{node.origin}: the top level has to be a mapping (key: value, with a blank behind the colon), "
            f"but is {found}."
        )
    return node


def document_of(path: Path, tree: Node) -> ConfigDocument:
    """The plain content of a tree and the origin of each key and list element; aliased parts become copies.

    Raises:
        ConfigError: there is a `!remove`, which only makes sense in a file that extends another.
    """
    origins: dict[KeyPath, Origin] = {}
    notes: dict[KeyPath, str] = {}
    return ConfigDocument(path, _plain(tree, (), origins, notes), origins, notes)


def _plain(node: Node, key_path: KeyPath, origins: dict[KeyPath, Origin], notes: dict[KeyPath, str]) -> Any:
    if key_path:
        origins[key_path] = node.origin
    if node.note is not None:
        notes[key_path] = node.note
    if isinstance(node.value, dict):
        return {key: _plain(child, (*key_path, key), origins, notes) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [_plain(child, (*key_path, index), origins, notes) for index, child in enumerate(node.value)]
    if node.is_removal:
        dotted = ".".join(map(str, key_path))
        raise ConfigError(
            f"{node.origin}: {dotted}: {REMOVE_TAG} removes an inherited key, but nothing is inherited here."
        )
    return node.value


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = _read_at_most(file, _MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file{_close_file(path)}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; name a YAML file in it.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}.") from None
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"{path}: is larger than {_MAX_BYTES // 2**20} MiB, so it is hardly a config.")
    if content.startswith(_UTF_16):
        raise ConfigError(f"{path}: is encoded as UTF-16; save it as UTF-8.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = len(content[content.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8", "replace")) + 1
        byte = content[error.start]
        raise ConfigError(
            f"{Origin(str(path), line, column)}: byte 0x{byte:02x} is no UTF-8; save it as UTF-8."
        ) from None


def _read_at_most(file: BinaryIO, num_bytes: int) -> bytes:
    """Read in pieces, because `read` itself would take as much memory as it is allowed to read."""
    content = bytearray()
    while len(content) < num_bytes and (piece := file.read(_PIECE_IN_BYTES)):
        content += piece
    return bytes(content)


def _close_file(path: Path) -> str:
    """What to say of a missing file: the closest name in its folder."""
    try:
        names = [file.name for file in path.parent.iterdir() if file.is_file()]
    except OSError:
        return f"; there is no folder {path.parent} either."
    intended = closest_name(path.name, names)
    return f"; did you mean '{path.with_name(intended)}'?" if intended else "."


def load_app_config_dict(
    config_file_path: Path,
    experiments_root_path: Path | None = None,
    experiment_id: str | None = None,
    additional_resolver_funs: Mapping[str, Callable[..., Any]] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Read a config with all that it extends, and resolve every `${...}` into plain dicts, lists and scalars.

    Resolvers: `cuda_env`, `modalities_env`, `node_env`, OmegaConf's own (`oc.env`, ...), and
    `additional_resolver_funs`, which may replace any of them.

    Raises:
        ConfigError: the file is wrong, an override does not fit, or a `${...}` cannot be resolved.
    """
    # both import this module
    from modalities_pipeline.config.overlays import load_config, overrides_from
    from modalities_pipeline.config.resolution import ResolverContext, resolve

    resolved = resolve(
        load_config(config_file_path, overrides_from(overrides or {})),
        ResolverContext(
            experiments_root_path=experiments_root_path,
            experiment_id=experiment_id,
            additional_resolver_funs=additional_resolver_funs or {},
        ),
    )
    resolved.raise_if_unresolved()
    for key_path, note in resolved.document.text_notes.items():
        logger.warning("%s: %s", resolved.document.origin(key_path), note)
    return resolved.data
