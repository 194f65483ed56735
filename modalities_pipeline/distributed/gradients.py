"""Gradients of a model that may be sharded: when ranks exchange them, and scaling them in place."""

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

_DATA_PARALLEL = (FSDPModule, FullyShardedDataParallel, DistributedDataParallel)


def exchanges_gradients(model: nn.Module) -> bool:
    """Whether the data parallel ranks of a model add up their gradients: it, or the model in it, is sharded or DDP."""
    return any(isinstance(module, _DATA_PARALLEL) for module in model.modules())


def set_gradient_synchronisation(model: nn.Module, is_last_micro_batch: bool) -> None:
    """Let the ranks of a sharded model exchange gradients only in the last backward pass of a step.

    Those of an FSDP1 model exchange them in each, with the same sum: to keep them all would take the memory of a whole
    model on every rank.
    """
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(is_last_micro_batch)
        model.set_is_last_backward(is_last_micro_batch)


@torch.no_grad()
def scale_gradients_(model: nn.Module, factor: torch.Tensor) -> None:
    """Multiply all gradients by a number that is the same on every rank, a tensor without dimensions."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    local = [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients]
    for gradient in local:
        gradient.mul_(factor.to(gradient.dtype))
