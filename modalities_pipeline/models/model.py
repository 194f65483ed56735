"""The base of all models and the prediction of one batch."""

from abc import abstractmethod
from typing import TypeVar

import torch
from torch import nn

from modalities_pipeline.batch import DatasetBatch, InferenceResultBatch

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

    def get_parameters(self) -> dict[str, nn.Parameter]:
        """Name of each parameter -> parameter."""
        return dict(self.named_parameters())


def model_predict_batch(model: nn.Module, batch: DatasetBatch) -> InferenceResultBatch:
    """Run a model on a batch; the targets are handed on untouched."""
    return InferenceResultBatch(targets=batch.targets, predictions=model(batch.samples))
