"""Losses over the predictions of a batch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from modalities_pipeline.batch import InferenceResultBatch
from modalities_pipeline.exceptions import ConfigError

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

        Sums and counts are added over micro batches and ranks; sum over count is then the exact mean, whatever the
        sizes of the parts. A loss that does not say otherwise counts each batch as one term.
        """
        mean = self(forward_batch)
        return mean, torch.ones((), dtype=torch.int64, device=mean.device)


class CLMCrossEntropyLoss(Loss):
    """Cross entropy of next-token predictions in nats per token; targets are shifted by the collator already.

    Targets of -100 do not count; a batch without any other target has loss 0. A model with a fused loss gives
    `<prediction_key>_loss_sum` and `<prediction_key>_loss_count` instead of logits; the value is the same.

    Args:
        computes_in_fp32: compute in float32 whatever the dtype of the logits; otherwise in theirs, as Modalities does.
    """

    def __init__(
        self, target_key: str, prediction_key: str, tag: str = "CLMCrossEntropyLoss", computes_in_fp32: bool = True
    ) -> None:
        super().__init__(tag)
        self.target_key = target_key
        self.prediction_key = prediction_key
        self.computes_in_fp32 = computes_in_fp32

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Mean over the targets that count.

        Takes an `InferenceResultBatch` (positional or `forward_batch=`), or logits and targets (positional, or
        `outputs=` and `targets=`), as pipeline schedules pass them.
        """
        given = [*args, *kwargs.values()]
        if len(given) == 1 and set(kwargs) <= {"forward_batch"} and isinstance(given[0], InferenceResultBatch):
            outputs = given[0].predictions.get(self.prediction_key)
            loss_sum, count = self.sum_and_count(given[0])
        elif len(given) == 2 and tuple(kwargs) in ((), ("targets",), ("outputs", "targets"), ("targets", "outputs")):
            outputs, targets = (kwargs["outputs"], kwargs["targets"]) if not args else given
            loss_sum, count = self._cross_entropy_sum(outputs, targets)
        else:
            raise TypeError(
                "CLMCrossEntropyLoss takes an InferenceResultBatch, or outputs and targets; it got "
                f"{len(args)} positional arguments and {sorted(kwargs)}."
            )
        mean = loss_sum / count.clamp(min=1)
        return mean if self.computes_in_fp32 or outputs is None else mean.to(outputs.dtype)

    def sum_and_count(self, forward_batch: InferenceResultBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Summed loss of the targets that count (float32), and their number.

        Raises:
            BatchStateError: there are neither the predictions nor a fused loss, or no targets.
            ConfigError: the model has a fused loss, which is float32, but `computes_in_fp32` is false.
        """
        sum_key, count_key = f"{self.prediction_key}_loss_sum", f"{self.prediction_key}_loss_count"
        if sum_key not in forward_batch.predictions:
            outputs = forward_batch.get_predictions(self.prediction_key)
            return self._cross_entropy_sum(outputs, forward_batch.get_targets(self.target_key))
        if not self.computes_in_fp32:
            raise ConfigError(
                "clm_cross_entropy_loss: computes_in_fp32 is false, but the model's fused_loss computes in float32. "
                "Leave one of them out."
            )
        return forward_batch.get_predictions(sum_key), forward_batch.get_predictions(count_key)

    def _cross_entropy_sum(self, outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = outputs.reshape(-1, outputs.shape[-1])
        labels = targets.reshape(-1).to(device=logits.device, dtype=torch.int64)
        count = (labels != IGNORE_INDEX).sum()
        if self.computes_in_fp32:
            return functional.cross_entropy(logits.float(), labels, ignore_index=IGNORE_INDEX, reduction="sum"), count
        # Modalities rounds the mean, not the sum. Without targets that count, its mean is not a number; then that of
        # some targets is made and taken 0 times.
        labels = labels.masked_fill(count == 0, 0)
        return functional.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX).float() * count, count


def nce_loss(
    embedding1: torch.Tensor,
    embedding2: torch.Tensor,
    device: torch.device,
    is_asymmetric: bool,
    temperature: float,
) -> torch.Tensor:
    """Noise contrastive estimation between two sets of embeddings of shape (batch, [1,] width), in float32.

    Rows of the same number belong together. With scores S = E1 E2^T / temperature: the mean of logsumexp_j S_ij - S_ii,
    and if not `is_asymmetric` plus the same along the columns (https://arxiv.org/abs/1807.03748).
    """
    scores = embedding1.flatten(1).float() @ embedding2.flatten(1).float().T / temperature
    labels = torch.arange(scores.shape[0], device=device)
    scores = scores.to(device)
    loss = functional.cross_entropy(scores, labels)
    return loss if is_asymmetric else loss + functional.cross_entropy(scores.T, labels)


class NCELoss(Loss):
    """`nce_loss` between two predictions of a batch.

    A row is told apart from the other rows of its micro batch on its rank only: with more micro batches, or ranks,
    there are more terms in the mean, but each is as hard as before.
    """

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

    def sum_and_count(self, forward_batch: InferenceResultBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Summed loss of the rows (float32), and their number."""
        mean, num_rows = self(forward_batch), len(forward_batch.get_predictions(self.prediction_key1))
        return mean * num_rows, torch.tensor(num_rows, device=mean.device)


class WeightedSumLoss(Loss):
    """The sum of the means of several losses, each times its weight, as for a contrastive captioner.

    Its terms are those of the first loss. Over several micro batches and ranks the mean is exact for the first loss,
    and the means of the others weigh as much as their batch has terms of the first.
    """

    def __init__(self, losses: Sequence[Loss], weights: Sequence[float], tag: str = "WeightedSumLoss") -> None:
        super().__init__(tag)
        self.losses = list(losses)
        self.weights = list(weights)

    def __call__(self, forward_batch: InferenceResultBatch, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The weighted sum of the mean losses of a batch, float32."""
        return self._total_and_count(forward_batch)[0]

    def sum_and_count(self, forward_batch: InferenceResultBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """The weighted sum times the number of terms of the first loss, and that number."""
        total, count = self._total_and_count(forward_batch)
        return total * count, count

    def _total_and_count(self, forward_batch: InferenceResultBatch) -> tuple[torch.Tensor, torch.Tensor]:
        parts = [loss.sum_and_count(forward_batch) for loss in self.losses]
        means = torch.stack([loss_sum.float() / count.clamp(min=1) for loss_sum, count in parts])
        return means @ means.new_tensor(self.weights), parts[0][1]
