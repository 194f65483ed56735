"""What a training leaves behind beside its checkpoints: config, metrics, a report at the start, a result at the end."""

import dataclasses
import glob
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.config.loader import document_of, load_tree
from modalities_pipeline.config.origins import ConfigDocument
from modalities_pipeline.config.overlays import EXTENDS_KEY, PLUGINS_KEY
from modalities_pipeline.config.resolution import ResolvedConfig
from modalities_pipeline.config.yaml_files.resolved_file import write_resolved
from modalities_pipeline.config.yaml_files.self_contained import self_contained_text
from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.exceptions import OutputExistsError
from modalities_pipeline.reporting.to_disc import drop_results_after, read_results

_TRAIN_LOSS = "train loss avg"


@dataclasses.dataclass(frozen=True)
class ExperimentFolder:
    """The folder of one experiment; only rank 0 writes."""

    path: Path

    @property
    def metrics_path(self) -> Path:
        """One JSON line per logged interval and evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def result_path(self) -> Path:
        """What came out, once the training has ended."""
        return self.path / "result.json"

    def refuse_other_training(self, experiment_id: str, resumes: bool) -> None:
        """Refuse to train into a folder that holds a training already, unless that is resumed.

        Raises:
            OutputExistsError: its metrics would be replaced, and checkpoints of both be mixed.
        """
        if resumes:
            return
        left = [path for path in (self.metrics_path, self.result_path) if path.exists() and path.stat().st_size]
        left += sorted(self.path.glob(f"checkpoints/eid_{glob.escape(experiment_id)}-*"))
        if left:
            raise OutputExistsError(
                f"{self.path} holds a training already ({left[0].relative_to(self.path)}). Go on with that by "
                "--resume, choose another --experiment_id, or delete the folder."
            )

    def prepare(self, config_path: Path, given: ConfigDocument, resolved: ResolvedConfig, num_seen_steps: int) -> None:
        """Make the folder, with the config as it can be run alone and with every `${...}` resolved.

        Args:
            config_path: the file that was given.
            given: its content, with what it extends and with overrides.
            resolved: the config that is run.
            num_seen_steps: metrics of later steps, of an attempt that ended before its next checkpoint, are dropped.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.result_path.unlink(missing_ok=True)
        drop_results_after(self.metrics_path, num_seen_steps)
        copy = self.path / config_path.name
        if not (copy.exists() and copy.samefile(config_path)):
            _copy_config(config_path, given, copy)
        write_resolved(resolved, copy.with_name(copy.name + ".resolved"))

    def write_report(self, report: Mapping[str, Any]) -> None:
        """Write what is going to be trained, in numbers, into training_report.json."""
        _write_json(self.path / "training_report.json", report)

    def write_result(self, train_tag: str, loss_tag: str, result: Mapping[str, Any]) -> None:
        """Write result.json; losses are the last ones of metrics.jsonl, which a run that did no step has, too.

        Args:
            train_tag: that of the training data loader.
            loss_tag: that of the loss function.
            result: everything else.
        """
        newest = {line["dataloader_tag"]: line for line in read_results(self.metrics_path)}
        train = newest.pop(train_tag, None)
        losses = {
            "train_loss": train["losses"][_TRAIN_LOSS] if train else None,
            "evaluation_losses": {tag: evaluation["losses"][loss_tag] for tag, evaluation in newest.items()},
        }
        _write_json(self.result_path, {**result, **losses})


def _copy_config(config_path: Path, given: ConfigDocument, copy: Path) -> None:
    """Copy a config; one that needs other files or options is written out, and the file itself kept as `.original`."""
    tree = load_tree(config_path)
    is_whole = EXTENDS_KEY not in tree.value and PLUGINS_KEY not in tree.value
    if is_whole and document_of(config_path, tree).data == given.data:
        shutil.copyfile(config_path, copy)
        return
    shutil.copyfile(config_path, copy.with_name(copy.name + ".original"))
    with atomic_path(copy) as temporary:
        temporary.write_text(self_contained_text(given, config_path.name), encoding="utf-8")


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
