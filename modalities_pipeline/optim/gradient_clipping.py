"""Clipping of gradients by their total norm, for plain and FSDP2 models."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from modalities_pipeline.optim.configs import GradientClippingMode


class GradientClipperIF(ABC):
    """Clips the gradients of a model, or only measures them."""

    @abstractmethod
    def clip_gradients(self) -> torch.Tensor:
        """The total norm before clipping: of all ranks' shards, the same on every rank; a tensor without dimensions."""


class FSDPLoggingOnlyGradientClipper(GradientClipperIF):
    """Measures the gradients and leaves them as they are."""

    def __init__(
        self,
        model_parts: nn.Module | Sequence[nn.Module],
        norm_type: GradientClippingMode,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        self.model_parts = [model_parts] if isinstance(model_parts, nn.Module) else list(model_parts)
        self.norm_type = norm_type
        self.device_mesh = device_mesh

    def clip_gradients(self) -> torch.Tensor:
        """The total norm of the gradients; 0 if there are none."""
        gradients = [parameter.grad for parameter in self._parameters() if parameter.grad is not None]
        norm = get_total_norm(gradients, norm_type=float(self.norm_type.value))
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for part in self.model_parts for parameter in part.parameters()]


class FSDPGradientClipper(FSDPLoggingOnlyGradientClipper):
    """Scales all gradients by min(1, max_norm / norm)."""

    def __init__(
        self,
        model_parts: nn.Module | Sequence[nn.Module],
        norm_type: GradientClippingMode,
        max_norm: float,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__(model_parts, norm_type, device_mesh)
        self.max_norm = max_norm

    def clip_gradients(self) -> torch.Tensor:
        """Clip; a norm that is not finite makes all gradients NaN, so look at it before the optimizer's step."""
        norm = super().clip_gradients()
        clip_grads_with_norm_(self._parameters(), self.max_norm, norm)
        return norm


class DummyGradientClipper(GradientClipperIF):
    """Does nothing; its norm is always -1."""

    def clip_gradients(self) -> torch.Tensor:
        """The 1-element tensor [-1.0]."""
        return torch.tensor([-1.0])
