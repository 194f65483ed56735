"""The training loop: accumulate, clip, stop if not finite, step, schedule, report."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from modalities_pipeline.batch import DatasetBatch, EvaluationResultBatch
from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.dataloading.dataloader import LLMDataLoader
from modalities_pipeline.distributed.env import get_world_size
from modalities_pipeline.distributed.gradients import (
    exchanges_gradients,
    scale_gradients_,
    set_gradient_synchronisation,
)
from modalities_pipeline.distributed.mesh import get_data_parallel_degree
from modalities_pipeline.evaluator import only_model_part
from modalities_pipeline.exceptions import TrainingError
from modalities_pipeline.loss_functions import Loss
from modalities_pipeline.models.model import model_predict_batch
from modalities_pipeline.optim.gradient_clipping import GradientClipperIF
from modalities_pipeline.profiling.profilers import SteppableNoProfiler, SteppableProfilerIF
from modalities_pipeline.progress.mfu import MFUCalculatorABC
from modalities_pipeline.progress.training_progress import TrainingProgress
from modalities_pipeline.reporting.broker import ExperimentStatus, MessagePublisher, MessageTypes, ProgressUpdate
from modalities_pipeline.reporting.training_metrics import ThroughputAggregationKeys as ThroughputAggregationKeys
from modalities_pipeline.reporting.training_metrics import TrainingMetrics
from modalities_pipeline.util import TimeRecorder, print_rank_0


class EvaluationCallback(Protocol):
    """Called after each step."""

    def __call__(self, num_train_steps_done: int) -> None: ...


class CheckpointingCallback(Protocol):
    """Called after each step, after the evaluation."""

    def __call__(self, training_progress: TrainingProgress) -> None: ...


class Trainer:
    """Trains a model to a number of steps.

    Gradients are those of the mean loss per token over all micro batches and ranks of a step, however unevenly the
    targets that count are spread over them.

    Args:
        gradient_acc_steps: micro batches per step and rank.
        global_num_tokens_per_train_step: tokens that one step consumes on all ranks.
        device_mesh: the mesh of the run; without one every rank sees other data.
        num_seen_train_steps, global_num_seen_tokens: where the run continues.
        num_target_steps, num_target_tokens: where it ends, counted from the very first step.
        gradient_clipper: clips once per step and gives the norm.
        mfu_calculator: without one the MFU is reported as -1.
        log_last_step: report the last step, too, if the interval would not.
        profiler: is entered for the training, and told after each optimizer step (with its log, evaluation and
            checkpoint) that a step is over; a training with fewer steps than it wants is no error.
    """

    def __init__(
        self,
        global_rank: int,
        progress_publisher: MessagePublisher[ProgressUpdate],
        evaluation_result_publisher: MessagePublisher[EvaluationResultBatch],
        gradient_acc_steps: int,
        global_num_tokens_per_train_step: int,
        device_mesh: DeviceMesh | None,
        num_seen_train_steps: int,
        global_num_seen_tokens: int,
        num_target_steps: int,
        num_target_tokens: int,
        gradient_clipper: GradientClipperIF,
        mfu_calculator: MFUCalculatorABC | None = None,
        log_last_step: bool = True,
        profiler: SteppableProfilerIF | None = None,
    ) -> None:
        self.global_rank = global_rank
        self.gradient_acc_steps = gradient_acc_steps
        self.global_num_tokens_per_train_step = global_num_tokens_per_train_step
        self.gradient_clipper = gradient_clipper
        self.progress = TrainingProgress(
            num_seen_steps_current_run=0,
            num_seen_tokens_current_run=0,
            num_target_steps=num_target_steps,
            num_target_tokens=num_target_tokens,
            num_seen_steps_previous_run=num_seen_train_steps,
            num_seen_tokens_previous_run=global_num_seen_tokens,
        )
        self._progress_publisher = progress_publisher
        self._evaluation_result_publisher = evaluation_result_publisher
        self._log_last_step = log_last_step
        self._profiler = profiler if profiler is not None else SteppableNoProfiler()
        self._dp_degree = get_data_parallel_degree(device_mesh)
        compute_mfu = mfu_calculator.compute if mfu_calculator is not None else None
        self._metrics = TrainingMetrics(self._dp_degree, global_num_tokens_per_train_step, compute_mfu)

    def train(
        self,
        app_state: AppState,
        train_loader: LLMDataLoader,
        loss_fun: Loss,
        training_log_interval_in_steps: int,
        evaluation_callback: EvaluationCallback,
        checkpointing_callback: CheckpointingCallback,
        scheduled_pipeline: Any = None,
    ) -> None:
        """Train until the target number of steps; at each step report, then evaluate, then save as the callbacks do.

        Raises:
            TrainingError: on every rank: the data do not suffice for all steps, the model is one of several parts, or
                each rank has one of its own (before the first step); or a loss or gradient norm is not finite (before
                the optimizer takes the step).
        """
        model = only_model_part(app_state.model_parts, scheduled_pipeline)
        self._refuse_separate_models(model)
        self._refuse_short_data(train_loader)
        model.train()
        batches = iter(train_loader)
        stop_watch = TimeRecorder()
        with self._profiler:
            while self.progress.num_seen_steps_total < self.progress.num_target_steps:
                with stop_watch:
                    self._step(app_state, model, batches, loss_fun, train_loader.dataloader_tag)
                num_steps = self.progress.num_seen_steps_total
                is_last = num_steps == self.progress.num_target_steps
                if num_steps % training_log_interval_in_steps == 0 or (is_last and self._log_last_step):
                    self._report(app_state, train_loader.dataloader_tag, stop_watch.delta_t)
                    stop_watch.reset()
                evaluation_callback(num_train_steps_done=num_steps)
                checkpointing_callback(training_progress=self.progress)
                self._profiler.step()

    def _refuse_separate_models(self, model: nn.Module) -> None:
        if self._dp_degree > 1 and not exchanges_gradients(model):
            raise TrainingError(
                f"{self._dp_degree} ranks see different samples, but the model's gradients are not exchanged, so that "
                "each would train a model of its own. Wrap it with fsdp2_wrapped, or start one process."
            )

    def _refuse_short_data(self, train_loader: LLMDataLoader) -> None:
        num_steps = self.progress.num_target_steps - self.progress.num_seen_steps_total
        num_possible_steps = len(train_loader) // self.gradient_acc_steps
        if num_possible_steps < num_steps:
            raise TrainingError(
                f"The training data suffice for {num_possible_steps} more steps, but {num_steps} are to be done (up "
                f"to step {self.progress.num_target_steps}). Use more data, or lower num_target_steps and "
                "num_target_tokens."
            )

    def _step(
        self, app_state: AppState, model: nn.Module, batches: Iterator[DatasetBatch], loss_fun: Loss, tag: str
    ) -> None:
        local_totals, num_samples = self._accumulate(model, batches, loss_fun, tag)
        totals = local_totals.clone()
        if dist.is_initialized():
            dist.all_reduce(totals)
            totals *= self._dp_degree / get_world_size()
        scale_gradients_(model, self.global_num_tokens_per_train_step / totals[1])
        gradient_norm = self.gradient_clipper.clip_gradients().reshape(()).to(totals.device)
        if not (torch.isfinite(totals[0]) & torch.isfinite(gradient_norm)).item():
            self._stop(local_totals, totals, gradient_norm)
        app_state.optimizer.step()
        if app_state.lr_scheduler is not None:
            app_state.lr_scheduler.step()
        app_state.optimizer.zero_grad()
        self.progress.num_seen_steps_current_run += 1
        self.progress.num_seen_tokens_current_run += self.global_num_tokens_per_train_step
        self._publish_progress(tag)
        self._metrics.add_step(totals, gradient_norm, num_samples)

    def _accumulate(
        self, model: nn.Module, batches: Iterator[DatasetBatch], loss_fun: Loss, tag: str
    ) -> tuple[torch.Tensor, int]:
        """Run all micro batches of a step; (loss totals of this rank as `TrainingMetrics` wants them, samples)."""
        device = next(model.parameters()).device
        loss_scale = self._dp_degree / self.global_num_tokens_per_train_step  # FSDP averages gradients over dp ranks
        loss_sum, count, num_samples = torch.zeros((), device=device), torch.zeros((), device=device), 0
        last_sum, last_count = loss_sum, count  # of the last micro batch that has targets that count
        for micro_batch in range(self.gradient_acc_steps):
            is_last = micro_batch == self.gradient_acc_steps - 1
            set_gradient_synchronisation(model, is_last)
            batch = next(batches)
            batch.to(device)
            batch_sum, batch_count = loss_fun.sum_and_count(model_predict_batch(model, batch))
            (batch_sum * loss_scale).backward()
            loss_sum, count = loss_sum + batch_sum.detach().double(), count + batch_count
            last_sum = torch.where(batch_count > 0, batch_sum.detach().double(), last_sum)
            last_count = torch.where(batch_count > 0, batch_count, last_count)
            num_samples += len(batch)
            if not is_last:
                self._publish_progress(tag)
        return torch.stack([loss_sum, count, last_sum, last_count]).double(), num_samples

    def _stop(self, local_totals: torch.Tensor, totals: torch.Tensor, gradient_norm: torch.Tensor) -> None:
        if totals[1] == 0:
            raise TrainingError(
                f"Step {self.progress.num_seen_steps_total + 1} has no target that counts: the loss leaves out all of "
                "its tokens on all ranks. The step was not taken. Look at the masking of the data."
            )
        losses: list[Any] = [local_totals[0].item()]
        if dist.is_initialized():
            losses = [None] * get_world_size()
            dist.all_gather_object(losses, local_totals[0].item())
        ranks = [str(rank) for rank, loss in enumerate(losses) if not torch.isfinite(torch.tensor(loss))]
        culprits = f" (from rank {', '.join(ranks)})" if ranks else ""
        raise TrainingError(
            f"Step {self.progress.num_seen_steps_total + 1} is not finite: loss {(totals[0] / totals[1]).item()}"
            f"{culprits}, gradient norm {gradient_norm.item()}. The step was not taken; the newest checkpoint is from "
            "before it. Lower the learning rate, or look at the data."
        )

    def _publish_progress(self, tag: str) -> None:
        update = ProgressUpdate(self.progress.num_seen_steps_total, ExperimentStatus.TRAIN, tag)
        self._progress_publisher.publish_message(update, MessageTypes.BATCH_PROGRESS_UPDATE)

    def _report(self, app_state: AppState, tag: str, duration_in_s: float) -> None:
        result = self._metrics.result(
            dataloader_tag=tag,
            num_steps=self.progress.num_seen_steps_total,
            num_tokens=self.progress.num_seen_tokens_total,
            learning_rates=[group["lr"] for group in app_state.optimizer.param_groups],
            duration_in_s=duration_in_s,
        )
        print_rank_0(f"{datetime.now().isoformat(timespec='seconds')} | {result}")
        self._evaluation_result_publisher.publish_message(result, MessageTypes.EVALUATION_RESULT)
