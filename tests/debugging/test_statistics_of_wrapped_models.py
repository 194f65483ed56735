"""Statistics of the tensors of models that are sharded, recomputed or split."""

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from modalities_pipeline.distributed.activation_checkpointing import get_activation_checkpointed_model
from modalities_pipeline.distributed.mesh import get_device_mesh
from modalities_pipeline.distributed.wrapping_configs import (
    ActivationCheckpointingVariants,
    FullACParams,
    SaveableOps,
    SelectiveOpACParams,
)
from modalities_pipeline.models.gpt2 import build_gpt2


def _run(model, x):
    model(x).sum().backward()


def test_each_part_of_a_model_writes(enrich, read):
    parts = [nn.Sequential(nn.Identity()), nn.ModuleDict({"b": nn.Identity()})]
    assert enrich(parts) == parts
    parts[0](torch.ones(1))
    parts[1]["b"](torch.ones(1))
    assert [line["tensor_tag"] for line in read()] == ["0", "0", "b", "b"]


def test_shapes_may_be_tried_out_on_the_meta_device(enrich, read):
    enrich(nn.Sequential(nn.Linear(2, 2, device="meta")))(torch.ones(1, 2, device="meta"))
    assert read() == []


def test_a_distributed_tensor_shows_this_rank_s_part(enrich, read, process_group):
    mesh = get_device_mesh(1, 1)
    enrich(nn.Sequential(nn.Identity()))(distribute_tensor(torch.ones(4, 2), mesh["dp_shard"], [Shard(0)]))
    line = read()[0]
    assert (line["is_dtensor"], line["global_shape"], line["local_shape"], line["max"]) == (True, [4, 2], [4, 2], 1.0)


def test_fsdp2_models_are_watched(enrich, read, process_group):
    mesh = get_device_mesh(1, 1)["dp_shard"]
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    for module in (*model, model):
        fully_shard(module, mesh=mesh)
    _run(enrich(model), torch.ones(1, 2))
    tags = [line["tensor_tag"] for line in read() if line["hook_type"] == "forward_weights"]
    assert tags == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert all(isinstance(parameter.grad, DTensor) for parameter in model.parameters())


FULL = ActivationCheckpointingVariants.FULL_ACTIVATION_CHECKPOINTING, FullACParams()
SELECTIVE = (
    ActivationCheckpointingVariants.SELECTIVE_OP_ACTIVATION_CHECKPOINTING,
    SelectiveOpACParams(save_ops_keys=list(SaveableOps)),
)


@pytest.mark.parametrize("how", [FULL, SELECTIVE], ids=["full", "selective"])
def test_recomputed_layers_are_written_once_under_their_plain_names(how, make_gpt2_config, enrich, read):
    model = build_gpt2(**make_gpt2_config(n_layer=1))
    variant, params = how
    get_activation_checkpointed_model(variant, "transformer.h", model, params)
    tokens = torch.arange(8).reshape(1, 8)
    _run(model, tokens)
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    _run(enrich(model), tokens)
    assert all(torch.equal(parameter.grad, grad) for parameter, grad in zip(model.parameters(), expected, strict=True))
    outputs = [line["tensor_tag"] for line in read() if line["hook_type"] == "forward_output"]
    assert len(set(outputs)) == len(outputs)
    assert "transformer.h.0" in outputs
    assert "transformer.h.0.attn.q_attn" in outputs


def test_recorders_of_operations_do_not_see_those_of_the_statistics(enrich):
    """Selective checkpointing gives the n-th saved output of an operation to the n-th such one when it recomputes."""

    class Recorder(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    recorders = []
    for model in (nn.Sequential(nn.Linear(2, 2)), enrich(nn.Sequential(nn.Linear(2, 2)))):
        with Recorder() as recorder:
            _run(model, torch.ones(1, 2))
        recorders.append(recorder.names)
    assert recorders[0] == recorders[1]
