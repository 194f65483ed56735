"""What all models have in common: prediction of a batch, and seeds of their first weights."""

import pytest
import torch
from torch import nn

from modalities_pipeline.batch import DatasetBatch
from modalities_pipeline.distributed.configs import MixedPrecisionSettings, ShardingStrategy
from modalities_pipeline.distributed.fsdp1 import get_fsdp1_wrapped_model
from modalities_pipeline.exceptions import BatchStateError
from modalities_pipeline.models.model import NNModel, model_predict_batch, seeded_construction


class _Echo(NNModel):
    """Gives back the names of its inputs; `target_key` is that of its own loss."""

    def __init__(self, target_key: str | None) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self._target_key = target_key

    @property
    def fused_loss_target_key(self) -> str | None:
        return self._target_key

    def forward(self, inputs):
        return {key: value * self.scale for key, value in inputs.items()}


def _batch() -> DatasetBatch:
    return DatasetBatch(samples={"x": torch.ones(2, 3)}, targets={"y": torch.zeros(2, 3)})


def test_targets_are_handed_on_and_not_shown_to_the_model():
    batch = _batch()
    result = model_predict_batch(_Echo(None), batch)
    assert set(result.predictions) == {"x"}
    assert result.targets is batch.targets


@pytest.mark.parametrize("wrapper", ["none", "compile", "fsdp1"])
def test_a_model_that_computes_its_loss_gets_its_targets(wrapper, process_group):
    """Also if the model is inside of a wrapper, and without a change of the batch."""
    model: nn.Module = _Echo("y")
    if wrapper == "compile":
        model = torch.compile(model, backend="eager")
    if wrapper == "fsdp1":
        kinds = MixedPrecisionSettings.NO_MIXED_PRECISION, ShardingStrategy.NO_SHARD
        model = get_fsdp1_wrapped_model(model, False, *kinds, [])
    batch = _batch()
    assert set(model_predict_batch(model, batch).predictions) == {"x", "y"}
    assert set(batch.samples) == {"x"}


def test_missing_targets_of_the_models_loss_are_named():
    with pytest.raises(BatchStateError, match=r"from targets 'z' \(fused_loss\), but the batch has y"):
        model_predict_batch(_Echo("z"), _batch())


def test_modules_that_are_no_models_of_ours_can_predict():
    batch = _batch()
    assert model_predict_batch(nn.Identity(), batch).predictions is batch.samples


def test_weights_are_decided_by_the_seed_alone():
    """W32: whatever the global generator has done, which then goes on as if nothing had been."""
    weights = []
    for global_seed, seed in ((1, 7), (2, 7), (2, 8), (3, None), (4, 0)):
        torch.manual_seed(global_seed)
        expected = torch.rand(3)
        torch.manual_seed(global_seed)
        with seeded_construction(seed):
            weights.append(nn.Linear(3, 3).weight)
        assert torch.equal(torch.rand(3), expected)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    assert torch.equal(weights[3], weights[4])  # no seed is 0


def test_shapes_without_memory_can_be_built_from_a_seed():
    with torch.device("meta"), seeded_construction(1):
        assert nn.Linear(3, 3).weight.is_meta
