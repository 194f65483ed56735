"""Config of the model CoCa (Contrastive Captioners, https://arxiv.org/abs/2205.01917). Imports no torch."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.models.configs import ActivationType

_Size = Annotated[int, Field(ge=1)]
_Dropout = Annotated[float, Field(ge=0.0)]


class AttentionEngineType(StrEnum):
    """How the scaled dot product is computed."""

    DEFAULT_ATTENTION = "default_attention"
    PYTORCH_FLASH_ATTENTION = "pytorch_flash_attention"


class CoCaAttentionConfig(ComponentConfig):
    """Fields of `attention_config` of CoCa and of its vision transformer."""

    attention_engine_type: AttentionEngineType


class VisionTransformerConfig(ComponentConfig):
    """Fields of the vision transformer; images are `img_size` squared, or (height, width)."""

    sample_key: Annotated[str, Field(description="key of the images in a batch's samples")]
    prediction_key: str
    img_size: _Size | tuple[_Size, _Size] = 224
    n_classes: Annotated[_Size | None, Field(description="null: no classifying head, all tokens are the output")] = 1000
    n_layer: _Size = 12
    attention_config: CoCaAttentionConfig | None = None
    n_head: _Size = 8
    n_embd: _Size = 768
    dropout: _Dropout = 0.0
    patch_size: _Size = 16
    patch_stride: _Size = 16
    n_img_channels: _Size = 3
    add_cls_token: bool = True
    bias: bool = True


class TextDecoderConfig(ComponentConfig):
    """Fields of the decoder: `n_layer_text` layers of text alone, then those that also look at the image."""

    sample_key: Annotated[str, Field(description="key of the token ids in a batch's samples")]
    prediction_key: str
    block_size: Annotated[_Size, Field(description="most tokens of a sample")]
    vocab_size: _Size
    n_layer_text: _Size
    n_layer_multimodal_text: _Size
    n_head: _Size
    n_embd: _Size
    ffn_hidden: _Size
    dropout: _Dropout
    bias: bool
    attention_config: CoCaAttentionConfig | None = None
    activation: ActivationType
    epsilon: Annotated[float, Field(ge=0.0)]


class CoCaConfig(ComponentConfig):
    """Fields of CoCa."""

    prediction_key: Annotated[str, Field(description="key of the logits in the predictions")] = "logits"
    vision_embd_prediction_key: str
    text_embd_prediction_key: str
    vision_cls_prediction_key: str
    text_cls_prediction_key: str
    vision_encoder_config: VisionTransformerConfig
    text_decoder_config: TextDecoderConfig
    n_pool_head: Annotated[_Size, Field(description="heads of the pooling attention")]
    n_vision_queries: Annotated[_Size, Field(description="image tokens that the decoder sees")]
    bias_attn_pool: bool
    epsilon_attn_pool: Annotated[float, Field(ge=0.0)]
