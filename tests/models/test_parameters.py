"""Names without wrappers, memory after the meta device, and filling of shards."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from modalities_pipeline.models.parameters import copy_full_tensor, materialize, normalized_name


@pytest.mark.parametrize(
    "name",
    [
        "h.0._checkpoint_wrapped_module._orig_mod.attn.weight",
        "_fsdp_wrapped_module.h.0._fsdp_wrapped_module._checkpoint_wrapped_module.attn.weight",
        "_orig_mod._orig_mod.h.0.attn.weight",
        "h.0.attn.weight",
    ],
)
def test_names_are_those_of_the_plain_model(name):
    """W1: whatever wraps a module, and in whatever order."""
    assert normalized_name(name) == "h.0.attn.weight"


def test_a_model_with_memory_keeps_its_values():
    model = nn.Linear(2, 2)
    before = model.weight.detach().clone()
    assert materialize(model) is False
    assert torch.equal(model.weight, before)


def test_a_model_without_memory_gets_some_and_ties_are_kept():
    """B063: torch gives each place of a shared parameter memory of its own."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    assert materialize(model) is True
    assert not model[0].weight.is_meta
    assert model[1].weight is model[0].weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tensor_and_a_distributed_one_are_filled_alike(dtype, process_group):
    full, mesh = torch.randn(3, 4), init_device_mesh("cpu", (1,))
    plain, sharded = torch.empty(3, 4, dtype=dtype), distribute_tensor(torch.zeros(3, 4, dtype=dtype), mesh, [Shard(0)])
    for target in (plain, sharded):
        copy_full_tensor(target, full)
    assert torch.equal(plain, full.to(dtype))
    assert torch.equal(sharded.full_tensor(), plain)
