"""Evaluation and checkpoints happen at their intervals, and at the last step unless that is switched off."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.gym import Gym
from modalities_pipeline.progress.training_progress import TrainingProgress


class _Trainer:
    """Goes through the steps without training."""

    def __init__(self, num_seen_steps: int, num_target_steps: int) -> None:
        self.progress = TrainingProgress(0, 0, num_target_steps, num_target_steps, num_seen_steps, num_seen_steps)

    def train(self, evaluation_callback, checkpointing_callback, **options) -> None:
        while self.progress.num_seen_steps_total < self.progress.num_target_steps:
            self.progress.num_seen_steps_current_run += 1
            evaluation_callback(num_train_steps_done=self.progress.num_seen_steps_total)
            checkpointing_callback(training_progress=self.progress)


@pytest.fixture
def run():
    """Function seen steps, target steps, options of the gym -> (steps evaluated, steps saved)."""

    def run_gym(num_seen_steps: int, num_target_steps: int, **options: bool) -> tuple[list[int], list[int]]:
        evaluated: list[int] = []
        saved: list[int] = []

        def evaluate(num_train_steps_done: int, **rest) -> None:
            evaluated.append(num_train_steps_done)

        def save(training_progress: TrainingProgress, **rest) -> None:
            saved.append(training_progress.num_seen_steps_total)

        gym = Gym(
            _Trainer(num_seen_steps, num_target_steps), SimpleNamespace(evaluate=evaluate), None, num_ranks=1, **options
        )
        model = nn.Linear(1, 1)
        gym.run(
            app_state=AppState(model, torch.optim.SGD(model.parameters(), lr=1.0)),
            training_log_interval_in_steps=1,
            evaluation_interval_in_steps=3,
            checkpointing_interval_in_steps=4,
            train_data_loader=None,
            evaluation_data_loaders=[],
            checkpoint_saving=SimpleNamespace(save_checkpoint=save),
        )
        return evaluated, saved

    return run_gym


def test_last_step_is_evaluated_and_saved_once(run):
    """B062: also if it is a multiple of the interval."""
    assert run(0, 10) == ([3, 6, 9, 10], [4, 8, 10])
    assert run(0, 12) == ([3, 6, 9, 12], [4, 8, 12])


def test_a_warm_start_neither_evaluates_nor_saves_where_it_starts(run):
    """Intervals count the steps of the earlier run, too."""
    assert run(4, 10) == ([6, 9, 10], [8, 10])


def test_a_finished_run_does_nothing(run):
    assert run(10, 10) == ([], [])


def test_last_step_can_be_left_to_the_interval(run):
    assert run(0, 10, evaluate_last_step=False, checkpoint_last_step=False) == ([3, 6, 9], [4, 8])
