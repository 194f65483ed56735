"""The folders of an experiment's training runs: what identifies a run, its config, its result.

`<experiment>/trained_checkpoint/<first 16 digits of the fingerprint>/` is a Modalities experiment folder. A changed
config gets a new folder, so no run overwrites another; `current.json` names the run that later stages use.
"""

import dataclasses
import glob
import json
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.config.schemas.preparation import prepare
from modalities_pipeline.data.files import atomic_path, hex_of
from modalities_pipeline.data.manifest import Manifest, StageIdentity, is_intact, read_manifest
from modalities_pipeline.exceptions import TrainingError
from modalities_pipeline.orchestration.experiment_config import experiment_document
from modalities_pipeline.orchestration.plugin_sources import plugin_identities
from modalities_pipeline.orchestration.spec import ExperimentSpec
from modalities_pipeline.orchestration.training_result import TrainingResult, read_result

STAGE = "trained_checkpoint"
CODE_VERSION = "1"
RESULT_FILE_NAME = "result.json"

# what a training config holds that changes no weights, as prefixes of dotted keys and as names of single settings
_IRRELEVANT_SECTIONS = (
    *("progress_subscriber", "evaluation_subscriber", "results_subscriber", "checkpoint_saving"),
    *("settings.intervals", "settings.paths", "settings.experiment_id", "settings.config_file_path"),
    *("settings.consistency_enforcement", "plugins"),  # of plugins, their source code counts
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
    def report_path(self) -> Path:
        """What the run was going to do, in numbers, as it wrote them before the first step."""
        return self.folder / "training_report.json"

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
    vocabulary from it. Paths, intervals of reporting and saving, and how data are loaded are left out; so is in which
    file a value stands, and whether a default is written out.

    Raises:
        ConfigError: the training config cannot be read, does not take its data from the pipeline, or saves no
            checkpoint.
    """
    # the definitions, which import this module, need no resolving
    from modalities_pipeline.config.resolution import ResolverContext, resolve

    document, _ = prepare(experiment_document(experiment), "training")
    # names stand for everything that differs between machines
    context = ResolverContext(
        check_only=True,
        additional_resolver_funs={
            "cuda_env": lambda name: experiment.launcher.num_processes if name == "WORLD_SIZE" else 0,
            "modalities_env": lambda name: name,
            "node_env": lambda name: 1,
        },
    )
    inputs = {"train": train_digest, "validation": validation_digest, **tokenizer}
    resolved = resolve(document, context)
    unresolved = {".".join(map(str, key_path)): what.reason for key_path, what in resolved.unresolved()}
    return _identity(experiment, resolved.data, inputs, unresolved)


def settings_identity(experiment: ExperimentSpec) -> StageIdentity:
    """The part of `training_identity` that is known before the data are, with `${...}` as written.

    Resolving them takes longer than all else that is done when the definitions are loaded.
    """
    config = prepare(experiment_document(experiment), "training")[0].data
    return _identity(experiment, config, inputs={}, unresolved={})


def _identity(
    experiment: ExperimentSpec, config: Mapping[str, Any], inputs: Mapping[str, str], unresolved: Mapping[str, str]
) -> StageIdentity:
    settings = {key: unresolved.get(key, value) for key, value in _flatten(config, "") if _changes_weights(key)}
    plugins = dict(plugin_identities(config))
    num_processes = {"num_processes": experiment.launcher.num_processes}
    return StageIdentity(STAGE, CODE_VERSION, {**num_processes, **settings, **plugins}, inputs)


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
