"""Evaluation: the mean loss per token of data loaders, exact over all ranks."""

import time
from datetime import datetime
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from modalities_pipeline.batch import DatasetBatch, EvaluationResultBatch, ResultItem
from modalities_pipeline.dataloading.dataloader import LLMDataLoader
from modalities_pipeline.distributed.env import get_world_size
from modalities_pipeline.distributed.mesh import get_data_parallel_degree
from modalities_pipeline.exceptions import TrainingError
from modalities_pipeline.loss_functions import Loss
from modalities_pipeline.models.model import model_predict_batch
from modalities_pipeline.reporting.broker import ExperimentStatus, MessagePublisher, MessageTypes, ProgressUpdate
from modalities_pipeline.util import print_rank_0


class Evaluator:
    """Evaluates a model; its training mode is afterwards what it was before, even if evaluating fails.

    Args:
        device_mesh: the mesh of the run; without one every rank sees other data.
    """

    def __init__(
        self,
        progress_publisher: MessagePublisher[ProgressUpdate],
        evaluation_result_publisher: MessagePublisher[EvaluationResultBatch],
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        self._progress_publisher = progress_publisher
        self._evaluation_result_publisher = evaluation_result_publisher
        self._num_ranks_per_sample = get_world_size() / get_data_parallel_degree(device_mesh)

    def evaluate(
        self,
        model: nn.Module | list[nn.Module],
        data_loaders: list[LLMDataLoader],
        loss_fun: Loss,
        num_train_steps_done: int,
        scheduled_pipeline: Any = None,
    ) -> dict[str, EvaluationResultBatch]:
        """Tag of each data loader -> its results: the loss under its tag, and samples per second over all ranks.

        Every rank has to call it with data loaders of the same length.

        Raises:
            TrainingError: a data loader has no batch or no target that counts, or the model is one of several parts.
        """
        model = only_model_part(model if isinstance(model, list) else [model], scheduled_pipeline)
        was_training = model.training
        model.eval()
        try:
            results = {}
            for loader in data_loaders:
                results[loader.dataloader_tag] = self._evaluate_loader(model, loader, loss_fun, num_train_steps_done)
            return results
        finally:
            model.train(was_training)

    def evaluate_batch(
        self, batch: DatasetBatch, model: nn.Module, loss_fun: Loss, scheduled_pipeline: Any = None
    ) -> torch.Tensor:
        """Mean loss of one batch on this rank, without dimensions; 0 without targets; the model keeps its mode."""
        loss_sum, count = _sum_and_count(batch, only_model_part([model], scheduled_pipeline), loss_fun)
        return loss_sum / count.clamp(min=1)

    def _evaluate_loader(
        self, model: nn.Module, loader: LLMDataLoader, loss_fun: Loss, num_train_steps_done: int
    ) -> EvaluationResultBatch:
        if len(loader) == 0:
            raise TrainingError(
                f"The evaluation data loader '{loader.dataloader_tag}' has no batch. Use more data, or smaller batches."
            )
        self._publish_progress(0, loader.dataloader_tag)
        started = time.perf_counter()
        totals = torch.zeros(3, dtype=torch.float64, device=next(model.parameters()).device)  # loss, terms, samples
        for num_batches, batch in enumerate(loader, start=1):
            loss_sum, count = _sum_and_count(batch, model, loss_fun)
            totals += torch.stack([loss_sum.double(), count.double(), torch.full_like(count, len(batch)).double()])
            self._publish_progress(num_batches, loader.dataloader_tag)
        if dist.is_initialized():
            dist.all_reduce(totals)
            totals /= self._num_ranks_per_sample
        if totals[1] == 0:
            raise TrainingError(
                f"The evaluation data loader '{loader.dataloader_tag}' has no target that counts: the loss leaves out "
                "all tokens. Look at the masking of the data."
            )
        samples_per_s = totals[2] / (time.perf_counter() - started)
        result = EvaluationResultBatch(
            dataloader_tag=loader.dataloader_tag,
            num_train_steps_done=num_train_steps_done,
            losses={loss_fun.tag: ResultItem(totals[0] / totals[1], 2)},
            throughput_metrics={"evaluation_num_samples_per_second": ResultItem(samples_per_s, 1)},
        )
        print_rank_0(f"{datetime.now().isoformat(timespec='seconds')} | {result}")
        self._evaluation_result_publisher.publish_message(result, MessageTypes.EVALUATION_RESULT)
        return result

    def _publish_progress(self, num_batches: int, tag: str) -> None:
        update = ProgressUpdate(num_batches, ExperimentStatus.EVALUATION, tag)
        self._progress_publisher.publish_message(update, MessageTypes.BATCH_PROGRESS_UPDATE)


@torch.no_grad()
def _sum_and_count(batch: DatasetBatch, model: nn.Module, loss_fun: Loss) -> tuple[torch.Tensor, torch.Tensor]:
    batch.to(next(model.parameters()).device)
    return loss_fun.sum_and_count(model_predict_batch(model, batch))


def only_model_part(model_parts: list[nn.Module], scheduled_pipeline: Any = None) -> nn.Module:
    """The model, if it is in one piece.

    Raises:
        TrainingError: it consists of several parts or runs in a pipeline.
    """
    if scheduled_pipeline is not None or len(model_parts) != 1:
        raise TrainingError(
            f"The model consists of {len(model_parts)} part(s){' in a pipeline' if scheduled_pipeline else ''}, and "
            "training by pipeline parallelism is not supported in this version. Leave scheduled_pipeline out, and give "
            "app_state one model."
        )
    return model_parts[0]
