"""Fixtures of the checkpointing tests."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.progress.training_progress import TrainingProgress


@pytest.fixture(scope="session")
def make_progress() -> Callable[..., TrainingProgress]:
    """Function steps, target steps -> progress, at 128 tokens a step."""

    def make(num_steps: int, num_target_steps: int = 20) -> TrainingProgress:
        return TrainingProgress(num_steps, num_steps * 128, num_target_steps, num_target_steps * 128)

    return make


@pytest.fixture(scope="session")
def make_app_state() -> Callable[..., AppState]:
    """Function width, steps -> app state of a small network that has made some optimizer steps."""

    def make(width: int = 4, num_steps: int = 0, num_layers: int = 2) -> AppState:
        torch.manual_seed(num_steps)
        model = nn.Sequential(*(nn.Linear(width, width) for _ in range(num_layers)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        for _ in range(num_steps):
            model(torch.ones(3, width)).square().mean().backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        return AppState(model, optimizer, scheduler)

    return make
