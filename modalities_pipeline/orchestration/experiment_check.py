"""Checks the training config of an experiment before processes are started for it. Imports no torch."""

from pathlib import Path

from modalities_pipeline.config.check import check_document
from modalities_pipeline.config.checking.faults import raise_faults
from modalities_pipeline.orchestration.experiment_config import experiment_document
from modalities_pipeline.orchestration.spec import ExperimentSpec


def check_experiment(experiment: ExperimentSpec, train_path: Path, validation_path: Path) -> None:
    """Find everything that would end the training before its first step.

    Args:
        experiment: the experiment.
        train_path, validation_path: the packed data, which have to be there.

    Raises:
        ConfigError: all faults, each with its place in the training config, in what that extends, or in the spec.
    """
    document = experiment_document(experiment, train_path, validation_path)
    report = check_document(document, kind="training", world_size=experiment.launcher.num_processes, is_run=True)
    raise_faults(report.faults)
