"""Training with evaluation and checkpoints at their intervals."""

from typing import Any

from modalities_pipeline.batch import EvaluationResultBatch
from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.saving import CheckpointSaving
from modalities_pipeline.config.schemas.training import TrainingComponentsInstantiationModel
from modalities_pipeline.dataloading.dataloader import LLMDataLoader
from modalities_pipeline.evaluator import Evaluator
from modalities_pipeline.loss_functions import Loss
from modalities_pipeline.progress.training_progress import TrainingProgress
from modalities_pipeline.reporting.broker import MessagePublisher, ProgressUpdate
from modalities_pipeline.trainer import Trainer
from modalities_pipeline.util import print_rank_0


class Gym:
    """Brings trainer and evaluator together.

    Args:
        num_ranks: number of processes of the run.
        evaluate_last_step, checkpoint_last_step: do so at the last step, too, if the interval would not.
    """

    def __init__(
        self,
        trainer: Trainer,
        evaluator: Evaluator,
        loss_fun: Loss,
        num_ranks: int,
        evaluate_last_step: bool = True,
        checkpoint_last_step: bool = True,
    ) -> None:
        self.trainer = trainer
        self.evaluator = evaluator
        self.loss_fun = loss_fun
        self.num_ranks = num_ranks
        self._evaluate_last_step = evaluate_last_step
        self._checkpoint_last_step = checkpoint_last_step

    def run(
        self,
        app_state: AppState,
        training_log_interval_in_steps: int,
        checkpointing_interval_in_steps: int,
        evaluation_interval_in_steps: int,
        train_data_loader: LLMDataLoader,
        evaluation_data_loaders: list[LLMDataLoader],
        checkpoint_saving: CheckpointSaving,
        scheduled_pipeline: Any = None,
    ) -> None:
        """Train to the end; intervals count all steps since the very first one, also those of an earlier run."""
        num_target_steps = self.trainer.progress.num_target_steps

        def evaluate(num_train_steps_done: int) -> None:
            is_due = num_train_steps_done % evaluation_interval_in_steps == 0
            if is_due or (self._evaluate_last_step and num_train_steps_done == num_target_steps):
                self.evaluator.evaluate(
                    model=app_state.model_parts[0],
                    data_loaders=evaluation_data_loaders,
                    loss_fun=self.loss_fun,
                    num_train_steps_done=num_train_steps_done,
                    scheduled_pipeline=scheduled_pipeline,
                )

        def save(training_progress: TrainingProgress) -> None:
            num_steps = training_progress.num_seen_steps_total
            is_due = num_steps % checkpointing_interval_in_steps == 0
            if is_due or (self._checkpoint_last_step and num_steps == num_target_steps):
                checkpoint_saving.save_checkpoint(
                    training_progress=training_progress, evaluation_result=None, app_state=app_state
                )

        print_rank_0(f"Training on {self.num_ranks} ranks.")
        self.trainer.train(
            app_state=app_state,
            train_loader=train_data_loader,
            loss_fun=self.loss_fun,
            training_log_interval_in_steps=training_log_interval_in_steps,
            evaluation_callback=evaluate,
            checkpointing_callback=save,
            scheduled_pipeline=scheduled_pipeline,
        )
        print_rank_0("Training done.")


def gym_of(
    components: TrainingComponentsInstantiationModel,
    results_publisher: MessagePublisher[EvaluationResultBatch],
    progress_publisher: MessagePublisher[ProgressUpdate],
) -> Gym:
    """Trainer and evaluator of a training config, connected to where they report."""
    settings = components.settings
    progress, target = settings.training_progress, settings.training_target
    enforcement = settings.consistency_enforcement
    trainer = Trainer(
        global_rank=settings.cuda_env.global_rank,
        progress_publisher=progress_publisher,
        evaluation_result_publisher=results_publisher,
        gradient_acc_steps=settings.step_profile.gradient_accumulation_steps,
        global_num_tokens_per_train_step=settings.step_profile.global_num_tokens_per_train_step,
        device_mesh=components.device_mesh,
        num_seen_train_steps=progress.num_seen_steps,
        global_num_seen_tokens=progress.global_num_seen_tokens,
        num_target_steps=target.num_target_steps,
        num_target_tokens=target.num_target_tokens,
        gradient_clipper=components.gradient_clipper,
        mfu_calculator=components.mfu_calculator,
        log_last_step=enforcement.enforce_last_step_logged,
        profiler=components.profiler,
    )
    return Gym(
        trainer=trainer,
        evaluator=Evaluator(progress_publisher, results_publisher, components.device_mesh),
        loss_fun=components.loss_fn,
        num_ranks=settings.cuda_env.world_size,
        evaluate_last_step=enforcement.enforce_last_step_evaluated,
        checkpoint_last_step=enforcement.enforce_last_step_checkpointed,
    )
