"""Evaluation weighs every target alike and leaves the model as it found it."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from modalities_pipeline.batch import DatasetBatch
from modalities_pipeline.evaluator import Evaluator
from modalities_pipeline.exceptions import TrainingError
from modalities_pipeline.loss_functions import CLMCrossEntropyLoss
from modalities_pipeline.reporting.broker import MessageBroker, MessagePublisher

LOSS = CLMCrossEntropyLoss(target_key="y", prediction_key="logits")


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 8)
        self.dropout = nn.Dropout(0.5)
        self.modes: list[bool] = []

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self.modes.append(self.training)
        return {"logits": self.dropout(self.embedding(inputs["x"]))}


class _Loader(list):
    dataloader_tag = "val"


@pytest.fixture
def evaluator() -> Evaluator:
    publisher: MessagePublisher = MessagePublisher(MessageBroker(), 0, 0)
    return Evaluator(publisher, publisher)


def _batch(targets: list[list[int]]) -> DatasetBatch:
    return DatasetBatch({"x": torch.arange(len(targets[0])).repeat(len(targets), 1)}, {"y": torch.tensor(targets)})


def test_loss_is_the_mean_over_targets_not_over_batches(evaluator):
    """B055, W19: a batch with few targets does not count as much as one with many."""
    model = _Model()
    batches = _Loader([_batch([[1, 2, 3], [4, 5, 6]]), _batch([[7, -100, -100]])])
    result = evaluator.evaluate(model, [batches], LOSS, num_train_steps_done=5)["val"]
    logits = model.embedding.weight[torch.tensor([0, 1, 2, 0, 1, 2, 0])]
    expected = nn.functional.cross_entropy(logits, torch.tensor([1, 2, 3, 4, 5, 6, 7]))
    assert result.losses[LOSS.tag].value.item() == pytest.approx(expected.item(), abs=1e-6)
    assert result.num_train_steps_done == 5
    assert result.throughput_metrics["evaluation_num_samples_per_second"].value > 0
    assert evaluator.evaluate_batch(batches[0], model.eval(), LOSS).item() == pytest.approx(
        nn.functional.cross_entropy(logits[:6], torch.tensor([1, 2, 3, 4, 5, 6])).item(), abs=1e-6
    )


def test_data_without_any_target_are_an_error_not_nan(evaluator):
    """W19"""
    masked = _batch([[-100, -100]])
    assert evaluator.evaluate_batch(masked, _Model(), LOSS) == 0
    with pytest.raises(TrainingError, match="'val' has no target that counts"):
        evaluator.evaluate(_Model(), [_Loader([masked])], LOSS, 1)


@pytest.mark.parametrize("was_training", [True, False])
def test_mode_of_the_model_is_restored(evaluator, was_training):
    """B056"""
    model = _Model().train(was_training)
    evaluator.evaluate(model, [_Loader([_batch([[1]])])], LOSS, 1)
    assert model.modes == [False]
    assert model.training is was_training


def test_mode_of_the_model_is_restored_if_evaluating_fails(evaluator):
    """B056"""
    model = _Model()
    with pytest.raises(IndexError):
        evaluator.evaluate(model, [_Loader([_batch([[1] * 9])])], LOSS, 1)
    assert model.training


def test_an_empty_loader_is_an_error_not_nan(evaluator):
    with pytest.raises(TrainingError, match="'val' has no batch"):
        evaluator.evaluate(_Model(), [_Loader()], LOSS, 1)


def test_a_model_may_come_as_a_list_of_one_and_not_of_several_parts(evaluator):
    model = _Model()
    results = evaluator.evaluate([model], [_Loader([_batch([[1]])])], LOSS, 1)
    assert list(results) == ["val"]
    for models, pipeline in (([model, model], None), ([model], object())):
        with pytest.raises(TrainingError, match="pipeline parallelism is not supported"):
            evaluator.evaluate(models, [], LOSS, 1, scheduled_pipeline=pipeline)


def test_a_sample_counts_once_however_many_ranks_see_it(monkeypatch, publisher, process_group):
    """Tensor parallel ranks see the same samples: of two ranks, one by one, they are half of all that is added up."""
    monkeypatch.setattr("modalities_pipeline.evaluator.get_world_size", lambda: 2)
    monkeypatch.setattr("modalities_pipeline.evaluator.dist.all_reduce", lambda totals: totals.mul_(2))
    clock = iter([0.0, 4.0])
    monkeypatch.setattr("modalities_pipeline.evaluator.time.perf_counter", lambda: next(clock))
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp_shard", "tp"))
    batches = _Loader([_batch([[1], [2], [3]]), _batch([[1]])])
    result = Evaluator(publisher, publisher, mesh).evaluate(_Model(), [batches], LOSS, 1)["val"]
    assert result.throughput_metrics["evaluation_num_samples_per_second"].value.item() == 1.0
