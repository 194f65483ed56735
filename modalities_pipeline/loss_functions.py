"""Losses over the predictions of a batch."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch.nn import functional

from modalities_pipeline.batch import InferenceResultBatch

# Targets with this value (padding, masked prompts) do not count.
IGNORE_INDEX = -100


class Loss(ABC):
    """A loss with a tag, under which it is reported."""

    def __init__(self, tag: str) -> None:
        self._tag = tag

    @property
    def tag(self) -> str:
        """Name of the loss in reports."""
        return self._tag

    @abstractmethod
    def __call__(self, forward_batch: InferenceResultBatch, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The mean loss of a batch, a tensor without dimensions."""

    def sum_and_count(self, forward_batch: InferenceResultBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """The summed loss of a batch (float) and how many terms are in the sum (int64), tensors without dimensions.

        Sums and counts can be added over micro batches and ranks; sum over count is then the exact mean, whatever the
        sizes of the parts. A loss that does not say otherwise counts each batch as one term.
        """
        mean = self(forward_batch)
        return mean, torch.ones((), dtype=torch.int64, device=mean.device)


class CLMCrossEntropyLoss(Loss):
    """Cross entropy of next-token predictions in nats per token; targets are shifted by the collator already.

    Computed in float32 whatever the dtype of the logits. Targets of -100 do not count; a batch without any other target
    has loss 0.
    """

    def __init__(self, target_key: str, prediction_key: str, tag: str = "CLMCrossEntropyLoss") -> None:
        super().__init__(tag)
        self.target_key = target_key
        self.prediction_key = prediction_key

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Mean over the targets that count.

        Takes an `InferenceResultBatch` (positional or `forward_batch=`), or logits and targets (positional, or
        `outputs=` and `targets=`), as pipeline schedules pass them.
        """
        loss_sum, count = _cross_entropy_sum(*self._outputs_and_targets(*args, **kwargs))
        return loss_sum / count.clamp(min=1)

    def sum_and_count(self, forward_batch: InferenceResultBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Summed loss of the targets that count (float32), and their number."""
        return _cross_entropy_sum(*self._outputs_and_targets(forward_batch))

    def _outputs_and_targets(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        given = [*args, *kwargs.values()]
        if len(given) == 1 and set(kwargs) <= {"forward_batch"} and isinstance(given[0], InferenceResultBatch):
            return given[0].get_predictions(self.prediction_key), given[0].get_targets(self.target_key)
        if len(given) == 2 and tuple(kwargs) in ((), ("targets",)):
            return given[0], given[1]
        if not args and kwargs.keys() == {"outputs", "targets"}:
            return kwargs["outputs"], kwargs["targets"]
        raise TypeError(
            "CLMCrossEntropyLoss takes an InferenceResultBatch, or outputs and targets; it got "
            f"{len(args)} positional arguments and {sorted(kwargs)}."
        )


def _cross_entropy_sum(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = outputs.reshape(-1, outputs.shape[-1]).float()
    labels = targets.reshape(-1).to(device=logits.device, dtype=torch.int64)
    loss_sum = functional.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="sum")
    return loss_sum, (labels != IGNORE_INDEX).sum()


def nce_loss(
    embedding1: torch.Tensor,
    embedding2: torch.Tensor,
    device: torch.device,
    is_asymmetric: bool,
    temperature: float,
) -> torch.Tensor:
    """Noise contrastive estimation between two sets of embeddings of shape (batch, [1,] width).

    Rows of the same number belong together. With scores S = E1 E2^T / temperature: the mean of logsumexp_j S_ij - S_ii,
    and if not `is_asymmetric` plus the same along the columns.
    """
    scores = embedding1.flatten(1).float() @ embedding2.flatten(1).float().T / temperature
    labels = torch.arange(scores.shape[0], device=device)
    scores = scores.to(device)
    loss = functional.cross_entropy(scores, labels)
    return loss if is_asymmetric else loss + functional.cross_entropy(scores.T, labels)


class NCELoss(Loss):
    """`nce_loss` between two predictions of a batch."""

    def __init__(
        self,
        prediction_key1: str,
        prediction_key2: str,
        is_asymmetric: bool = True,
        temperature: float = 1.0,
        tag: str = "NCELoss",
    ) -> None:
        super().__init__(tag)
        self.prediction_key1 = prediction_key1
        self.prediction_key2 = prediction_key2
        self.is_asymmetric = is_asymmetric
        self.temperature = temperature

    def __call__(self, forward_batch: InferenceResultBatch, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The mean loss over the rows of the batch."""
        embedding1 = forward_batch.get_predictions(self.prediction_key1)
        embedding2 = forward_batch.get_predictions(self.prediction_key2)
        return nce_loss(embedding1, embedding2, embedding1.device, self.is_asymmetric, self.temperature)
