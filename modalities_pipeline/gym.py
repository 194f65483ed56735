"""Training with evaluation and checkpoints at their intervals."""

from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.saving import CheckpointSaving
from modalities_pipeline.dataloading.dataloader import LLMDataLoader
from modalities_pipeline.evaluator import Evaluator
from modalities_pipeline.loss_functions import Loss
from modalities_pipeline.progress.training_progress import TrainingProgress
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
        scheduled_pipeline: None = None,
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
