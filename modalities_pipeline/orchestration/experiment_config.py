"""The training config of an experiment: its YAML with the overrides, plugins and data paths of the pipeline's spec."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modalities_pipeline.config.origins import ConfigDocument
from modalities_pipeline.config.overlays import Override, load_config
from modalities_pipeline.config.yaml_files.self_contained import self_contained_data, self_contained_text
from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.exceptions import ConfigError

if TYPE_CHECKING:
    from modalities_pipeline.orchestration.spec import ExperimentSpec

_PATHS = ("settings", "paths")
_TRAIN_PATH, _VALIDATION_PATH = "train_dataset_path", "validation_dataset_path"
_TRAIN_FILE = ("train_dataset", "config", "raw_data_path")
_RETENTION = ("checkpoint_saving", "config", "checkpoint_saving_strategy", "config", "k")


def experiment_document(
    experiment: "ExperimentSpec", train_path: Path = Path("train"), validation_path: Path = Path("validation")
) -> ConfigDocument:
    """The content of an experiment's training config; `${...}` stay as they are.

    What the spec says has its origin there, everything else in the YAML and in what that extends.

    Args:
        experiment: the experiment.
        train_path, validation_path: the packed data; by default names that stand for them.

    Raises:
        ConfigError: the YAML cannot be read, an override does not fit it, it does not take its data from the pipeline,
            or it saves no checkpoint.
    """
    overrides = [Override(key, value, experiment.origin_of(key)) for key, value in experiment.overrides.items()]
    document = load_config(experiment.training_config, overrides)
    _check_takes_pipelines_data(experiment, document.data)
    _check_trains_on_pipelines_data(document)
    _check_saves_last_checkpoint(document)
    data = self_contained_data(document)
    paths = {**data["settings"]["paths"], _TRAIN_PATH: str(train_path), _VALIDATION_PATH: str(validation_path)}
    data = {**data, "settings": {**data["settings"], "paths": paths}}
    return _with_plugins(dataclasses.replace(document, data=data), experiment)


def write_config(path: Path, experiment: "ExperimentSpec", train_path: Path, validation_path: Path) -> None:
    """Write an experiment's training config as one file that needs no other."""
    text = self_contained_text(
        experiment_document(experiment, train_path, validation_path), experiment.training_config.name
    )
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _with_plugins(document: ConfigDocument, experiment: "ExperimentSpec") -> ConfigDocument:
    """The plugins of the spec come after those of the config."""
    if not experiment.plugins:
        return document
    own = document.data.get("plugins") or []
    origins = dict(document.origins)
    for index, (_, origin) in enumerate(experiment.plugins):
        origins["plugins", len(own) + index] = origin
    plugins = [*own, *(plugin for plugin, _ in experiment.plugins)]
    return dataclasses.replace(document, data={**document.data, "plugins": plugins}, origins=origins)


def _check_takes_pipelines_data(experiment: "ExperimentSpec", data: Mapping[str, Any]) -> None:
    paths = _value_at(data, _PATHS)
    for key in (_TRAIN_PATH, _VALIDATION_PATH):
        if f"settings.paths.{key}" in experiment.overrides:
            raise ConfigError(
                f"{experiment.origin_of(f'settings.paths.{key}')}: the override settings.paths.{key} would have no "
                "effect: the pipeline puts the path of its data there. Remove it; the experiment's train_corpus and "
                "validation_corpus choose the data."
            )
        if not isinstance(paths, Mapping) or key not in paths:
            raise ConfigError(
                f"{experiment.training_config}: settings.paths.{key} is missing. The pipeline puts the path of its "
                "data there; let the dataset refer to it as ${settings.paths." + key + "}."
            )


def _check_trains_on_pipelines_data(document: ConfigDocument) -> None:
    """Lineage would name a corpus, while the training reads a file that the pipeline knows nothing of."""
    node = _value_at(document.data, _TRAIN_FILE)
    if isinstance(node, str) and "${" not in node:
        raise ConfigError(
            f"{document.origin(_TRAIN_FILE)}: {'.'.join(_TRAIN_FILE)} is {node}, so the training would not see the "
            "experiment's train_corpus. Write ${settings.paths." + _TRAIN_PATH + "}."
        )


def _check_saves_last_checkpoint(document: ConfigDocument) -> None:
    if _value_at(document.data, _RETENTION) == 0:
        raise ConfigError(
            f"{document.origin(_RETENTION)}: {'.'.join(_RETENTION)} is 0, so no checkpoint would be saved, but the "
            "pipeline goes on from the last one. Set it to 1 or more, or to -1."
        )


def _value_at(data: Any, keys: tuple[str, ...]) -> Any:
    """What stands under these keys, None if there is nothing."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data
