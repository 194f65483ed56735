"""Model FLOPs utilisation: the share of the hardware's peak that the arithmetic of a model's training uses."""

import functools
import logging
from abc import ABC, abstractmethod

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

from modalities_pipeline.progress.peak_flops import peak_flops_of
from modalities_pipeline.util import get_total_number_of_trainable_parameters

logger = logging.getLogger(__name__)

_UNKNOWN = -1.0


class MFUCalculatorABC(ABC):
    """Turns throughput into utilisation."""

    @abstractmethod
    def compute(self, num_samples_per_second: torch.Tensor | float) -> torch.Tensor:
        """Share of the peak FLOP/s of all devices, a number without dimensions; -1 if the peak is not known.

        Args:
            num_samples_per_second: of all ranks together.
        """


class GPT2MFUCalculator(MFUCalculatorABC):
    """Utilisation of a decoder-only transformer, as the PaLM paper counts it (https://arxiv.org/abs/2204.02311, B).

    A token takes 6 N + 12 n_layer sequence_length n_embd floating point operations forwards and backwards, N being the
    number of trainable parameters with embeddings; what is computed a second time does not count.

    The peak is that of the devices for the dtype in which the model computes: FSDP's `param_dtype` where there is one,
    else that of the parameters. A float32 model is measured against TF32, the most that a device makes of its matrices.

    Args:
        n_layer, sequence_length, n_embd: the shape of the model; tokens per sample.
        world_size: number of devices.
        model_parts: the model as it is trained, or a list of this rank's parts of it; plain, FSDP1 or FSDP2.
        device_mesh: the mesh of the run; with a dimension pp, every rank has to build the calculator at once.
    """

    def __init__(
        self,
        n_layer: int,
        sequence_length: int,
        n_embd: int,
        world_size: int,
        model_parts: nn.Module | list[nn.Module],
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        parts = model_parts if isinstance(model_parts, list) else [model_parts]
        num_parameters = get_total_number_of_trainable_parameters(parts, device_mesh)
        self._flops_per_sample = sequence_length * flops_per_token(num_parameters, n_layer, sequence_length, n_embd)
        self._parts, self._world_size = parts, world_size

    def compute(self, num_samples_per_second: torch.Tensor | float) -> torch.Tensor:
        """See `MFUCalculatorABC`."""
        if self._peak_flops is None:
            return torch.tensor(_UNKNOWN)
        return torch.as_tensor(num_samples_per_second) * (self._flops_per_sample / self._peak_flops)

    @functools.cached_property
    def _peak_flops(self) -> float | None:
        """Of all devices; looked up at the first use, because the model may be on the meta device until then."""
        peak = _peak_flops_of_device(self._parts)
        return peak * self._world_size if peak is not None else None


def flops_per_token(num_parameters: int, n_layer: int, sequence_length: int, n_embd: int) -> int:
    """Floating point operations of a token's forward and backward pass; the second term is that of attention."""
    return 6 * num_parameters + 12 * n_layer * sequence_length * n_embd


def _peak_flops_of_device(parts: list[nn.Module]) -> float | None:
    """Peak FLOP/s of the device that the model is on; if not known, the log says why."""
    parameter = next((parameter for part in parts for parameter in part.parameters()), None)
    if parameter is None:
        return None
    get_name = getattr(torch.get_device_module(parameter.device), "get_device_name", None)
    if get_name is None:
        logger.info("No MFU is computed: the peak FLOP/s of a %s are not known.", parameter.device.type.upper())
        return None
    device_name = get_name(parameter.device)
    peaks, dtype = peak_flops_of(device_name), _compute_dtype(parts) or parameter.dtype
    peak = peaks.of(dtype) if peaks is not None else None
    if peak is None:
        logger.warning("No MFU is computed: the peak FLOP/s of '%s' for %s are not known.", device_name, dtype)
    return peak


def _compute_dtype(parts: list[nn.Module]) -> torch.dtype | None:
    """The dtype that FSDP casts parameters to before they are used, None if it does not."""
    for module in (module for part in parts for module in part.modules()):
        if isinstance(module, FSDPModule):
            return module._get_fsdp_state()._mp_policy.param_dtype
        if isinstance(module, FullyShardedDataParallel):
            return module.mixed_precision.param_dtype
    return None
