"""Writes the configs of a sweep: `modalities-pipeline benchmark prepare_sweep_configs`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from modalities_pipeline.config.checking.errors import suggestion
from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.exceptions import ConfigError, OutputExistsError, UserError
from modalities_pipeline.sweeps.combinations import combinations_of, hash_of_bytes, hash_of_combination
from modalities_pipeline.sweeps.config_text import ConfigText
from modalities_pipeline.sweeps.run_folders import run_folder_name, sweep_folder_name, time_of_folders

_HOLDS_PATHS = ("extends", "plugins")  # of other files, which are made absolute


def prepare_sweep_configs(sweep_config_path: Path, output_dir: Path, world_sizes: Sequence[int]) -> tuple[Path, int]:
    """Write a config for each combination of the lists in the section `sweep`, and for each number of processes.

    The configs are all there or, on failure, none. Each is the file itself with another section `sweep`; other configs
    that it extends are named by absolute paths.

    Returns:
        The folder of the sweep, and how many configs are in it.

    Raises:
        ConfigError: the config is wrong, has no section `sweep`, or one of its lists is empty or has a value twice.
        OutputExistsError: a sweep was prepared from the same file in this very second.
        OutputNotWritableError: the folder cannot be written.
    """
    if not world_sizes or any(world_size < 1 for world_size in world_sizes):
        raise UserError(f"World sizes have to be numbers of processes, 1 or more (given: {list(world_sizes)}).")
    document = load_config(sweep_config_path)
    combinations = list(_combinations(sweep_config_path, document.data))
    time = time_of_folders()
    folder = Path(output_dir) / sweep_folder_name(hash_of_bytes(Path(sweep_config_path).read_bytes()), time)
    if folder.exists():
        raise OutputExistsError(f"{folder} exists already. Wait a second, or remove it.")
    config_text = ConfigText(Path(sweep_config_path))
    with atomic_path(folder) as temporary:
        for combination in combinations:
            content = config_text.with_sweep(combination)
            name = run_folder_name(hash_of_combination(combination), time)
            paths = [temporary / str(world_size) / name / sweep_config_path.name for world_size in world_sizes]
            for path in paths:
                path.parent.mkdir(parents=True)
                path.write_text(content, encoding="utf-8")
            _check_written(paths[0], {**document.data, "sweep": combination}, sweep_config_path)
    return folder, len(combinations) * len(world_sizes)


def _combinations(path: Path, data: dict[str, Any]) -> list[dict[str, Any]]:
    sweep = data.get("sweep")
    if sweep is None:
        hint = suggestion("sweep", data) if data else ""
        raise ConfigError(
            f"{path}: there is no section 'sweep'{hint}. Add one with the values to combine, such as "
            "'sweep: {learning_rate: [1e-3, 1e-4]}', and refer to them, as in ${sweep.learning_rate}."
        )
    if not isinstance(sweep, dict):
        raise ConfigError(f"{path}: sweep: has to be a mapping of names to lists of values.")
    try:
        return list(combinations_of(sweep))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _check_written(path: Path, expected: dict[str, Any], sweep_config_path: Path) -> None:
    """Raise `ConfigError` if a written config is not read back as what it should be."""
    try:
        written = load_config(path).data
    except ConfigError as error:
        raise ConfigError(_not_read_back(sweep_config_path, str(error))) from None
    for key in dict.fromkeys((*expected, *written)):
        if key not in _HOLDS_PATHS and _text(written.get(key)) != _text(expected.get(key)):
            raise ConfigError(_not_read_back(sweep_config_path, f"'{key}' would be another one"))


def _not_read_back(path: Path, reason: str) -> str:
    return (
        f"{path}: the section 'sweep' cannot be replaced: {reason}. Write it as plain lists, without anchors (&) that "
        "other sections use."
    )


def _text(value: Any) -> str:
    return json.dumps(value, default=str)
