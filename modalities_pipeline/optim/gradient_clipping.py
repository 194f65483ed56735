"""Clipping of gradients by their total norm: for plain, FSDP1, FSDP2 and tensor parallel models, and for pipelines."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from modalities_pipeline.distributed.configs import ParallelismDegrees
from modalities_pipeline.distributed.mesh import get_mesh_for_parallelism_method, has_parallelism_method
from modalities_pipeline.exceptions import ConfigError, TrainingError
from modalities_pipeline.optim.configs import GradientClippingMode


class GradientClipperIF(ABC):
    """Clips the gradients of a model, or only measures them."""

    @abstractmethod
    def clip_gradients(self) -> torch.Tensor:
        """The total norm before clipping: of all ranks' shards, the same on every rank; a tensor without dimensions.

        To be called once per optimizer step, after all of its micro batches, on all ranks.
        """


class FSDPLoggingOnlyGradientClipper(GradientClipperIF):
    """Measures the gradients and leaves them as they are (FSDP1 makes them NaN if their norm is not finite)."""

    def __init__(
        self,
        model_parts: nn.Module | Sequence[nn.Module],
        norm_type: GradientClippingMode,
        device_mesh: DeviceMesh | None = None,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> None:
        """Say what is measured.

        Args:
            model_parts: the model, or this rank's parts of it.
            norm_type: of all gradients together.
            device_mesh: that of the run; needed for pipelines, whose ranks hold different parts.
            error_if_nonfinite: whether `clip_gradients` raises a TrainingError for a norm that is not finite, on all
                ranks; this waits for the device.
            foreach: one call for many gradients; None: torch decides. Without effect on FSDP1 models.

        Raises:
            ConfigError: an FSDP1 model is one of several parts, or only a part of the model is FSDP1.
        """
        self.model_parts = [model_parts] if isinstance(model_parts, nn.Module) else list(model_parts)
        self.norm_type = norm_type
        self.device_mesh = device_mesh
        self.error_if_nonfinite = error_if_nonfinite
        self.foreach = foreach
        self._fsdp1_model = _fsdp1_model(self.model_parts)
        self._pipeline = None
        if device_mesh is not None and has_parallelism_method(device_mesh, ParallelismDegrees.PP):
            self._pipeline = get_mesh_for_parallelism_method(device_mesh, ParallelismDegrees.PP).get_group()

    @property
    def _power(self) -> float:
        return float(self.norm_type.value)

    def clip_gradients(self) -> torch.Tensor:
        """The total norm of the gradients; 0 if there are none."""
        return self._clip(torch.inf)

    def _clip(self, max_norm: float) -> torch.Tensor:
        if self._fsdp1_model is not None:
            norm = self._fsdp1_model.clip_grad_norm_(max_norm, self._power)
        else:
            by_mesh = _parameters_by_mesh(self.model_parts)
            norm = self._total_norm(by_mesh)
            if max_norm < torch.inf:
                for parameters in by_mesh:
                    clip_grads_with_norm_(parameters, max_norm, norm, foreach=self.foreach)
        if self.error_if_nonfinite and not torch.isfinite(norm):
            raise TrainingError(f"The gradients' {self.norm_type.name} is {norm.item()}. Lower the learning rate.")
        return norm

    @torch.no_grad()
    def _total_norm(self, parameters_by_mesh: Iterable[Sequence[nn.Parameter]]) -> torch.Tensor:
        norms = []
        for parameters in parameters_by_mesh:
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            if self._power == torch.inf:
                norms.append(self._largest(gradients))
                continue
            norm = get_total_norm(gradients, norm_type=self._power, foreach=self.foreach)
            norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        norm = norms[0] if len(norms) == 1 else self._joint_norm(norms)
        if self._pipeline is None:
            return norm
        if self._power == torch.inf:
            _reduce_to_largest_(norm, self._pipeline)
            return norm
        norm **= self._power
        dist.all_reduce(norm, dist.ReduceOp.SUM, self._pipeline)
        return norm ** (1.0 / self._power)

    def _largest(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """The largest absolute value of gradients on one mesh; torch fails where a rank's shard of one is empty."""
        shards = [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients]
        filled = [shard for shard in shards if shard.numel() > 0]
        norm = get_total_norm(filled, norm_type=torch.inf, foreach=self.foreach).to(shards[0].device)
        if isinstance(gradients[0], DTensor):
            for dimension in range(gradients[0].device_mesh.ndim):
                _reduce_to_largest_(norm, gradients[0].device_mesh.get_group(dimension))
        return norm

    def _joint_norm(self, norms: Sequence[torch.Tensor]) -> torch.Tensor:
        device = next((parameter.device for part in self.model_parts for parameter in part.parameters()), None)
        if not norms:  # the other ranks of a pipeline may have gradients
            return torch.zeros((), device=device)
        return torch.linalg.vector_norm(torch.stack([norm.to(device) for norm in norms]), self._power)


class FSDPGradientClipper(FSDPLoggingOnlyGradientClipper):
    """Scales all gradients by min(1, max_norm / (norm + 1e-6))."""

    def __init__(
        self,
        model_parts: nn.Module | Sequence[nn.Module],
        norm_type: GradientClippingMode,
        max_norm: float,
        device_mesh: DeviceMesh | None = None,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> None:
        super().__init__(model_parts, norm_type, device_mesh, error_if_nonfinite, foreach)
        self.max_norm = max_norm

    def clip_gradients(self) -> torch.Tensor:
        """Clip; a norm that is not finite makes all gradients NaN, so look at it before the optimizer's step."""
        return self._clip(self.max_norm)


class DummyGradientClipper(GradientClipperIF):
    """Does nothing; its norm is always -1."""

    def clip_gradients(self) -> torch.Tensor:
        """The 1-element tensor [-1.0]."""
        return torch.tensor([-1.0])


def _reduce_to_largest_(norm: torch.Tensor, group: dist.ProcessGroup) -> None:
    """In place, over the ranks of a group; NaN becomes infinity, as backends may take another rank's number for it."""
    norm.nan_to_num_(nan=torch.inf, posinf=torch.inf)
    dist.all_reduce(norm, dist.ReduceOp.MAX, group)


def _fsdp1_model(model_parts: Sequence[nn.Module]) -> FullyShardedDataParallel | None:
    """The FSDP1 model that is the whole model, if it is one: only it can tell which gradients are shards of others."""
    roots = [root for part in model_parts for root in FullyShardedDataParallel.fsdp_modules(part, root_only=True)]
    if not roots:
        return None
    inside = {id(parameter) for parameter in roots[0].parameters()}
    if len(model_parts) > 1 or any(id(parameter) not in inside for parameter in model_parts[0].parameters()):
        raise ConfigError("gradient_clipper: FSDP1 models are clipped as a whole. Give the one from fsdp1_wrapped.")
    return roots[0]


def _parameters_by_mesh(model_parts: Sequence[nn.Module]) -> list[list[nn.Parameter]]:
    """Parameters with gradients, those on the same mesh together: torch computes with no two meshes at once."""
    groups: dict[DeviceMesh | None, dict[int, nn.Parameter]] = defaultdict(dict)
    for part in model_parts:
        for parameter in part.parameters():
            if parameter.grad is not None:
                mesh = parameter.grad.device_mesh if isinstance(parameter.grad, DTensor) else None
                groups[mesh][id(parameter)] = parameter
    return [list(group.values()) for group in groups.values()]
