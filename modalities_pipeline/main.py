"""One training run: config -> components -> experiment folder with checkpoints, metrics and a result."""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from pydantic import BaseModel

from modalities_pipeline.batch import EvaluationResultBatch
from modalities_pipeline.checkpointing.folders import find_latest_checkpoint
from modalities_pipeline.checkpointing.resume import checkpoint_path_of
from modalities_pipeline.config.checking.faults import raise_faults
from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.overlays import PLUGINS_KEY, Override, load_config
from modalities_pipeline.config.plugins import add_plugins
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.resolution import ResolverContext
from modalities_pipeline.config.run_config import in_our_order, resolve_run_config, resume_run_config
from modalities_pipeline.config.schemas.training import TrainingComponentsInstantiationModel
from modalities_pipeline.config.schemas.training_checks import check_training
from modalities_pipeline.config.yaml_files.resolved_file import to_plain
from modalities_pipeline.dataloading.token_ids import refuse_unknown_token_ids
from modalities_pipeline.distributed.env import get_rank, get_world_size
from modalities_pipeline.distributed.random_numbers import seed_random_numbers
from modalities_pipeline.distributed.shared_errors import errors_raised_once
from modalities_pipeline.experiment_folder import ExperimentFolder
from modalities_pipeline.gym import gym_of
from modalities_pipeline.progress.training_report import training_report
from modalities_pipeline.reporting.broker import (
    MessageBroker,
    MessagePublisher,
    MessageSubscriberIF,
    MessageTypes,
    ProgressUpdate,
    closed_at_the_end,
)
from modalities_pipeline.reporting.to_disc import ToDiscResultSubscriber
from modalities_pipeline.util import (
    experiment_id_of,
    get_synced_string,
    get_total_number_of_trainable_parameters,
    print_rank_0,
)

logger = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", bound=BaseModel)


class Main:
    """Builds and runs what a YAML file describes. Training needs a process group (`distributed.env.DistributedEnv`).

    Args:
        config_path: the YAML file.
        additional_resolver_funs: name -> function of more `${name:argument}` resolvers.
        experiment_id: name of the experiment's folder; made from time and config if not given.
        experiments_root_path: where experiment folders are (default: `experiments`); what the config says in
            `settings.paths.experiments_root_path` wins over it.
        overrides: set in the config before it is resolved.
        resume: continue from the newest complete checkpoint of this experiment, if there is one.
        last_checkpoint_info_file_path: JSON file that names the checkpoint to start from, for `${warmstart_env:...}`.

    Attributes:
        config_dict: the resolved config; an `Unresolved` stands where a `${...}` has no value.
        registry, component_factory: know the components.

    Raises:
        ConfigError: the file is wrong.
    """

    def __init__(
        self,
        config_path: Path,
        additional_resolver_funs: Mapping[str, Callable[..., Any]] | None = None,
        experiment_id: str | None = None,
        experiments_root_path: Path | str | None = None,
        overrides: Sequence[Override] = (),
        resume: bool = False,
        last_checkpoint_info_file_path: Path | None = None,
    ) -> None:
        self._started, self._resumes = time.perf_counter(), resume
        self.config_path = Path(config_path)
        arguments = in_our_order(additional_resolver_funs, experiment_id, experiments_root_path)
        additional_resolver_funs, experiment_id, experiments_root_path = arguments
        self.experiments_root_path = Path(experiments_root_path or "experiments")
        with errors_raised_once():
            given = load_config(self.config_path, overrides)
        new_id = experiment_id_of(given.data)
        self.experiment_id = get_synced_string(new_id) if experiment_id is None else experiment_id
        context = ResolverContext(
            experiments_root_path=self.experiments_root_path,
            experiment_id=self.experiment_id,
            last_checkpoint_info_file_path=last_checkpoint_info_file_path,
            additional_resolver_funs=additional_resolver_funs or {},
        )
        self.registry = Registry()
        with errors_raised_once():
            self._config = resolve_run_config(given, context, experiment_id)
            if resume:
                self._config = resume_run_config(self._config, overrides, context)
            document, self.config_dict = self._config.resolved.document, dict(self._config.resolved.data)
            plugins = self.config_dict.pop(PLUGINS_KEY, None)
            raise_faults([*self._config.found, *add_plugins(self.registry, plugins, document)])
        if self._config.resumed_from is not None:
            print_rank_0(f"Continuing from {self._config.resumed_from}.")
        for note in self._config.found if get_rank() == 0 else ():
            logger.warning("%s", note)
        self.component_factory = ComponentFactory(self.registry, document)
        self._sections: Mapping[str, Any] = {}  # what the last check before building made of the config

    def add_custom_component(
        self,
        component_key: str,
        variant_key: str,
        custom_component: type | Callable[..., Any],
        custom_config: type[BaseModel],
    ) -> None:
        """Make a component of your own available to the YAML file, or replace one."""
        self.registry.add_entity(component_key, variant_key, custom_component, custom_config)

    def build_components(self, components_model_type: type[ModelT]) -> ModelT:
        """Build what the fields of a pydantic model name.

        Raises:
            ConfigError: all faults, found before anything is built; on one rank only, others raise a subclass.
        """
        with errors_raised_once():
            self._sections = self.component_factory.check(self.config_dict, components_model_type).sections
        return self.component_factory.build_checked(self.config_dict, components_model_type)

    def get_logging_publishers(
        self,
        progress_subscriber: MessageSubscriberIF[ProgressUpdate],
        results_subscriber: MessageSubscriberIF[EvaluationResultBatch],
        global_rank: int,
        local_rank: int,
        more_results_subscribers: Sequence[MessageSubscriberIF[EvaluationResultBatch]] = (),
    ) -> tuple[MessagePublisher[EvaluationResultBatch], MessagePublisher[ProgressUpdate]]:
        """(publisher of results, publisher of progress), connected to the subscribers."""
        broker = MessageBroker()
        for subscriber in (results_subscriber, *more_results_subscribers):
            broker.add_subscriber(MessageTypes.EVALUATION_RESULT, subscriber)
        broker.add_subscriber(MessageTypes.BATCH_PROGRESS_UPDATE, progress_subscriber)
        return (
            MessagePublisher(broker, global_rank=global_rank, local_rank=local_rank),
            MessagePublisher(broker, global_rank=global_rank, local_rank=local_rank),
        )

    def run(self, components: TrainingComponentsInstantiationModel) -> None:
        """Train, and leave behind in the experiment folder: the config, metrics.jsonl, checkpoints, result.json."""
        settings, root = components.settings, components.settings.paths.experiments_root_path
        folder = ExperimentFolder((root or self.experiments_root_path) / settings.experiment_id)
        _check_token_ids(components)
        with errors_raised_once():
            if get_rank() == 0:
                folder.refuse_other_training(settings.experiment_id, self._resumes)
                seen = settings.training_progress.num_seen_steps
                folder.prepare(self.config_path, self._config.given, self._config.resolved, seen)
        publishers = self.get_logging_publishers(
            components.progress_subscriber,
            components.evaluation_subscriber,
            settings.cuda_env.global_rank,
            settings.cuda_env.local_rank,
            more_results_subscribers=[ToDiscResultSubscriber(folder.metrics_path)],
        )
        with closed_at_the_end(publishers[0].message_broker), settings.debugging or contextlib.nullcontext():
            self._train(components, folder, *publishers)

    def _train(
        self,
        components: TrainingComponentsInstantiationModel,
        folder: ExperimentFolder,
        results_publisher: MessagePublisher[EvaluationResultBatch],
        progress_publisher: MessagePublisher[ProgressUpdate],
    ) -> None:
        settings, broker = components.settings, results_publisher.message_broker
        seed_random_numbers(settings.seed, settings.training_progress.num_seen_steps, components.device_mesh)
        parts = components.app_state.model_parts
        num_parameters = get_total_number_of_trainable_parameters(parts, components.device_mesh)
        broker.distribute_config(to_plain(self._config.resolved), MessageTypes.EVALUATION_RESULT)
        broker.distribute_dict({"No. parameters": num_parameters}, MessageTypes.EVALUATION_RESULT)
        if get_rank() == 0:
            self._report(components, num_parameters, folder)
        gym = gym_of(components, results_publisher, progress_publisher)
        gym.run(
            app_state=components.app_state,
            training_log_interval_in_steps=settings.intervals.training_log_interval_in_steps,
            checkpointing_interval_in_steps=settings.intervals.checkpointing_interval_in_steps,
            evaluation_interval_in_steps=settings.intervals.evaluation_interval_in_steps,
            train_data_loader=components.train_dataloader,
            evaluation_data_loaders=components.eval_dataloaders,
            checkpoint_saving=components.checkpoint_saving,
            scheduled_pipeline=components.scheduled_pipeline,
        )
        if get_rank() == 0:
            result = self._result(components, num_parameters)
            folder.write_result(components.train_dataloader.dataloader_tag, components.loss_fn.tag, result)

    def _report(
        self, components: TrainingComponentsInstantiationModel, num_parameters: int, folder: ExperimentFolder
    ) -> None:
        """Print what is going to be trained, and leave the numbers in the experiment folder."""
        built = {"settings": components.settings, "train_dataset": components.train_dataset}
        sections = {**self._sections, **built}
        notes = [finding.message for finding in check_training(sections) if finding.is_note]
        report = training_report(sections, notes, num_parameters)
        if report is not None:
            print_rank_0(f"{report.text()}\n  experiment folder: {folder.path}")
            folder.write_report(report.as_dict())

    def _result(self, components: TrainingComponentsInstantiationModel, num_parameters: int) -> dict[str, Any]:
        target = components.settings.training_target
        checkpoint = find_latest_checkpoint(checkpoint_path_of(self.config_dict))
        return {
            "checkpoint_folder_path": str(checkpoint.absolute()) if checkpoint else None,
            "num_steps": target.num_target_steps,
            "num_tokens": target.num_target_tokens,
            "num_parameters": num_parameters,
            "duration_in_s": round(time.perf_counter() - self._started, 3),
            "world_size": components.settings.cuda_env.world_size,
            "device": next(components.app_state.model_parts[0].parameters()).device.type,
        }


def _check_token_ids(components: TrainingComponentsInstantiationModel) -> None:
    vocab_size = getattr(components.model_raw, "vocab_size", None)
    if vocab_size is None:
        return

    def max_over_ranks(number: int) -> int:
        largest = torch.tensor(number, device=next(components.model_raw.parameters()).device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return int(largest)

    datasets = [components.train_dataset, *(loader.dataset for loader in components.eval_dataloaders)]
    refuse_unknown_token_ids(datasets, vocab_size, get_rank(), get_world_size(), max_over_ranks)
