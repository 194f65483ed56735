"""The files that a config `extends`, in the order in which they are applied."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from modalities_pipeline.config.checking.suggestions import suggestion
from modalities_pipeline.config.loader import load_tree
from modalities_pipeline.config.origins import Origin
from modalities_pipeline.config.yaml_files.yaml_tree import Node
from modalities_pipeline.exceptions import ConfigError

EXTENDS_KEY = "extends"


def read_layers(path: Path) -> list[Node]:
    """The mappings of a file and of all that it extends, without that key; later ones change what earlier ones say.

    Raises:
        ConfigError: as `loader.load_tree`; or an extended file is missing, extends itself, or has no effect.
    """
    layers: dict[Path, Node] = {}
    _collect_layers(path, (), layers, {})
    return list(layers.values())


def _collect_layers(
    path: Path, extending: tuple[Path, ...], layers: dict[Path, Node], files_of: dict[Path, set[Path]]
) -> None:
    """Add a file behind all that it extends; one that several extend stands once, below all of them.

    `files_of` gets all files that a file consists of.
    """
    tree = load_tree(path)
    listed: dict[Path, Path] = {}
    for base_path, origin in _base_paths(path, tree.value.get(EXTENDS_KEY)):
        _refuse_circle((*extending, path), base_path, origin)
        identity = base_path.resolve()
        _refuse_without_effect(identity, listed, files_of, f"{origin}: {EXTENDS_KEY}: {base_path}")
        if identity not in layers:
            _collect_layers(base_path, (*extending, path), layers, files_of)
        listed[identity] = base_path
    own = {key: node for key, node in tree.value.items() if key != EXTENDS_KEY}
    layers[path.resolve()] = Node(own, tree.origin)
    files_of[path.resolve()] = {path.resolve()}.union(*(files_of[identity] for identity in listed))


def _refuse_without_effect(
    identity: Path, listed: Mapping[Path, Path], files_of: Mapping[Path, set[Path]], what: str
) -> None:
    """Refuse a file in a list behind another one that extends it: it is there already, below that one."""
    above = next((path for earlier, path in listed.items() if identity in files_of[earlier]), None)
    if above is not None and identity not in listed:
        raise ConfigError(
            f"{what} has no effect here, because {above}, which stands before it, extends it; put it first, "
            "or leave it out."
        )


def _base_paths(path: Path, extends: Node | None) -> Iterator[tuple[Path, Origin]]:
    if extends is None:
        return
    if extends.value == []:
        raise ConfigError(f"{extends.origin}: {EXTENDS_KEY}: is an empty list; name a YAML file, or leave the key out.")
    for node in extends.value if isinstance(extends.value, list) else [extends]:
        if not isinstance(node.value, str) or not node.value:
            raise ConfigError(f"{node.origin}: {EXTENDS_KEY}: has to be the path of a YAML file, or a list of such.")
        if "${" in node.value:
            raise ConfigError(f"{node.origin}: {EXTENDS_KEY}: cannot hold ${{...}}; write the path itself.")
        base_path = path.parent / Path(node.value).expanduser()
        if base_path.is_dir():
            raise ConfigError(f"{node.origin}: {EXTENDS_KEY}: {base_path} is a folder; name a YAML file in it.")
        if not base_path.is_file():
            names = [file.name for file in base_path.parent.glob("*.y*ml")]
            known = suggestion(base_path.name, names) if names else ""
            raise ConfigError(f"{node.origin}: {EXTENDS_KEY}: there is no file {base_path}{known}")
        yield base_path, node.origin


def _refuse_circle(extending: tuple[Path, ...], base_path: Path, origin: Origin) -> None:
    identities = [path.resolve() for path in extending]
    if base_path.resolve() in identities:
        circle = [*extending[identities.index(base_path.resolve()) :], base_path]
        names = " -> ".join(str(path) for path in circle)
        raise ConfigError(f"{origin}: {EXTENDS_KEY}: the files extend each other in a circle: {names}.")
