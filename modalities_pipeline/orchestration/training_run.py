"""The folders of an experiment's training runs: what identifies a run, its config, its result.

`<experiment>/trained_checkpoint/<first 16 digits of the fingerprint>/` is a Modalities experiment folder. A changed
config gets a new folder, so no run overwrites another; `current.json` names the run that later stages use.
"""

import dataclasses
import glob
import json
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from modalities_pipeline.config.loader import YamlDocument, apply_overrides, load_yaml, resolve
from modalities_pipeline.data.files import atomic_path, hex_of
from modalities_pipeline.data.manifest import Manifest, StageIdentity, is_intact, read_manifest
from modalities_pipeline.exceptions import ConfigError, TrainingError
from modalities_pipeline.orchestration.spec import ExperimentSpec
from modalities_pipeline.orchestration.training_result import TrainingResult, read_result

STAGE = "trained_checkpoint"
CODE_VERSION = "1"
RESULT_FILE_NAME = "result.json"

_TRAIN_PATH, _VALIDATION_PATH = "train_dataset_path", "validation_dataset_path"
# what a training config holds that changes no weights, as prefixes of dotted keys and as names of single settings
_IRRELEVANT_SECTIONS = (
    *("progress_subscriber", "evaluation_subscriber", "results_subscriber", "checkpoint_saving"),
    *("settings.intervals", "settings.paths", "settings.experiment_id", "settings.config_file_path"),
)
_IRRELEVANT_NAMES = frozenset({"num_workers", "pin_memory", "prefetch_factor", "persistent_workers"})


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """The folder of one run."""

    folder: Path

    @property
    def config_path(self) -> Path:
        """The training config as it was run."""
        return self.folder / "config.yaml"

    @property
    def metrics_path(self) -> Path:
        """One JSON line per logged interval and evaluation."""
        return self.folder / "metrics.jsonl"

    @property
    def log_path(self) -> Path:
        """Everything that the training processes printed."""
        return self.folder / "train.log"

    def result(self) -> TrainingResult | None:
        """What the run wrote when it finished, None if it has not."""
        return read_result(self.folder / RESULT_FILE_NAME)

    def checkpoint_folder(self) -> Path:
        """The final checkpoint: the one in this folder, which may have been moved or copied, else the one recorded.

        Raises:
            TrainingError: the run has not finished, saved no checkpoint, or its checkpoint is gone.
        """
        result = self.result()
        if result is None:
            raise TrainingError(f"{self.folder} holds no finished training run.")
        if result.checkpoint_folder_path is None:
            raise TrainingError(
                f"The finished run in {self.folder} saved no checkpoint. Let the checkpoint saving strategy of its "
                "config keep the last one, and delete the folder."
            )
        recorded = Path(result.checkpoint_folder_path)
        for path in self.folder.rglob(glob.escape(recorded.name)):
            if path.is_dir():
                return path
        # a config may save elsewhere; but a checkpoint in the folder of another run belongs to that one
        is_of_other_run = any((parent / RESULT_FILE_NAME).exists() for parent in recorded.parents)
        if recorded.is_dir() and not is_of_other_run:
            return recorded
        raise TrainingError(f"The checkpoint {recorded} of the finished run in {self.folder} is gone.")

    def manifest(self) -> Manifest | None:
        """The manifest of the final checkpoint; None unless the run is complete."""
        try:
            return read_manifest(self.checkpoint_folder())
        except TrainingError:
            return None


def training_identity(
    experiment: ExperimentSpec,
    train_digest: str,
    validation_digest: str,
    tokenizer: Mapping[str, str] = types.MappingProxyType({}),
) -> StageIdentity:
    """What decides a run's weights: the resolved config, the number of processes, the data's digests, the tokenizer.

    `tokenizer` is what `data.packed_inputs.tokenizer_inputs` says of the data: a config may take the size of the
    vocabulary from it. Paths, intervals of reporting and saving, and how data are loaded are left out.

    Raises:
        ConfigError: the training config cannot be read or resolved, does not take its data from the pipeline, or saves
            no checkpoint.
    """
    document = load_yaml(experiment.training_config)
    resolved = resolve(
        _written_config(experiment, document),
        document,
        # names stand for everything that differs between machines
        additional_resolver_funs={
            "cuda_env": lambda name: experiment.launcher.num_processes if name == "WORLD_SIZE" else 0,
            "modalities_env": lambda name: name,
            "node_env": lambda name: 1,
        },
    )
    return _identity(experiment, resolved, {"train": train_digest, "validation": validation_digest, **tokenizer})


def settings_identity(experiment: ExperimentSpec) -> StageIdentity:
    """The part of `training_identity` that is known before the data are, with `${...}` as written.

    Resolving them takes longer than all else that is done when the definitions are loaded.
    """
    return _identity(experiment, _written_config(experiment, load_yaml(experiment.training_config)), inputs={})


def _written_config(experiment: ExperimentSpec, document: YamlDocument) -> dict[str, Any]:
    """The training config with the experiment's overrides; names stand for the paths of the data."""
    _check_takes_pipelines_data(experiment, document.data)
    return apply_overrides(document.data, _overrides(experiment, Path("train"), Path("validation")))


def _identity(experiment: ExperimentSpec, config: Mapping[str, Any], inputs: Mapping[str, str]) -> StageIdentity:
    _check_saves_last_checkpoint(experiment, config)
    settings = {key: value for key, value in _flatten(config, "") if _changes_weights(key)}
    return StageIdentity(STAGE, CODE_VERSION, {"num_processes": experiment.launcher.num_processes, **settings}, inputs)


def find_complete_run(root: Path, fingerprint: str) -> TrainingRun | None:
    """The newest run of a fingerprint whose checkpoint is complete; an intact one is preferred."""
    complete = [
        (run, manifest)
        for run in _runs_of(root, fingerprint)
        if (manifest := run.manifest()) is not None and manifest.fingerprint == fingerprint
    ]
    intact = [run for run, manifest in complete if is_intact(run.checkpoint_folder(), manifest)]
    return next(reversed(intact or [run for run, _ in complete]), None)


def run_to_train(root: Path, fingerprint: str) -> TrainingRun:
    """The folder to train in: that of an interrupted run of this fingerprint, else a new one."""
    return next(run for run in _runs_of(root, fingerprint, and_new=True) if run.manifest() is None)


def current_run(root: Path) -> TrainingRun | None:
    """The run that later stages use, None if no run was completed yet, or the note of it is damaged."""
    try:
        name = json.loads((root / "current.json").read_text("utf-8"))["run"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return TrainingRun(root / name) if isinstance(name, str) else None


def set_current_run(root: Path, run: TrainingRun) -> None:
    """Let later stages use a run."""
    if current_run(root) != run:
        with atomic_path(root / "current.json") as temporary:
            temporary.write_text(json.dumps({"run": run.folder.name}) + "\n", "utf-8")


def write_config(run: TrainingRun, experiment: ExperimentSpec, train_path: Path, validation_path: Path) -> None:
    """Write the run's config: the experiment's YAML with its overrides and data paths; `${...}` stay as they are."""
    data = apply_overrides(
        load_yaml(experiment.training_config).data, _overrides(experiment, train_path, validation_path)
    )
    with atomic_path(run.config_path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(f"# {experiment.training_config.name} with the experiment's overrides and data paths\n")
        yaml.dump(data, file, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that could be taken for a number, whatever a reader's dialect of YAML."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if re.match(r"[-+.]?[0-9.]", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _overrides(experiment: ExperimentSpec, train_path: Path, validation_path: Path) -> dict[str, Any]:
    return {
        **experiment.overrides,
        f"settings.paths.{_TRAIN_PATH}": str(train_path),
        f"settings.paths.{_VALIDATION_PATH}": str(validation_path),
    }


def _check_takes_pipelines_data(experiment: ExperimentSpec, data: Mapping[str, Any]) -> None:
    settings = data.get("settings")
    paths = settings.get("paths") if isinstance(settings, Mapping) else None
    for key in (_TRAIN_PATH, _VALIDATION_PATH):
        if f"settings.paths.{key}" in experiment.overrides:
            raise ConfigError(
                f"The override settings.paths.{key} would have no effect: the pipeline puts the path of its data "
                "there. Remove it; the experiment's train_corpus and validation_corpus choose the data."
            )
        if not isinstance(paths, Mapping) or key not in paths:
            raise ConfigError(
                f"{experiment.training_config}: settings.paths.{key} is missing. The pipeline puts the path of its "
                "data there; let the dataset refer to it as ${settings.paths." + key + "}."
            )


def _check_saves_last_checkpoint(experiment: ExperimentSpec, config: Mapping[str, Any]) -> None:
    node: Any = config
    for key in ("checkpoint_saving", "config", "checkpoint_saving_strategy", "config", "k"):
        node = node.get(key) if isinstance(node, Mapping) else None
    if node == 0:
        raise ConfigError(
            f"{experiment.training_config}: checkpoint_saving.config.checkpoint_saving_strategy.config.k is 0, so no "
            "checkpoint would be saved, but the pipeline goes on from the last one. Set it to 1 or more, or to -1."
        )


def _flatten(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings and lists by dotted key, so that a change can be named."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    if not value or not items:
        yield prefix, value
    for key, item in items:
        yield from _flatten(item, f"{prefix}.{key}" if prefix else str(key))


def _changes_weights(key: str) -> bool:
    is_irrelevant = any(key == section or key.startswith(f"{section}.") for section in _IRRELEVANT_SECTIONS)
    return not is_irrelevant and key.rpartition(".")[2] not in _IRRELEVANT_NAMES


def _runs_of(root: Path, fingerprint: str, and_new: bool = False) -> Iterator[TrainingRun]:
    """The folders of a fingerprint in order of their making: <16 digits>, <16 digits>_2, ...; then a new one."""
    name = hex_of(fingerprint)[:16]
    number = 1
    while (folder := root / (name if number == 1 else f"{name}_{number}")).exists():
        yield TrainingRun(folder)
        number += 1
    if and_new:
        yield TrainingRun(folder)
