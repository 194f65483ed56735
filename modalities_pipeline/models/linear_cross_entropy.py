"""The head of a language model and its cross entropy in one, without the logits of a whole batch in memory."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from modalities_pipeline.loss_functions import IGNORE_INDEX


class LinearCrossEntropy(nn.Linear):
    """A head without bias, which for given targets computes the loss instead of the logits.

    Logits of `num_tokens_per_chunk` tokens at a time become their loss and their part of the gradients at once, so that
    no more logits than those are ever in memory. Parameters are those of `nn.Linear`.
    """

    def __init__(self, in_features: int, out_features: int, num_tokens_per_chunk: int) -> None:
        super().__init__(in_features, out_features, bias=False)
        self.num_tokens_per_chunk = num_tokens_per_chunk

    def forward(self, hidden: torch.Tensor, targets: torch.Tensor | None = None) -> Any:
        """Logits (..., out_features) of hidden states (..., in_features); with targets (...) `linear_cross_entropy`.

        Both go through here, as hooks of the module (as of sharding) have to run first.
        """
        if targets is None:
            return functional.linear(hidden, self.weight)
        return linear_cross_entropy(hidden, self.weight, targets, self.num_tokens_per_chunk)


def linear_cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, num_tokens_per_chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed cross entropy of the logits `hidden @ weight.T`, and the number of targets that count.

    Logits are computed in the dtype of the inputs (or of autocast), all that follows in float32.

    Args:
        hidden: (..., width), floating.
        weight: (vocabulary, width), in the dtype of `hidden`.
        targets: (...), integers; those of -100 do not count.
        num_tokens_per_chunk: so many rows of logits are in memory at a time.

    Returns:
        Tensors without dimensions: the sum in nats (float32), differentiable once, and the count (int64).
    """
    device_type = hidden.device.type
    if torch.is_autocast_enabled(device_type):
        dtype = torch.get_autocast_dtype(device_type)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
    labels = targets.reshape(-1).to(device=hidden.device, dtype=torch.int64)
    needs_gradients = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    rows = hidden.reshape(-1, hidden.shape[-1])
    with torch.autocast(device_type, enabled=False):
        loss_sum: torch.Tensor = _LinearCrossEntropy.apply(rows, weight, labels, num_tokens_per_chunk, needs_gradients)
    return loss_sum, (labels != IGNORE_INDEX).sum()


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradients are made in the forward pass, where the logits are, for a sum whose own gradient is one."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        labels: torch.Tensor,
        num_tokens_per_chunk: int,
        needs_gradients: bool,
    ) -> torch.Tensor:
        loss_sum = torch.zeros((), dtype=torch.float32, device=hidden.device)
        hidden_gradient = torch.empty_like(hidden) if needs_gradients else None
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if needs_gradients else None
        for start in range(0, hidden.shape[0], num_tokens_per_chunk):
            chunk = slice(start, start + num_tokens_per_chunk)
            logits = (hidden[chunk] @ weight.T).float()
            loss_sum += _summed_loss_(logits, labels[chunk], makes_gradient=needs_gradients)
            if hidden_gradient is not None and weight_gradient is not None:
                gradient = logits.to(hidden.dtype)
                torch.mm(gradient, weight, out=hidden_gradient[chunk])
                _add_product_(weight_gradient, gradient.T, hidden[chunk])
                del gradient
            del logits  # before the next ones are made
        if hidden_gradient is not None and weight_gradient is not None:
            ctx.save_for_backward(hidden_gradient, weight_gradient)
        ctx.weight_dtype = weight.dtype
        return loss_sum

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, loss_gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        weight_gradient = (weight_gradient * loss_gradient).to(ctx.weight_dtype)
        return hidden_gradient * loss_gradient, weight_gradient, None, None, None


def _summed_loss_(logits: torch.Tensor, labels: torch.Tensor, makes_gradient: bool) -> torch.Tensor:
    """Summed cross entropy of float32 logits of shape (rows, vocabulary), which are overwritten.

    With `makes_gradient` by the gradient: `softmax(logits) - one_hot(labels)`, 0 in rows that do not count.
    """
    counts = (labels != IGNORE_INDEX).unsqueeze(1)
    indices = labels.unsqueeze(1).masked_fill(~counts, 0)
    logits -= logits.amax(dim=1, keepdim=True)
    chosen = logits.gather(1, indices)
    normaliser = logits.exp_().sum(dim=1, keepdim=True)
    if makes_gradient:
        logits.mul_(counts / normaliser).scatter_add_(1, indices, -counts.float())
    return (normaliser.log() - chosen).masked_fill(~counts, 0.0).sum()


def _add_product_(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """`total += left @ right`, where the total is float32 and the factors may be narrower."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
