"""Checks the training config of an experiment before processes are started for it. Imports no torch."""

from pathlib import Path

from modalities_pipeline.config.checking.faults import raise_faults
from modalities_pipeline.config.checking.static_check import StaticCheck
from modalities_pipeline.config.plugins import add_plugins
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.resolution import ResolverContext, resolve
from modalities_pipeline.config.schemas.ignored_parts import without_ignored_parts
from modalities_pipeline.config.schemas.preparation import prepare
from modalities_pipeline.config.schemas.training import TrainingComponentsInstantiationModel
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
    document, _ = prepare(experiment_document(experiment, train_path, validation_path), "training")
    context = ResolverContext(world_size=experiment.launcher.num_processes, check_only=True)
    data = without_ignored_parts(resolve(document, context).data)
    registry = Registry()
    faults = add_plugins(registry, data.pop("plugins", None), document)
    check = StaticCheck(data, registry, document)
    check.check_model(TrainingComponentsInstantiationModel)
    raise_faults([*faults, *check.faults])
