"""The folders of an experiment's training runs: what identifies a run, its config, its result.

`<experiment>/trained_checkpoint/<first 16 digits of the fingerprint>/` is a Modalities experiment folder. A changed
config gets a new folder, so no run overwrites another; `current.json` names the run that later stages use.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from modalities_pipeline.config.loader import apply_overrides, load_app_config_dict, load_yaml
from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.data.manifest import Manifest, StageIdentity, is_intact, read_manifest
from modalities_pipeline.exceptions import ConfigError, TrainingError
from modalities_pipeline.orchestration.spec import ExperimentSpec

STAGE = "trained_checkpoint"
CODE_VERSION = "1"

_TRAIN_PATH, _VALIDATION_PATH = "train_dataset_path", "validation_dataset_path"
# what a training config holds that changes no weights, as prefixes of dotted keys and as names of single settings
_IRRELEVANT_SECTIONS = (
    *("progress_subscriber", "evaluation_subscriber", "results_subscriber", "checkpoint_saving"),
    *("settings.intervals", "settings.paths", "settings.experiment_id", "settings.config_file_path"),
)
_IRRELEVANT_NAMES = frozenset({"num_workers", "pin_memory", "prefetch_factor", "persistent_workers"})


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """What a finished run says of itself; losses in nats per token."""

    checkpoint_folder_path: str
    num_steps: int
    num_tokens: int
    num_parameters: int
    train_loss: float
    evaluation_losses: dict[str, float]
    duration_in_s: float
    world_size: int
    device: str


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
        try:
            content = json.loads((self.folder / "result.json").read_text("utf-8"))
        except FileNotFoundError:
            return None
        return TrainingResult(**{field.name: content[field.name] for field in dataclasses.fields(TrainingResult)})

    def checkpoint_folder(self) -> Path:
        """The final checkpoint.

        Raises:
            TrainingError: the run has not finished, or its checkpoint is gone.
        """
        result = self.result()
        if result is None:
            raise TrainingError(f"{self.folder} holds no finished training run.")
        recorded = Path(result.checkpoint_folder_path)
        # the output folder may have been moved since
        for path in (recorded, *self.folder.rglob(recorded.name)):
            if path.is_dir():
                return path
        raise TrainingError(f"The checkpoint {recorded} of the finished run in {self.folder} is gone.")

    def manifest(self) -> Manifest | None:
        """The manifest of the final checkpoint; None unless the run is complete."""
        try:
            return read_manifest(self.checkpoint_folder())
        except TrainingError:
            return None


def training_identity(experiment: ExperimentSpec, train_digest: str, validation_digest: str) -> StageIdentity:
    """What decides a run's weights: the resolved config, the number of processes, the data's digests.

    Paths, intervals of reporting and saving, and how data are loaded are left out.

    Raises:
        ConfigError: the training config cannot be read or resolved, or does not take its data from the pipeline.
    """
    _check_takes_data_paths(experiment)
    resolved = load_app_config_dict(
        experiment.training_config,
        # names stand for everything that differs between machines
        additional_resolver_funs={
            "cuda_env": lambda name: experiment.launcher.num_processes if name == "WORLD_SIZE" else 0,
            "modalities_env": lambda name: name,
            "node_env": lambda name: 1,
        },
        overrides=_overrides(experiment, Path("train"), Path("validation")),
    )
    settings = {key: value for key, value in _flatten(resolved, "") if _changes_weights(key)}
    return StageIdentity(
        STAGE,
        CODE_VERSION,
        {"num_processes": experiment.launcher.num_processes, **settings},
        {"train": train_digest, "validation": validation_digest},
    )


def settings_identity(experiment: ExperimentSpec) -> StageIdentity:
    """The part of `training_identity` that is known before the data are."""
    return training_identity(experiment, "", "")


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
    """The run that later stages use, None if no run was completed yet."""
    try:
        name = json.loads((root / "current.json").read_text("utf-8"))["run"]
    except FileNotFoundError:
        return None
    return TrainingRun(root / name)


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


def _check_takes_data_paths(experiment: ExperimentSpec) -> None:
    data = load_yaml(experiment.training_config).data
    settings = data.get("settings")
    paths = settings.get("paths") if isinstance(settings, Mapping) else None
    for key in (_TRAIN_PATH, _VALIDATION_PATH):
        if not isinstance(paths, Mapping) or key not in paths:
            raise ConfigError(
                f"{experiment.training_config}: settings.paths.{key} is missing. The pipeline puts the path of its "
                "data there; let the dataset refer to it as ${settings.paths." + key + "}."
            )


def _flatten(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings by dotted key, so that a change can be named."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flatten(item, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def _changes_weights(key: str) -> bool:
    is_irrelevant = any(key == section or key.startswith(f"{section}.") for section in _IRRELEVANT_SECTIONS)
    return not is_irrelevant and key.rpartition(".")[2] not in _IRRELEVANT_NAMES


def _runs_of(root: Path, fingerprint: str, and_new: bool = False) -> Iterator[TrainingRun]:
    """The folders of a fingerprint in order of their making: <16 digits>, <16 digits>_2, ...; then a new one."""
    name = fingerprint.removeprefix("sha256:")[:16]
    number = 1
    while (folder := root / (name if number == 1 else f"{name}_{number}")).exists():
        yield TrainingRun(folder)
        number += 1
    if and_new:
        yield TrainingRun(folder)
