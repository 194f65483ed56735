"""Configs of norm layers, and the `{norm_type, config}` wrapper by which model configs choose one. Imports no torch."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, StrictBool, ValidationInfo, WrapValidator, field_validator

from modalities_pipeline.config.component import ComponentConfig, validate_as
from modalities_pipeline.config.unbuilt import Unbuilt

StrictDimension = Annotated[int, Field(strict=True, ge=1)]
NormalizedShape = Annotated[StrictDimension, Field(description="size of the last dimension, which is normalised")]
StrictEpsilon = Annotated[
    float, Field(strict=True, gt=0.0, description="added to the variance (mean square) before the root")
]


class LayerNormConfig(ComponentConfig):
    """Fields of `torch.nn.LayerNorm`."""

    normalized_shape: NormalizedShape
    eps: StrictEpsilon = 1e-6
    elementwise_affine: Annotated[StrictBool, Field(description="whether it has a gain and, with `bias`, a bias")] = (
        True
    )
    bias: Annotated[StrictBool, Field(description="whether a bias is added")] = True


class RMSLayerNormConfig(ComponentConfig):
    """Fields of `RMSLayerNorm`, an RMS norm that may have a bias."""

    ndim: NormalizedShape
    epsilon: Annotated[float, Field(gt=0.0, description="added to the mean square before the root")] = 1e-6
    bias: Annotated[StrictBool, Field(description="whether a bias is added")] = True


class PytorchRMSLayerNormConfig(ComponentConfig):
    """Fields of `torch.nn.RMSNorm`."""

    normalized_shape: NormalizedShape
    eps: StrictEpsilon = 1e-5


NormConfig = LayerNormConfig | RMSLayerNormConfig | PytorchRMSLayerNormConfig


class LayerNorms(StrEnum):
    """Kinds of norm layers."""

    rms_norm = "rms_norm"
    layer_norm = "layer_norm"
    pytorch_rms_norm = "pytorch_rms_norm"


_CONFIG_TYPES: dict[LayerNorms, type[NormConfig]] = {
    LayerNorms.rms_norm: RMSLayerNormConfig,
    LayerNorms.layer_norm: LayerNormConfig,
    LayerNorms.pytorch_rms_norm: PytorchRMSLayerNormConfig,
}


class LayerNormWrapperConfig(ComponentConfig):
    """A norm layer by kind: `norm_type` decides which fields `config` has.

    Inside this wrapper the default eps of `layer_norm` is 1e-5, unless `bias` or `elementwise_affine` is given: then it
    is 1e-6. Models trained with Modalities depend on that.
    """

    norm_type: Annotated[LayerNorms, Field(examples=["pytorch_rms_norm"], description="kind of norm layer")]
    config: Annotated[
        NormConfig,
        Field(examples=[{"normalized_shape": 128}], description="as of the component layer_norm of that kind"),
    ]

    @field_validator("config", mode="wrap")
    @classmethod
    def _validate_by_norm_type(cls, config: Any, handler: Callable[[Any], Any], info: ValidationInfo) -> Any:
        norm_type = info.data.get("norm_type")
        if not isinstance(norm_type, LayerNorms):  # its own fault is reported; of `config` nothing can be said then
            return config
        config_type = _CONFIG_TYPES[norm_type]
        if isinstance(config, config_type):
            return config
        if not isinstance(config, dict):
            return handler(config)
        if norm_type is LayerNorms.layer_norm and not config.keys() & {"eps", "bias", "elementwise_affine"}:
            config = {**config, "eps": 1e-5}
        return validate_as(config_type, config, norm_type.value)

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


def _wrapper_of_component(value: Any, handler: Callable[[Any], Any]) -> Any:
    """Take a component `layer_norm/...` for its settings: every place in the model gets a norm of its own."""
    if isinstance(value, LayerNormWrapperConfig | dict | str | int | float | list | None):
        return handler(value)
    if isinstance(value, Unbuilt) and value.config is None:  # faulty, which is reported, or not known
        return value
    config = value.config if isinstance(value, Unbuilt) else _config_of_module(value)
    for norm_type, config_type in _CONFIG_TYPES.items():
        if isinstance(config, config_type):
            return LayerNormWrapperConfig(norm_type=norm_type, config=config)
    given = value.name if isinstance(value, Unbuilt) else type(value).__name__
    raise ValueError(f"has to be {{norm_type, config}} or a component layer_norm/..., not {given}")


def _config_of_module(norm: Any) -> NormConfig | None:
    """The settings of a built norm, None if it is of another kind."""
    match type(norm).__name__:
        case "LayerNorm":
            affine, bias = norm.elementwise_affine, norm.bias is not None
            (size,) = norm.normalized_shape
            return LayerNormConfig(normalized_shape=size, eps=norm.eps, elementwise_affine=affine, bias=bias)
        case "RMSLayerNorm":
            return RMSLayerNormConfig(ndim=len(norm.weight), epsilon=norm.epsilon, bias=norm.bias is not None)
        case "RMSNorm":
            (size,) = norm.normalized_shape
            return PytorchRMSLayerNormConfig(normalized_shape=size, eps=norm.eps)
    return None


NormField = Annotated[LayerNormWrapperConfig, WrapValidator(_wrapper_of_component)]
