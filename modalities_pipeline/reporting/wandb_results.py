"""Results to Weights & Biases. The only user of wandb, imported when a run really reports to it."""

from pathlib import Path
from typing import Any

from modalities_pipeline.batch import EvaluationResultBatch
from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.reporting.broker import Message, MessageSubscriberIF
from modalities_pipeline.reporting.configs import WandbMode
from modalities_pipeline.reporting.results import DummyResultSubscriber


class WandBResultSubscriber(MessageSubscriberIF[EvaluationResultBatch]):
    """One wandb run per experiment id; a run that is started again with the same id continues it."""

    def __init__(
        self,
        project: str,
        experiment_id: str,
        mode: WandbMode,
        directory: Path,
        config_file_path: Path,
        entity: str | None,
    ) -> None:
        import wandb

        directory.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            entity=entity,
            project=project,
            name=experiment_id,
            id=experiment_id,
            resume="allow",
            mode=mode.value,
            dir=directory,
            config=load_yaml(config_file_path).data,
        )

    def consume_message(self, message: Message[EvaluationResultBatch]) -> None:
        """Log all numbers of one result under "<dataloader tag> <name>"."""
        result = message.payload
        items = result.losses | result.metrics | result.throughput_metrics
        numbers = {f"{result.dataloader_tag} {name}": item.value.double().mean().item() for name, item in items.items()}
        self._run.log(numbers, step=result.num_train_steps_done)

    def consume_dict(self, message_dict: dict[str, Any]) -> None:
        """Add facts to the run's config."""
        self._run.config.update(message_dict, allow_val_change=True)


def get_wandb_result_subscriber(
    global_rank: int,
    project: str,
    experiment_id: str,
    mode: WandbMode,
    directory: Path,
    config_file_path: Path,
    entity: str | None = None,
) -> MessageSubscriberIF[EvaluationResultBatch]:
    """A wandb run on rank 0; nothing on other ranks or if the mode is DISABLED."""
    if global_rank != 0 or mode is WandbMode.DISABLED:
        return DummyResultSubscriber()
    return WandBResultSubscriber(project, experiment_id, mode, directory, config_file_path, entity)
