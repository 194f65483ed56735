"""Fully sharded data parallelism (FSDP2)."""

from enum import StrEnum
from typing import Annotated

import torch
from pydantic import Field, field_validator
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.distributed.mesh import get_data_parallel_mesh
from modalities_pipeline.exceptions import ConfigError


class PyTorchDtypes(StrEnum):
    """Floating point types, by the names that configs use."""

    FP_16 = "FP_16"
    FP_32 = "FP_32"
    BF_16 = "BF_16"

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype."""
        return {"FP_16": torch.float16, "FP_32": torch.float32, "BF_16": torch.bfloat16}[self.value]


class FSDP2MixedPrecisionSettings(ComponentConfig):
    """In what a block computes (its gathered parameters), and in what gradients are reduced over the ranks."""

    param_dtype: PyTorchDtypes
    reduce_dtype: PyTorchDtypes


class FSDP2WrappedModelConfig(ComponentConfig):
    """Fields of `fsdp2_wrapped`.

    `block_names` are class names of the modules that become units of sharding, `layers_per_fsdp_unit` at a time. With
    `reshard_after_forward` a unit's parameters are gathered again for the backward pass: less memory, more traffic.
    """

    model: nn.Module
    block_names: list[str]
    mixed_precision_settings: FSDP2MixedPrecisionSettings
    reshard_after_forward: bool = True
    device_mesh: DeviceMesh
    layers_per_fsdp_unit: Annotated[int, Field(ge=1)] = 1

    @field_validator("device_mesh")
    @classmethod
    def _check_mesh(cls, device_mesh: DeviceMesh) -> DeviceMesh:
        get_data_parallel_mesh(device_mesh)
        return device_mesh


def get_fsdp2_wrapped_model(
    model: nn.Module,
    block_names: list[str],
    mixed_precision_settings: FSDP2MixedPrecisionSettings,
    device_mesh: DeviceMesh,
    reshard_after_forward: bool = True,
    layers_per_fsdp_unit: int = 1,
) -> nn.Module:
    """Shard a model in place over the mesh and return it; a model on the meta device gets its weights afterwards.

    The last unit is not resharded after its forward pass, as the backward pass needs it at once.

    Raises:
        ConfigError: `block_names` names a class of which the model has no module.
    """
    policy = MixedPrecisionPolicy(
        param_dtype=mixed_precision_settings.param_dtype.dtype,
        reduce_dtype=mixed_precision_settings.reduce_dtype.dtype,
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
