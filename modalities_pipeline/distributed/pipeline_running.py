"""Running batches through the stages of a pipeline, cut into micro batches."""

from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class

from modalities_pipeline.batch import InferenceResultBatch
from modalities_pipeline.distributed.pipeline_schedules import PipelineSchedules
from modalities_pipeline.exceptions import ConfigError, TrainingError
from modalities_pipeline.loss_functions import Loss


class PipelineSchedule:
    """Runs batches through the stages of all ranks; every rank of the pipeline calls the same methods in turn.

    Args:
        stages: the stages of this rank, in ascending order.
        kind: the schedule of torch.
        loss_fn: a loss with `target_key` and `prediction_key`, as it is computed of one prediction and one target.
        num_microbatches: into how many of the same size each batch is cut.
        batch_size: samples of a batch.

    Raises:
        ConfigError: the loss has no such keys, or the schedule cannot work with these stages or micro batches.
    """

    def __init__(
        self,
        stages: list[PipelineStage],
        kind: PipelineSchedules,
        loss_fn: Loss,
        num_microbatches: int,
        batch_size: int,
    ) -> None:
        if not hasattr(loss_fn, "target_key") or not hasattr(loss_fn, "prediction_key"):
            raise ConfigError(
                f"pipeline/scheduled: loss_fn: {loss_fn.tag} is not a loss between one prediction and one target. Use "
                "loss/clm_cross_entropy_loss."
            )
        if kind.splits_backward:
            _keep_gathered(stages)
        self.kind = kind
        self._stages = stages
        self._loss_fn: Any = loss_fn
        self._batch_size = batch_size
        self._num_microbatches = num_microbatches
        self._totals: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._shapes: dict[bool, torch.Size] = {}
        schedule_class: Any = get_schedule_class(kind)
        stages_of_rank = stages if issubclass(schedule_class, PipelineScheduleMulti) else stages[0]
        try:
            # Gradients are scaled by loss_scale: torch would divide those that have been accumulated before once more.
            self._schedule = schedule_class(stages_of_rank, num_microbatches, self._microbatch_loss, scale_grads=False)
        except (RuntimeError, ValueError) as error:
            raise ConfigError(f"pipeline/scheduled: torch refuses {kind} here: {error}") from error

    def step(self, inputs: torch.Tensor, targets: torch.Tensor, loss_scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Add to the parameters' gradients those of `loss_scale` times the summed loss of a batch.

        With 1 / (number of targets that count) they are the gradients of the mean loss of the batch.

        Args:
            inputs: token ids (batch, T), on the stages' device.
            targets: (batch, T), on the stages' device.

        Returns:
            The summed loss (float32) and its number of terms (int64), 0 on ranks without the last stage.

        Raises:
            TrainingError: the batch is of another shape than the pipeline was made for.
        """
        return self._run(self._schedule.step, inputs, targets, loss_scale=loss_scale)

    @torch.no_grad()
    def evaluate(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As `step`, without gradients; comes between the steps of the optimizer.

        Raises:
            ConfigError: the schedule cannot run without backward passes (see `PipelineSchedules.can_evaluate`).
            TrainingError: the batch is of another shape than the pipeline was made for, or sharded stages have
                gradients, which torch would forget.
        """
        if not self.kind.can_evaluate:
            others = ", ".join(kind for kind in PipelineSchedules if kind.can_evaluate)
            raise ConfigError(
                f"The pipeline schedule {self.kind} cannot evaluate: torch runs it with backward passes only. Use one "
                f"of {others} as pp_schedule_name, or no evaluation data."
            )
        self._refuse_gradients()
        return self._run(self._schedule.eval, inputs, targets, loss_scale=1.0)

    def _run(
        self, run: Any, inputs: torch.Tensor, targets: torch.Tensor, loss_scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self._refuse_other_shape(inputs, with_backward=torch.is_grad_enabled())
        self._totals.clear()
        own_inputs = [inputs] if any(stage.is_first for stage in self._stages) else []
        own_targets = targets if any(stage.is_last for stage in self._stages) else None
        # The outputs of all micro batches would be a lot of memory, and nobody wants them.
        run(*own_inputs, target=own_targets, loss_kwargs={"loss_scale": loss_scale}, return_outputs=False)
        loss_sum = torch.zeros((), device=inputs.device)
        count = torch.zeros((), dtype=torch.int64, device=inputs.device)
        # There may be one more at the beginning: torch finds out shapes before the first batch, and after evaluating.
        for microbatch_sum, microbatch_count in self._totals[-self._num_microbatches :]:
            loss_sum, count = loss_sum + microbatch_sum, count + microbatch_count
        return loss_sum, count

    def _microbatch_loss(self, outputs: torch.Tensor, targets: torch.Tensor, loss_scale: float) -> torch.Tensor:
        batch = InferenceResultBatch({self._loss_fn.target_key: targets}, {self._loss_fn.prediction_key: outputs})
        loss_sum, count = self._loss_fn.sum_and_count(batch)
        self._totals.append((loss_sum.detach(), count))
        return loss_sum * loss_scale

    def _refuse_other_shape(self, inputs: torch.Tensor, with_backward: bool) -> None:
        """Ranks know from the first batch what they receive from each other; anything else would make them hang."""
        wanted = self._shapes.setdefault(with_backward, torch.Size((self._batch_size, *inputs.shape[1:])))
        if inputs.shape != wanted:
            raise TrainingError(
                f"A batch of shape {tuple(inputs.shape)} came to a pipeline that takes {tuple(wanted)}. Make "
                "batch_size of pipeline/scheduled the data loader's, and set drop_last."
            )

    def _refuse_gradients(self) -> None:
        """At a change to or from evaluation torch finds out shapes anew, and resets gradients of sharded models."""
        for stage in self._stages:
            has_gradients = any(parameter.grad is not None for parameter in stage.submod.parameters())
            if isinstance(stage.submod, FSDPModule) and has_gradients:
                raise TrainingError(
                    "A pipeline with sharded stages was to evaluate before its gradients were used. Evaluate after "
                    "optimizer.step() and optimizer.zero_grad()."
                )


def _keep_gathered(stages: list[PipelineStage]) -> None:
    """Let sharded models keep their parameters gathered from the forward to the backward pass of a micro batch.

    Before a backward pass that it splits, torch looks up the parameters in the model. It would find shards, which took
    no part in the forward pass, and leave the parameters without gradients.
    """
    for stage in stages:
        for module in stage.submod.modules():
            if isinstance(module, FSDPModule):
                module.set_reshard_after_forward(False, recurse=False)
