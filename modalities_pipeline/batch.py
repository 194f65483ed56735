"""What travels between data loader, model, loss and reporting."""

import dataclasses
from abc import ABC, abstractmethod

import torch

from modalities_pipeline.exceptions import BatchStateError


class Batch(ABC):  # noqa: B024 (a common base without behaviour, part of the public names)
    """Base of everything that is a batch."""


class TorchDeviceMixin(ABC):
    """A batch whose tensors can be moved and detached, in place."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device of the tensors."""

    @abstractmethod
    def to(self, device: torch.device) -> None:
        """Move all tensors to `device`."""

    @abstractmethod
    def detach(self) -> None:
        """Cut all tensors off from the autograd graph."""


@dataclasses.dataclass
class DatasetBatch(Batch, TorchDeviceMixin):
    """What a collator makes of several samples: name -> tensor whose dimension `batch_dim` counts the samples."""

    samples: dict[str, torch.Tensor]
    targets: dict[str, torch.Tensor]
    batch_dim: int = 0

    def to(self, device: torch.device) -> None:
        """Move all tensors to `device`; asynchronously where their memory is pinned."""
        self.samples = {key: tensor.to(device, non_blocking=True) for key, tensor in self.samples.items()}
        self.targets = {key: tensor.to(device, non_blocking=True) for key, tensor in self.targets.items()}

    def pin_memory(self) -> "DatasetBatch":
        """Copy all tensors to pinned memory, from which `to` is asynchronous; torch's data loader calls it."""
        self.samples = {key: tensor.pin_memory() for key, tensor in self.samples.items()}
        self.targets = {key: tensor.pin_memory() for key, tensor in self.targets.items()}
        return self

    def detach(self) -> None:
        """Cut all tensors off from the autograd graph."""
        self.samples = {key: tensor.detach() for key, tensor in self.samples.items()}
        self.targets = {key: tensor.detach() for key, tensor in self.targets.items()}

    @property
    def device(self) -> torch.device:
        """The device of the first sample tensor."""
        return next(iter(self.samples.values())).device

    def __len__(self) -> int:
        return next(iter(self.samples.values())).shape[self.batch_dim]


@dataclasses.dataclass
class InferenceResultBatch(Batch, TorchDeviceMixin):
    """A model's predictions beside the targets: name -> tensor."""

    targets: dict[str, torch.Tensor]
    predictions: dict[str, torch.Tensor]
    batch_dim: int = 0

    def to_cpu(self) -> None:
        """Move all tensors to the CPU."""
        self.to(torch.device("cpu"))

    def to(self, device: torch.device) -> None:
        """Move all tensors to `device`."""
        self.predictions = {key: tensor.to(device) for key, tensor in self.predictions.items()}
        self.targets = {key: tensor.to(device) for key, tensor in self.targets.items()}

    def detach(self) -> None:
        """Cut all tensors off from the autograd graph."""
        self.predictions = {key: tensor.detach() for key, tensor in self.predictions.items()}
        self.targets = {key: tensor.detach() for key, tensor in self.targets.items()}

    @property
    def device(self) -> torch.device:
        """The device of the first target tensor."""
        return next(iter(self.targets.values())).device

    def get_predictions(self, key: str) -> torch.Tensor:
        """The prediction called `key`; `BatchStateError` if there is none."""
        return _get(self.predictions, key, "predictions")

    def get_targets(self, key: str) -> torch.Tensor:
        """The target called `key`; `BatchStateError` if there is none."""
        return _get(self.targets, key, "targets")

    def __len__(self) -> int:
        tensors = [*self.predictions.values(), *self.targets.values()]  # a loss that a model made has no dimensions
        return next(tensor.shape[self.batch_dim] for tensor in tensors if tensor.dim() > self.batch_dim)


def _get(tensors: dict[str, torch.Tensor], key: str, kind: str) -> torch.Tensor:
    if key not in tensors:
        raise BatchStateError(f"Key {key} not present in {kind}! There are: {', '.join(tensors)}.")
    return tensors[key]


@dataclasses.dataclass
class ResultItem:
    """One measured number; `decimal_places` says how to print it, None that every digit counts."""

    value: torch.Tensor
    decimal_places: int | None = None

    def __repr__(self) -> str:
        value = self.value.double().mean().item()
        return str(value) if self.decimal_places is None else str(round(value, self.decimal_places))


@dataclasses.dataclass
class EvaluationResultBatch(Batch):
    """The numbers that one training interval or one evaluation produced."""

    dataloader_tag: str
    num_train_steps_done: int
    losses: dict[str, ResultItem] = dataclasses.field(default_factory=dict)
    metrics: dict[str, ResultItem] = dataclasses.field(default_factory=dict)
    throughput_metrics: dict[str, ResultItem] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        items = self.throughput_metrics | self.losses | self.metrics
        parts = [f"{self.dataloader_tag} | step: {self.num_train_steps_done}"]
        return " | ".join([*parts, *(f"{name}: {item}" for name, item in items.items())])
