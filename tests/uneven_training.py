"""Trains and evaluates on two ranks whose targets that count are spread unevenly; run by torchrun."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from modalities_pipeline.batch import DatasetBatch, EvaluationResultBatch
from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.distributed.env import DistributedEnv, get_rank, get_world_size
from modalities_pipeline.evaluator import Evaluator
from modalities_pipeline.exceptions import TrainingError
from modalities_pipeline.loss_functions import CLMCrossEntropyLoss
from modalities_pipeline.optim.gradient_clipping import FSDPGradientClipper, GradientClippingMode
from modalities_pipeline.reporting.broker import (
    Message,
    MessageBroker,
    MessagePublisher,
    MessageSubscriberIF,
    MessageTypes,
)
from modalities_pipeline.trainer import Trainer

LOSS = CLMCrossEntropyLoss(target_key="target_ids", prediction_key="logits")
NUM_SAMPLES, LENGTH, VOCAB_SIZE = 16, 8, 16
NUM_STEPS = 2


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, VOCAB_SIZE)
        with torch.no_grad():
            self.embedding.weight.copy_(torch.linspace(-1, 1, VOCAB_SIZE**2).reshape(VOCAB_SIZE, VOCAB_SIZE).sin())

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"logits": self.embedding(inputs["input_ids"])}


class _Loader(list):
    dataloader_tag = "data"


class _Results(MessageSubscriberIF[EvaluationResultBatch]):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def consume_message(self, message: Message[EvaluationResultBatch]) -> None:
        self.losses.append(message.payload.losses["train loss avg"].value.item())


def _samples() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets; of the first half of each step's samples only one target counts, so of rank 0's."""
    tokens = (torch.arange(NUM_SAMPLES * (LENGTH + 1)).reshape(NUM_SAMPLES, -1) ** 2 * 7 + 3) % VOCAB_SIZE
    targets = tokens[:, 1:].clone()
    per_step = NUM_SAMPLES // NUM_STEPS
    for start in range(0, NUM_SAMPLES, per_step):
        targets[start : start + per_step // 2, 1:] = -100
    return tokens[:, :-1], targets


def _batches(rank: int, num_ranks: int, gradient_acc_steps: int) -> _Loader:
    """A rank's micro batches of all steps; each step has the same samples, however they are spread."""
    inputs, targets = (samples.reshape(NUM_STEPS, num_ranks, -1, LENGTH)[:, rank] for samples in _samples())
    return _Loader(
        DatasetBatch({"input_ids": some_inputs}, {"target_ids": some_targets})
        for step in range(NUM_STEPS)
        for some_inputs, some_targets in zip(
            inputs[step].chunk(gradient_acc_steps), targets[step].chunk(gradient_acc_steps), strict=True
        )
    )


def _trainer(model: nn.Module, mesh: DeviceMesh | None, results: _Results, gradient_acc_steps: int) -> Trainer:
    broker = MessageBroker()
    broker.add_subscriber(MessageTypes.EVALUATION_RESULT, results)
    publisher: MessagePublisher[Any] = MessagePublisher(broker, 0, 0)
    tokens = NUM_SAMPLES // NUM_STEPS * LENGTH
    clipper = FSDPGradientClipper(model, GradientClippingMode.P2_NORM, 0.05)
    seen_and_target = (0, 0, NUM_STEPS, NUM_STEPS * tokens)
    return Trainer(0, publisher, publisher, gradient_acc_steps, tokens, mesh, *seen_and_target, clipper)


def _train(mesh: DeviceMesh | None, batches: _Loader, gradient_acc_steps: int) -> tuple[torch.Tensor, list[float]]:
    """(full weights, logged losses)."""
    model: Any = _Model()
    if mesh is not None:
        fully_shard(model, mesh=mesh["dp_shard"])
    results = _Results()
    trainer = _trainer(model, mesh, results, gradient_acc_steps)
    app_state = AppState(model, torch.optim.SGD(model.parameters(), lr=1.0))
    trainer.train(app_state, batches, LOSS, 1, lambda num_train_steps_done: None, lambda training_progress: None)  # type: ignore[arg-type]
    weight = model.embedding.weight
    return (weight.full_tensor() if mesh is not None else weight).detach(), results.losses


def _expected() -> tuple[torch.Tensor, list[float]]:
    """What plain torch makes of whole steps."""
    model = _Model()
    losses = []
    for inputs, targets in zip(*(samples.chunk(NUM_STEPS) for samples in _samples()), strict=True):
        logits = model({"input_ids": inputs})["logits"].flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        with torch.no_grad():
            model.embedding.weight -= model.embedding.weight.grad  # type: ignore[operator]
        model.zero_grad()
        losses.append(loss.item())
    return model.embedding.weight.detach(), losses


def _check_training(mesh: DeviceMesh) -> None:
    """B048, B051: ranks and micro batches change neither weights nor logged losses."""
    expected_weight, expected_losses = _expected()
    for gradient_acc_steps in (1, 4):
        batches = _batches(get_rank(), get_world_size(), gradient_acc_steps)
        weight, losses = _train(mesh, batches, gradient_acc_steps)
        assert (weight - expected_weight).abs().max() < 1e-6
        assert losses == pytest.approx(expected_losses, abs=1e-6)


def _check_ranks_that_see_the_same_samples() -> None:
    """As those of tensor parallelism do: each sample counts once in weights and logged losses."""
    mesh = init_device_mesh("cpu", (1, get_world_size()), mesh_dim_names=("dp_shard", "tp"))
    expected_weight, expected_losses = _expected()
    weight, losses = _train(mesh, _batches(0, 1, 2), 2)
    assert (weight - expected_weight).abs().max() < 1e-6
    assert losses == pytest.approx(expected_losses, abs=1e-6)


def _check_evaluation() -> None:
    """W19: the mean over all targets of all ranks, not that of the ranks' or batches' means."""
    publisher: MessagePublisher[Any] = MessagePublisher(MessageBroker(), 0, 0)
    batches: Any = _batches(get_rank(), get_world_size(), 4)
    result = Evaluator(publisher, publisher).evaluate(_Model(), [batches], LOSS, num_train_steps_done=1)["data"]
    inputs, targets = _samples()
    logits = _Model()({"input_ids": inputs})["logits"].flatten(0, 1)
    expected = nn.functional.cross_entropy(logits, targets.flatten())
    assert abs(result.losses[LOSS.tag].value.item() - expected.item()) < 1e-6


def _check_refusals(mesh: DeviceMesh) -> None:
    """B053: all ranks stop if one of them has a loss that is not finite; and none trains a model of its own."""
    batches = _batches(get_rank(), get_world_size(), 1)
    with pytest.raises(TrainingError, match="gradients are not exchanged"):
        _train(None, batches, 1)
    model: Any = fully_shard(_Model(), mesh=mesh)
    if get_rank() == 1:
        with torch.no_grad():
            model.embedding.weight.to_local().fill_(math.inf)
    trainer = _trainer(model, mesh, _Results(), 1)
    app_state = AppState(model, torch.optim.SGD(model.parameters(), lr=1.0))
    before = model.embedding.weight.to_local().clone()
    with pytest.raises(TrainingError, match=r"Step 1 is not finite: loss nan \(from rank 0, 1\)"):
        trainer.train(app_state, batches, LOSS, 1, lambda **_: None, lambda **_: None)  # type: ignore[arg-type]
    assert torch.equal(model.embedding.weight.to_local(), before)


if __name__ == "__main__":
    with DistributedEnv():
        device_mesh = init_device_mesh("cpu", (get_world_size(),), mesh_dim_names=("dp_shard",))
        _check_training(device_mesh)
        _check_ranks_that_see_the_same_samples()
        _check_evaluation()
        _check_refusals(device_mesh)
