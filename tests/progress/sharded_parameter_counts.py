"""Counts the parameters of sharded models; run on several processes."""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from modalities_pipeline.distributed.env import DistributedEnv, get_rank, get_world_size
from modalities_pipeline.progress.mfu import GPT2MFUCalculator
from modalities_pipeline.util import (
    get_local_number_of_trainable_parameters,
    get_total_number_of_trainable_parameters,
)

SHAPE = {"n_layer": 1, "sequence_length": 1, "n_embd": 1}


def _model() -> nn.Sequential:
    """55 parameters, of which 53 are trained; 2 ranks cannot share the first layer's 33 evenly."""
    model = nn.Sequential(nn.Linear(3, 11, bias=False), nn.Sequential(nn.Linear(3, 5)), nn.Linear(2, 1, bias=False))
    model[2].requires_grad_(False)
    return model


def main() -> None:
    with DistributedEnv():
        trained, size = 33 + 15 + 5, get_world_size()
        assert get_total_number_of_trainable_parameters(_model(), None) == trained
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("dp_shard",))
        fsdp2 = _model()
        for layer in fsdp2:
            fully_shard(layer, mesh=mesh)
        models = [fully_shard(fsdp2, mesh=mesh)]
        for use_orig_params in (True, False):
            policy = ModuleWrapPolicy({nn.Linear})
            model = FullyShardedDataParallel(
                _model(), auto_wrap_policy=policy, use_orig_params=use_orig_params, device_id=torch.device("cpu")
            )
            models.append(model)
        for model in models:
            assert get_total_number_of_trainable_parameters(model, mesh) == trained, model
            assert get_local_number_of_trainable_parameters(model) < trained, model
            calculator = GPT2MFUCalculator(**SHAPE, world_size=size, model_parts=model, device_mesh=mesh)
            assert calculator._flops_per_sample == 6 * trained + 12
        pipeline = init_device_mesh("cpu", (size,), mesh_dim_names=("pp",))
        part = nn.Linear(3 + get_rank(), 1, bias=False)  # 3 parameters on the first rank, 4 on the second
        assert get_total_number_of_trainable_parameters([part], pipeline) == 7


if __name__ == "__main__":
    main()
