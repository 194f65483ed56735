"""Fully sharded data parallelism (FSDP2)."""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from modalities_pipeline.config.model_parts import for_each_part
from modalities_pipeline.distributed.blocks import find_blocks
from modalities_pipeline.distributed.configs import FSDP2MixedPrecisionSettings, PyTorchDtypes
from modalities_pipeline.distributed.mesh import get_data_parallel_mesh

_DTYPES = {
    PyTorchDtypes.FP_16: torch.float16,
    PyTorchDtypes.FP_32: torch.float32,
    PyTorchDtypes.BF_16: torch.bfloat16,
}


@for_each_part("model")
def get_fsdp2_wrapped_model(
    model: nn.Module,
    block_names: list[str],
    mixed_precision_settings: FSDP2MixedPrecisionSettings,
    device_mesh: DeviceMesh,
    reshard_after_forward: bool = True,
    layers_per_fsdp_unit: int = 1,
) -> nn.Module:
    """Shard a model in place over the mesh and return it; a model on the meta device gets its weights afterwards.

    The units are the model's blocks, with their activation checkpointing and compilation if they have such, and the
    rest. The last unit of blocks is not resharded after its forward pass, as the backward pass needs it at once.

    Args:
        model: one model, or a list of the parts of one.
        block_names: class names of the modules that become units, `layers_per_fsdp_unit` of them one unit.
        reshard_after_forward: gather parameters again for the backward pass: less memory, more communication.

    Raises:
        ConfigError: the model has no module of a named class, or the mesh has no dimension dp_shard.
    """
    policy = MixedPrecisionPolicy(
        param_dtype=_DTYPES[mixed_precision_settings.param_dtype],
        reduce_dtype=_DTYPES[mixed_precision_settings.reduce_dtype],
    )
    mesh = get_data_parallel_mesh(device_mesh)
    # A module that is used in several places is sharded once.
    blocks = list(dict.fromkeys(find_blocks(model, block_names, "fsdp2_wrapped: block_names").values()))
    last = (len(blocks) - 1) // layers_per_fsdp_unit
    for index in reversed(range(last + 1)):  # blocks within blocks first, as torch demands
        unit = blocks[index * layers_per_fsdp_unit : (index + 1) * layers_per_fsdp_unit]
        reshards = reshard_after_forward and index != last
        fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=reshards)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard_after_forward)
    return model
