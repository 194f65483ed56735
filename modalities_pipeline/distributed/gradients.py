"""Gradients of a model that may be sharded: when ranks exchange them, and scaling them in place."""

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


def set_gradient_synchronisation(model: nn.Module, is_last_micro_batch: bool) -> None:
    """Let the ranks of a sharded model exchange gradients only in the last backward pass of a step."""
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
