"""Checks a config without building anything: all faults, notes on what could not be checked, the training report."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from modalities_pipeline.config.checking.faults import ConfigFaultsError, Fault, sorted_faults
from modalities_pipeline.config.checking.static_check import StaticCheck
from modalities_pipeline.config.checking.suggestions import suggestion
from modalities_pipeline.config.origins import ConfigDocument
from modalities_pipeline.config.overlays import PLUGINS_KEY, Override, load_config
from modalities_pipeline.config.plugins import add_plugins
from modalities_pipeline.config.registry import Registry, import_target
from modalities_pipeline.config.resolution import ResolverContext, resolve
from modalities_pipeline.config.schemas.kinds import KINDS, PARTS, PIPELINE, kind_of
from modalities_pipeline.config.schemas.preparation import prepare
from modalities_pipeline.exceptions import ConfigError

__all__ = ["CheckReport", "check_config", "check_document"]


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """What `check_config` found.

    Attributes:
        path: the file.
        kind: what it was checked as: one of `config.schemas.kinds.KINDS`, "pipeline" or "parts".
        faults: what keeps it from being used, by file and line.
        notes: what could not be checked here, or is worth knowing.
        training_report: of a training config whose numbers are all known, else None.
    """

    path: Path
    kind: str
    faults: tuple[Fault, ...]
    notes: tuple[Fault, ...]
    training_report: str | None = None

    @property
    def is_ok(self) -> bool:
        """Whether there is no fault."""
        return not self.faults

    def text(self) -> str:
        """Faults, notes, the training report, and a line that sums up."""
        parts = [*map(str, self.faults), *(f"note: {note}" for note in self.notes)]
        if self.training_report is not None:
            parts.append(self.training_report)
        return "\n".join([*parts, self.summary])

    @property
    def summary(self) -> str:
        """The line that sums up: the file, the number of faults, and what it was checked as."""
        num_faults = len(self.faults)
        verdict = f"{num_faults} fault{'s' if num_faults > 1 else ''}" if num_faults else "ok"
        return f"{self.path}: {verdict} (checked as: {self.kind})"


def check_config(
    path: Path,
    *,
    kind: str | None = None,
    world_size: int | None = None,
    last_checkpoint_info_file_path: Path | None = None,
    overrides: Sequence[Override] = (),
    registry: Registry | None = None,
) -> CheckReport:
    """Check a config file of any kind. Imports no torch.

    Args:
        path: the YAML file.
        kind: what it is meant to be; found out by its top-level keys if not given.
        world_size: the number of processes it is checked for; by default that of the environment, or 1.
        last_checkpoint_info_file_path: the file that a warm start is given, for `${warmstart_env:...}`.
        overrides: set in the config before it is checked.
        registry: the known components, by default those of this package; the file's plugins come on top.

    Raises:
        ConfigError: the file cannot be read at all, `kind` is not known, or overrides are given for a pipeline's spec.
    """
    document = load_config(Path(path), overrides)
    kind = _known_kind(kind, document)
    if kind == PIPELINE and overrides:
        raise ConfigError(
            f"{path} is the spec of a pipeline, whose values cannot be set from outside; write them into the file."
        )
    return check_document(
        document,
        kind=kind,
        world_size=world_size,
        last_checkpoint_info_file_path=last_checkpoint_info_file_path,
        registry=registry,
    )


def check_document(
    document: ConfigDocument,
    *,
    kind: str | None = None,
    world_size: int | None = None,
    last_checkpoint_info_file_path: Path | None = None,
    registry: Registry | None = None,
    is_run: bool = False,
) -> CheckReport:
    """Check a config that is read already; see `check_config`.

    With `is_run`, as the run itself does: what is not there, or cannot be built, is a fault and no note.
    """
    kind = _known_kind(kind, document)
    if kind == PIPELINE:
        return _check_pipeline(document)
    document, findings = prepare(document, kind, is_run)
    context = ResolverContext(
        world_size=world_size, last_checkpoint_info_file_path=last_checkpoint_info_file_path, check_only=True
    )
    data = resolve(document, context).data
    registry = Registry(registry.entities() if registry is not None else None)
    faults = add_plugins(registry, data.pop(PLUGINS_KEY, None), document)
    check = StaticCheck(data, registry, document, is_run)
    for finding in findings:
        check.add(*finding)
    if document.is_empty:
        check.add((), "is empty")
    if kind == PARTS:
        check.check_parts()
    else:
        check.check_model(import_target(KINDS[kind]))
        check.check_unused()
    return _report(document.path, kind, [*faults, *check.faults], check.sections)


def _known_kind(kind: str | None, document: ConfigDocument) -> str:
    if kind is None:
        return kind_of(document.data)
    kinds = [*KINDS, PIPELINE, PARTS]
    if kind not in kinds:
        raise ConfigError(f"there is no kind of config '{kind}'{suggestion(kind, kinds)}")
    return kind


def _report(path: Path, kind: str, found: list[Fault], sections: Mapping[str, Any]) -> CheckReport:
    faults = tuple(fault for fault in sorted_faults(found, path) if not fault.is_note)
    notes = tuple(fault for fault in sorted_faults(found, path) if fault.is_note)
    text = None
    if kind == "training" and not faults:
        from modalities_pipeline.progress.training_report import training_report  # no other kind needs it

        report = training_report(sections)
        text = report.text() if report is not None else None
    return CheckReport(path, kind, faults, notes, text)


def _check_pipeline(document: ConfigDocument) -> CheckReport:
    """Check the spec of a whole pipeline, and the training config of each experiment with what the spec says of it."""
    from modalities_pipeline.orchestration.experiment_config import experiment_document  # no other kind needs these
    from modalities_pipeline.orchestration.spec import load_pipeline_spec

    try:
        spec = load_pipeline_spec(document.path)
    except ConfigFaultsError as error:
        return _report(document.path, PIPELINE, list(error.faults), {})
    found: list[Fault] = []
    texts: list[str] = []
    for name, experiment in spec.experiments.items():
        corpora = experiment.train_corpus, experiment.validation_corpus
        training = experiment_document(experiment, *map(spec.layout.merged_pbin, corpora))
        report = check_document(training, kind="training", world_size=experiment.launcher.num_processes)
        found += [*report.faults, *report.notes]
        texts += [f"Experiment {name}\n{report.training_report}"] if report.training_report is not None else []
    report = _report(document.path, PIPELINE, found, {})
    return dataclasses.replace(report, training_report="\n".join(texts) or None)
