"""What can be done again and again to be measured."""

from abc import ABC, abstractmethod

from torch import nn
from torch.optim import Optimizer

from modalities_pipeline.batch import InferenceResultBatch
from modalities_pipeline.dataloading.batch_generator import DatasetBatchGeneratorIF
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.loss_functions import Loss
from modalities_pipeline.models.model import model_predict_batch


class SteppableComponentIF(ABC):
    """Does the same work at each step."""

    @abstractmethod
    def step(self) -> None:
        """Do the work once."""


class SteppableForwardPass(SteppableComponentIF):
    """A model's pass over a batch, on the model's device; backward with a loss, an update with an optimizer."""

    def __init__(
        self,
        model: nn.Module,
        dataset_batch_generator: DatasetBatchGeneratorIF,
        loss_fn: Loss | None = None,
        optimizer: Optimizer | None = None,
    ) -> None:
        """Say what a step consists of; `ConfigError` if there is an optimizer and no loss."""
        if optimizer is not None and loss_fn is None:
            raise ConfigError("steppable_component: an optimizer does nothing without a loss_fn. Set one.")
        self._model = model
        self._dataset_batch_generator = dataset_batch_generator
        self._loss_fn = loss_fn
        self._optimizer = optimizer

    def step(self) -> None:
        """Do the work once, with a new batch."""
        batch = self._dataset_batch_generator.get_dataset_batch()
        parameter = next(self._model.parameters(), None)
        if parameter is not None:
            batch.to(parameter.device)
        result: InferenceResultBatch = model_predict_batch(self._model, batch)
        if self._loss_fn is None:
            return
        self._loss_fn(result).backward()
        if self._optimizer is None:
            self._model.zero_grad()
        else:
            self._optimizer.step()
            self._optimizer.zero_grad()
