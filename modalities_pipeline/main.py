"""One training run: config -> components -> experiment folder with checkpoints, metrics and a result."""

import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import yaml
from pydantic import BaseModel

from modalities_pipeline.batch import EvaluationResultBatch
from modalities_pipeline.checkpointing.folders import find_latest_checkpoint
from modalities_pipeline.checkpointing.resume import checkpoint_path_of, overrides_to_resume
from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.loader import load_app_config_dict, load_yaml
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.schemas import TrainingComponentsInstantiationModel, TrainingSettings, training_report
from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.dataloading.token_ids import refuse_unknown_token_ids
from modalities_pipeline.distributed.env import get_rank, get_world_size
from modalities_pipeline.evaluator import Evaluator
from modalities_pipeline.gym import Gym
from modalities_pipeline.reporting.broker import (
    MessageBroker,
    MessagePublisher,
    MessageSubscriberIF,
    MessageTypes,
    ProgressUpdate,
)
from modalities_pipeline.reporting.to_disc import ToDiscResultSubscriber, drop_results_after, read_results
from modalities_pipeline.trainer import Trainer
from modalities_pipeline.util import (
    get_synced_experiment_id_of_run,
    get_total_number_of_trainable_parameters,
    print_rank_0,
)

logger = logging.getLogger(__name__)

METRICS_FILE_NAME = "metrics.jsonl"
RESULT_FILE_NAME = "result.json"
_DEFAULT_ROOT = Path("experiments")

ModelT = TypeVar("ModelT", bound=BaseModel)


class Main:
    """Builds and runs what a YAML file describes. Needs a process group (`distributed.env.DistributedEnv`).

    Args:
        config_path: the YAML file.
        additional_resolver_funs: name -> function of more `${name:argument}` resolvers.
        experiment_id: name of the experiment's folder; made from time and config if not given.
        experiments_root_path: where experiment folders are (default: `experiments`); what the config says in
            `settings.paths.experiments_root_path` wins over it.
        overrides: dotted key -> value, set in the config before it is resolved.
        resume: continue from the newest complete checkpoint of this experiment, if there is one.

    Attributes:
        config_dict: the resolved config.
        registry, component_factory: know the components; `add_custom_component` adds some.
    """

    def __init__(
        self,
        config_path: Path,
        additional_resolver_funs: Mapping[str, Callable[..., Any]] | None = None,
        experiment_id: str | None = None,
        experiments_root_path: Path | None = None,
        overrides: Mapping[str, Any] | None = None,
        resume: bool = False,
    ) -> None:
        self.config_path = Path(config_path)
        document = load_yaml(self.config_path)
        self.experiment_id = (
            experiment_id if experiment_id is not None else get_synced_experiment_id_of_run(config_path)
        )
        self.experiments_root_path = experiments_root_path or _DEFAULT_ROOT
        self._started = time.perf_counter()

        def load(overrides: Mapping[str, Any]) -> dict[str, Any]:
            return load_app_config_dict(
                self.config_path, self.experiments_root_path, self.experiment_id, additional_resolver_funs, overrides
            )

        self.config_dict = load(overrides or {})
        if resume:
            checkpoint = find_latest_checkpoint(checkpoint_path_of(self.config_dict))
            if checkpoint is not None:
                print_rank_0(f"Continuing from {checkpoint}.")
                self.config_dict = load({**(overrides or {}), **overrides_to_resume(self.config_dict, checkpoint)})
        self.registry = Registry()
        self.component_factory = ComponentFactory(self.registry, self.config_path, document.position)

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
        """Build what the fields of a pydantic model name; raises `ConfigError` with all faults."""
        return self.component_factory.build_components(self.config_dict, components_model_type)

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
        settings = components.settings
        root = settings.paths.experiments_root_path or self.experiments_root_path
        folder = root / settings.experiment_id
        _check_token_ids(components)
        if get_rank() == 0:
            self._prepare_folder(folder, settings.training_progress.num_seen_steps)
        dist.barrier()
        num_parameters = get_total_number_of_trainable_parameters(
            components.app_state.model_parts, components.device_mesh
        )
        components.evaluation_subscriber.consume_dict({"No. parameters": num_parameters})
        print_rank_0(training_report(settings, {"parameters": num_parameters, "experiment folder": folder}))
        gym = self._build_gym(components, folder / METRICS_FILE_NAME)
        gym.run(
            app_state=components.app_state,
            training_log_interval_in_steps=settings.intervals.training_log_interval_in_steps,
            checkpointing_interval_in_steps=settings.intervals.checkpointing_interval_in_steps,
            evaluation_interval_in_steps=settings.intervals.evaluation_interval_in_steps,
            train_data_loader=components.train_dataloader,
            evaluation_data_loaders=components.eval_dataloaders,
            checkpoint_saving=components.checkpoint_saving,
        )
        if get_rank() == 0:
            device = next(components.app_state.model_parts[0].parameters()).device
            self._write_result(folder, components, num_parameters, device.type)

    def _prepare_folder(self, folder: Path, num_seen_steps: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RESULT_FILE_NAME).unlink(missing_ok=True)
        drop_results_after(folder / METRICS_FILE_NAME, num_seen_steps)
        copy = folder / self.config_path.name
        if not (copy.exists() and copy.samefile(self.config_path)):
            shutil.copyfile(self.config_path, copy)
        resolved = yaml.safe_dump(_plain(self.config_dict), sort_keys=False, allow_unicode=True)
        copy.with_name(copy.name + ".resolved").write_text(resolved, encoding="utf-8")

    def _build_gym(self, components: TrainingComponentsInstantiationModel, metrics_path: Path) -> Gym:
        settings = components.settings
        progress, target, enforcement = (
            settings.training_progress,
            settings.training_target,
            settings.consistency_enforcement,
        )
        evaluation_result_publisher, progress_publisher = self.get_logging_publishers(
            components.progress_subscriber,
            components.evaluation_subscriber,
            settings.cuda_env.global_rank,
            settings.cuda_env.local_rank,
            more_results_subscribers=[ToDiscResultSubscriber(metrics_path)],
        )
        trainer = Trainer(
            global_rank=settings.cuda_env.global_rank,
            progress_publisher=progress_publisher,
            evaluation_result_publisher=evaluation_result_publisher,
            gradient_acc_steps=settings.step_profile.gradient_accumulation_steps,
            global_num_tokens_per_train_step=settings.step_profile.global_num_tokens_per_train_step,
            device_mesh=components.device_mesh,
            num_seen_train_steps=progress.num_seen_steps,
            global_num_seen_tokens=progress.global_num_seen_tokens,
            num_target_steps=target.num_target_steps,
            num_target_tokens=target.num_target_tokens,
            gradient_clipper=components.gradient_clipper,
            log_last_step=enforcement.enforce_last_step_logged,
        )
        return Gym(
            trainer=trainer,
            evaluator=Evaluator(progress_publisher, evaluation_result_publisher),
            loss_fun=components.loss_fn,
            num_ranks=settings.cuda_env.world_size,
            evaluate_last_step=enforcement.enforce_last_step_evaluated,
            checkpoint_last_step=enforcement.enforce_last_step_checkpointed,
        )

    def _write_result(
        self, folder: Path, components: TrainingComponentsInstantiationModel, num_parameters: int, device_type: str
    ) -> None:
        """Write result.json; losses are the last ones of metrics.jsonl, which a run that did no step has, too."""
        settings: TrainingSettings = components.settings
        newest = {result["dataloader_tag"]: result for result in read_results(folder / METRICS_FILE_NAME)}
        train = newest.pop(components.train_dataloader.dataloader_tag, None)
        loss_tag = components.loss_fn.tag
        checkpoint = find_latest_checkpoint(checkpoint_path_of(self.config_dict))
        result = {
            "checkpoint_folder_path": str(checkpoint.absolute()) if checkpoint else None,
            "num_steps": settings.training_target.num_target_steps,
            "num_tokens": settings.training_target.num_target_tokens,
            "num_parameters": num_parameters,
            "train_loss": train["losses"]["train loss avg"] if train else None,
            "evaluation_losses": {tag: evaluation["losses"][loss_tag] for tag, evaluation in newest.items()},
            "duration_in_s": round(time.perf_counter() - self._started, 3),
            "world_size": settings.cuda_env.world_size,
            "device": device_type,
        }
        with atomic_path(folder / RESULT_FILE_NAME) as temporary:
            temporary.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


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


def _plain(value: Any) -> Any:
    """The same value with paths as text, so that any YAML reader understands it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
