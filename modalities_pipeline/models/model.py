"""The base of all models and the prediction of one batch."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from modalities_pipeline.batch import DatasetBatch, InferenceResultBatch
from modalities_pipeline.exceptions import BatchStateError

WeightDecayGroups = dict[str, list[str]]

Activations = TypeVar("Activations", torch.Tensor, dict[str, torch.Tensor])


class NNModel(nn.Module):
    """A model that maps a dict of input tensors to a dict of predictions.

    Attributes:
        seed: decides the initial weights (see `models.initialization`); nothing global is seeded.
        weight_decay_groups: name of a group of parameters -> regexes, searched in parameter names, that make it up.
    """

    def __init__(self, seed: int | None = None, weight_decay_groups: WeightDecayGroups | None = None) -> None:
        super().__init__()
        self.seed = 0 if seed is None else seed
        self.weight_decay_groups: WeightDecayGroups = weight_decay_groups or {}

    @abstractmethod
    def forward(self, inputs: Activations) -> Activations:
        """Predictions for a batch; a bare tensor in gives a bare tensor out."""

    @property
    def fused_loss_target_key(self) -> str | None:
        """Key under which `forward` looks for targets, to compute the loss itself; None if it never does."""
        return None

    def get_parameters(self) -> dict[str, nn.Parameter]:
        """Name of each parameter -> parameter."""
        return dict(self.named_parameters())


@contextmanager
def seeded_construction(seed: int | None) -> Iterator[None]:
    """Let torch's layers draw their first weights from `seed` (None is 0), the same on every rank.

    The global generators are afterwards as they were.
    """
    device = torch.get_default_device()
    accelerators = [] if device.type in ("cpu", "meta") else [device]
    with torch.random.fork_rng(devices=accelerators):
        torch.default_generator.manual_seed(seed or 0)
        for accelerator in accelerators:
            torch.get_device_module(accelerator).manual_seed(seed or 0)
        yield


def model_predict_batch(model: nn.Module, batch: DatasetBatch) -> InferenceResultBatch:
    """Run a model on a batch; the targets are handed on untouched.

    A model that computes its loss itself gets the targets, too, among the inputs.

    Raises:
        BatchStateError: the batch lacks the targets that the model needs for its loss.
    """
    inputs = batch.samples
    # Wrappers (FSDP1, torch.compile) hand on attributes of their model; modules of others do not have it.
    target_key: str | None = getattr(model, "fused_loss_target_key", None)
    if target_key is not None:
        if target_key not in batch.targets:
            raise BatchStateError(
                f"The model computes its loss from targets '{target_key}' (fused_loss), but the batch has "
                f"{', '.join(batch.targets) or 'none'}. Let the collator give them this key."
            )
        inputs = {**inputs, target_key: batch.targets[target_key]}
    return InferenceResultBatch(targets=batch.targets, predictions=model(inputs))
