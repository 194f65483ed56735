"""Fully sharded data parallelism (FSDP2)."""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from modalities_pipeline.config.component import only_part
from modalities_pipeline.distributed.configs import FSDP2MixedPrecisionSettings, PyTorchDtypes
from modalities_pipeline.distributed.mesh import get_data_parallel_mesh
from modalities_pipeline.exceptions import ConfigError

_DTYPES = {
    PyTorchDtypes.FP_16: torch.float16,
    PyTorchDtypes.FP_32: torch.float32,
    PyTorchDtypes.BF_16: torch.bfloat16,
}


def get_fsdp2_wrapped_model(
    model: nn.Module | list[nn.Module],
    block_names: list[str],
    mixed_precision_settings: FSDP2MixedPrecisionSettings,
    device_mesh: DeviceMesh,
    reshard_after_forward: bool = True,
    layers_per_fsdp_unit: int = 1,
) -> nn.Module:
    """Shard a model in place over the mesh and return it; a model on the meta device gets its weights afterwards.

    The last unit is not resharded after its forward pass, as the backward pass needs it at once.

    Raises:
        ConfigError: `block_names` names a class of which the model has no module, the mesh has no dimension dp_shard,
            or there are several models.
    """
    model = only_part(model, "fsdp2_wrapped")
    policy = MixedPrecisionPolicy(
        param_dtype=_DTYPES[mixed_precision_settings.param_dtype],
        reduce_dtype=_DTYPES[mixed_precision_settings.reduce_dtype],
    )
    mesh = get_data_parallel_mesh(device_mesh)
    blocks = _blocks(model, block_names)
    for start in range(0, len(blocks), layers_per_fsdp_unit):
        unit = blocks[start : start + layers_per_fsdp_unit]
        is_last = start + layers_per_fsdp_unit >= len(blocks)
        fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard_after_forward and not is_last)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard_after_forward)
    return model


def _blocks(model: nn.Module, block_names: list[str]) -> list[nn.Module]:
    """Modules of the named classes, in the model's order."""
    available = sorted({type(module).__name__ for module in model.modules()})
    unknown = [name for name in block_names if name not in available]
    if unknown:
        raise ConfigError(
            f"fsdp2_wrapped: block_names: the model has no {', '.join(unknown)}. It has: {', '.join(available)}."
        )
    return [module for module in model.modules() if type(module).__name__ in block_names]
