"""Norm layers, and the `{norm_type, config}` wrapper by which model configs choose one."""

from enum import StrEnum
from typing import Annotated, Any

import torch
from pydantic import Field, StrictBool, ValidationInfo, field_validator
from torch import nn

from modalities_pipeline.config.component import ComponentConfig

StrictDimension = Annotated[int, Field(strict=True, ge=1)]
StrictEpsilon = Annotated[float, Field(strict=True, gt=0.0)]


class RMSLayerNorm(nn.Module):
    """`weight * x / sqrt(mean(x^2) + epsilon) [+ bias]` over the last dimension, computed in float32."""

    def __init__(self, ndim: int, bias: bool = True, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise a tensor of shape (..., ndim); its dtype is kept."""
        wide = x.float()
        normed = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)).type_as(x)
        output = normed * self.weight
        return output if self.bias is None else output + self.bias

    def reset_parameters(self) -> None:
        """Set the gain to one and the bias to zero."""
        nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class LayerNormConfig(ComponentConfig):
    """Fields of `torch.nn.LayerNorm`."""

    normalized_shape: StrictDimension
    eps: StrictEpsilon = 1e-6
    elementwise_affine: StrictBool = True
    bias: StrictBool = True


class RMSLayerNormConfig(ComponentConfig):
    """Fields of `RMSLayerNorm`."""

    ndim: StrictDimension
    epsilon: StrictEpsilon = 1e-6
    bias: StrictBool = True


class PytorchRMSLayerNormConfig(ComponentConfig):
    """Fields of `torch.nn.RMSNorm`."""

    normalized_shape: StrictDimension
    eps: StrictEpsilon = 1e-5


class LayerNorms(StrEnum):
    """Kinds of norm layers."""

    rms_norm = "rms_norm"
    layer_norm = "layer_norm"
    pytorch_rms_norm = "pytorch_rms_norm"


_CONFIG_TYPES: dict[LayerNorms, type[ComponentConfig]] = {
    LayerNorms.rms_norm: RMSLayerNormConfig,
    LayerNorms.layer_norm: LayerNormConfig,
    LayerNorms.pytorch_rms_norm: PytorchRMSLayerNormConfig,
}


class LayerNormWrapperConfig(ComponentConfig):
    """A norm layer by kind: `norm_type` decides which fields `config` has.

    Inside this wrapper the default eps of `layer_norm` is 1e-5, unless `bias` or `elementwise_affine` is given: then it
    is 1e-6. Models trained with Modalities depend on that.
    """

    norm_type: LayerNorms
    config: LayerNormConfig | RMSLayerNormConfig | PytorchRMSLayerNormConfig

    @field_validator("config", mode="before")
    @classmethod
    def _validate_by_norm_type(cls, config: Any, info: ValidationInfo) -> Any:
        if not isinstance(config, dict):
            return config
        if "norm_type" not in info.data:
            raise ValueError("cannot be checked without a valid norm_type")
        config_type = _CONFIG_TYPES[info.data["norm_type"]]
        if config_type is LayerNormConfig and not config.keys() & {"eps", "bias", "elementwise_affine"}:
            config = {**config, "eps": 1e-5}
        return config_type.model_validate(config)

    @property
    def dimension(self) -> int:
        """Size of the dimension that is normalised."""
        return self.config.ndim if isinstance(self.config, RMSLayerNormConfig) else self.config.normalized_shape

    @property
    def epsilon(self) -> float:
        """What is added to the mean square before the root."""
        return self.config.epsilon if isinstance(self.config, RMSLayerNormConfig) else self.config.eps

    @property
    def has_bias(self) -> bool:
        """Whether the norm adds a bias."""
        return not isinstance(self.config, PytorchRMSLayerNormConfig) and self.config.bias

    def build(self) -> nn.Module:
        """A new norm layer."""
        match self.config:
            case RMSLayerNormConfig():
                return RMSLayerNorm(**self.config.model_dump())
            case LayerNormConfig():
                return nn.LayerNorm(**self.config.model_dump())
            case PytorchRMSLayerNormConfig():
                return nn.RMSNorm(**self.config.model_dump())
