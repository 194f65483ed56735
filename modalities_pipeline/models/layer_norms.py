"""Norm layers, and how a model makes the one that its config chooses."""

import torch
from torch import nn
from torch.nn import functional

from modalities_pipeline.models.norm_configs import LayerNorms, LayerNormWrapperConfig


class RMSLayerNorm(nn.Module):
    """`weight * x / sqrt(mean(x^2) + epsilon) [+ bias]` over the last dimension, computed in float32."""

    def __init__(self, ndim: int, bias: bool = True, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise a tensor of shape (..., ndim); its dtype is kept."""
        normed = functional.rms_norm(x.float(), x.shape[-1:], eps=self.epsilon).type_as(x)
        output = normed * self.weight
        return output if self.bias is None else output + self.bias

    def reset_parameters(self) -> None:
        """Set the gain to one and the bias to zero."""
        nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def build_norm(wrapper: LayerNormWrapperConfig) -> nn.Module:
    """A new norm layer as the config says."""
    fields = wrapper.config.model_dump()
    match wrapper.norm_type:
        case LayerNorms.rms_norm:
            return RMSLayerNorm(**fields)
        case LayerNorms.layer_norm:
            return nn.LayerNorm(**fields)
        case LayerNorms.pytorch_rms_norm:
            return nn.RMSNorm(**fields)
