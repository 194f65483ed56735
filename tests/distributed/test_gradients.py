"""Gradients: whether ranks add them up, and their scaling in place."""

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from modalities_pipeline.distributed.configs import MixedPrecisionSettings, ShardingStrategy
from modalities_pipeline.distributed.fsdp1 import get_fsdp1_wrapped_model
from modalities_pipeline.distributed.gradients import exchanges_gradients, scale_gradients_
from modalities_pipeline.distributed.mesh import get_device_mesh


def _fsdp1(model: nn.Module) -> nn.Module:
    return get_fsdp1_wrapped_model(
        model, False, MixedPrecisionSettings.NO_MIXED_PRECISION, ShardingStrategy.FULL_SHARD, []
    )


@pytest.mark.filterwarnings("ignore:.*NO_SHARD")
@pytest.mark.parametrize(
    "wrap", [_fsdp1, DistributedDataParallel, lambda model: fully_shard(model, mesh=get_device_mesh(1, 1))]
)
def test_sharded_models_exchange_gradients_and_plain_ones_do_not(wrap, process_group):
    assert not exchanges_gradients(nn.Sequential(nn.Linear(2, 2)))
    wrapped = wrap(nn.Linear(2, 2))
    assert exchanges_gradients(wrapped)
    assert exchanges_gradients(nn.Sequential(wrapped))


def test_gradients_are_scaled_in_their_own_dtype():
    model = nn.Linear(2, 2).to(torch.bfloat16)
    model.weight.grad = torch.full((2, 2), 3.0, dtype=torch.bfloat16)
    scale_gradients_(model, torch.tensor(0.5, dtype=torch.float64))
    assert torch.equal(model.weight.grad, torch.full((2, 2), 1.5, dtype=torch.bfloat16))
    assert model.bias.grad is None
