"""Batches move and detach in place, and their results print as people read them."""

import pytest
import torch

from modalities_pipeline.batch import DatasetBatch, EvaluationResultBatch, InferenceResultBatch, ResultItem
from modalities_pipeline.exceptions import BatchStateError


def test_dataset_batch_moves_all_tensors_in_place():
    batch = DatasetBatch({"x": torch.zeros(3, 2)}, {"y": torch.zeros(3)})
    assert batch.to(torch.device("meta")) is None
    assert batch.device.type == batch.targets["y"].device.type == "meta"
    assert len(batch) == 3


def test_length_counts_along_the_batch_dimension():
    assert len(DatasetBatch({"x": torch.zeros(3, 2)}, {}, batch_dim=1)) == 2
    assert len(InferenceResultBatch({"y": torch.zeros(1)}, {"x": torch.zeros(3, 4)}, batch_dim=1)) == 4


@pytest.mark.parametrize("kind", [DatasetBatch, InferenceResultBatch])
def test_detached_tensors_have_no_graph(kind):
    tensor = torch.ones(2, requires_grad=True) * 2
    batch = kind({"a": tensor}, {"b": tensor})
    batch.detach()
    tensors = [*batch.targets.values(), *(batch.samples if kind is DatasetBatch else batch.predictions).values()]
    assert len(tensors) == 2
    assert not any(item.requires_grad for item in tensors)


def test_a_result_whose_predictions_have_no_samples_has_the_length_of_its_targets():
    result = InferenceResultBatch(targets={"t": torch.zeros(3, 2)}, predictions={"loss": torch.zeros(())})
    assert len(result) == 3


def test_inference_result_names_the_key_that_is_missing():
    batch = InferenceResultBatch(targets={"y": torch.zeros(1)}, predictions={"logits": torch.zeros(1)})
    batch.to_cpu()
    assert batch.device.type == "cpu"
    assert batch.get_targets("y") is batch.targets["y"]
    assert batch.get_predictions("logits") is batch.predictions["logits"]
    with pytest.raises(BatchStateError, match=r"Key loss not present in predictions! There are: logits."):
        batch.get_predictions("loss")
    with pytest.raises(BatchStateError, match="Key z not present in targets!"):
        batch.get_targets("z")


def test_result_prints_tag_step_and_rounded_numbers():
    """The tag is in the text: a validation loss cannot be taken for a training loss."""
    result = EvaluationResultBatch(
        dataloader_tag="val",
        num_train_steps_done=7,
        losses={"loss": ResultItem(torch.tensor(1.2345), 2)},
        metrics={"tokens": ResultItem(torch.tensor(512), 0)},
        throughput_metrics={"lr": ResultItem(torch.tensor(0.25))},
    )
    assert str(result) == "val | step: 7 | lr: 0.25 | loss: 1.23 | tokens: 512.0"


def test_a_batch_pins_its_memory_for_the_data_loader(monkeypatch):
    """torch's data loader pins only batches that have the method."""
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor + 1)
    batch = DatasetBatch(samples={"a": torch.tensor([1])}, targets={"b": torch.tensor([2])})
    assert batch.pin_memory() is batch
    assert len(pinned) == 2
    assert (batch.samples["a"].item(), batch.targets["b"].item()) == (2, 3)
