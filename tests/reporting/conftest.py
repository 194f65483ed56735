"""Fixtures of the reporting tests."""

from collections.abc import Callable

import pytest
import torch

from modalities_pipeline.batch import EvaluationResultBatch, ResultItem
from modalities_pipeline.reporting.broker import Message, MessageTypes


@pytest.fixture(scope="session")
def make_result_message() -> Callable[..., Message[EvaluationResultBatch]]:
    """Function steps, loss -> message with a result of the data loader "train"."""

    def make(num_steps: int, loss: float = 1.23456) -> Message[EvaluationResultBatch]:
        result = EvaluationResultBatch(
            dataloader_tag="train",
            num_train_steps_done=num_steps,
            losses={"train loss avg": ResultItem(torch.tensor(loss, dtype=torch.float64), 2)},
            metrics={"grad norm last": ResultItem(torch.tensor(2.0), 2)},
            throughput_metrics={"train tokens/s": ResultItem(torch.tensor(10), 1)},
        )
        return Message(MessageTypes.EVALUATION_RESULT, result)

    return make
