"""Parameters without memory and parameters that are shards: what it takes to set their values."""

import itertools

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from modalities_pipeline.exceptions import ModelStateError

# What wrappers put into parameter names: torch.compile, activation checkpointing, FSDP1.
_WRAPPER_PREFIXES = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


def normalized_name(name: str) -> str:
    """A parameter's name without what torch.compile, activation checkpointing and FSDP1 put into it."""
    for prefix in _WRAPPER_PREFIXES:
        name = name.replace(prefix, "")
    return name


def materialize(model: nn.Module) -> bool:
    """Give a model on the meta device uninitialised memory, on its mesh's device or else torch's default device.

    A model that has memory is left as it is, and parameters that share memory go on to do so.

    Returns:
        Whether the model was on the meta device.

    Raises:
        ModelStateError: only some of the parameters and buffers are on the meta device.
    """
    tensors = list(itertools.chain(model.parameters(), model.buffers()))
    on_meta = [tensor.is_meta for tensor in tensors]
    if not any(on_meta):
        return False
    if not all(on_meta):
        raise ModelStateError(
            f"{sum(on_meta)} of {len(on_meta)} parameters and buffers of the model are on the meta device. Build the "
            "whole model there, or none of it."
        )
    ties = _ties(model)
    meshes = [tensor.device_mesh for tensor in tensors if isinstance(tensor, DTensor)]
    model.to_empty(device=meshes[0].device_type if meshes else torch.get_default_device())
    for first, *others in ties:
        parameter = getattr(*first)
        for module, name in others:
            setattr(module, name, parameter)
    return True


def copy_full_tensor(target: torch.Tensor, full: torch.Tensor) -> None:
    """Fill a tensor, or this rank's shard of a distributed one, from `full`; nothing is communicated."""
    if isinstance(target, DTensor):
        full = full.to(device=target.device_mesh.device_type, dtype=target.dtype)
        target.copy_(distribute_tensor(full, target.device_mesh, target.placements, src_data_rank=None))
    else:
        target.copy_(full)


def _ties(model: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """The places (module, name) of each parameter that has several; `to_empty` gives each place its own memory."""
    places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            places.setdefault(parameter, []).append((module, name))
    return [shared for shared in places.values() if len(shared) > 1]
