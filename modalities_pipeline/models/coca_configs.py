"""Config of the model CoCa (Contrastive Captioners, https://arxiv.org/abs/2205.01917). Imports no torch."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, are_known, raise_at_keys
from modalities_pipeline.models.configs import ActivationType

_Size = Annotated[int, Field(ge=1)]
_Width = Annotated[_Size, Field(description="width of the embeddings")]
_NumHeads = Annotated[_Size, Field(description="heads of attention")]
_Dropout = Annotated[
    float,
    Field(ge=0.0, lt=1.0, description="part of what embeddings and feed-forward networks give, set to 0 in training"),
]
_Epsilon = Annotated[
    float, Field(ge=0.0, allow_inf_nan=False, examples=[1e-5], description="added to the variance by norms")
]


class AttentionEngineType(StrEnum):
    """How the scaled dot product is computed."""

    DEFAULT_ATTENTION = "default_attention"
    PYTORCH_FLASH_ATTENTION = "pytorch_flash_attention"


class CoCaAttentionConfig(ComponentConfig):
    """Fields of `attention_config` of CoCa and of its vision transformer."""

    attention_engine_type: Annotated[
        AttentionEngineType,
        Field(description="pytorch_flash_attention is fast; default_attention has masks in its checkpoints"),
    ]


_Attention = Annotated[CoCaAttentionConfig | None, Field(description="null: default_attention")]


class VisionTransformerConfig(ComponentConfig):
    """Fields of the vision transformer."""

    sample_key: Annotated[str, Field(description="key of the images in a batch's samples")]
    prediction_key: Annotated[str, Field(description="no effect within CoCa, which has keys of its own")]
    img_size: Annotated[
        _Size | tuple[_Size, _Size], Field(description="height and width of the images, in pixels; one if equal")
    ] = 224
    n_classes: Annotated[_Size | None, Field(description="null: no classifying head, all tokens are the output")] = 1000
    n_layer: Annotated[_Size, Field(description="number of blocks")] = 12
    attention_config: _Attention = None
    n_head: _NumHeads = 8
    n_embd: _Width = 768
    ffn_hidden: Annotated[_Size, Field(description="width of the feed-forward network; not in Modalities")] = 3072
    dropout: _Dropout = 0.0
    patch_size: Annotated[_Size, Field(description="height and width of a patch, in pixels")] = 16
    patch_stride: Annotated[_Size, Field(description="pixels from one patch to the next")] = 16
    n_img_channels: Annotated[_Size, Field(description="3 for colours")] = 3
    add_cls_token: Annotated[bool, Field(description="whether a learned token comes first")] = True
    bias: Annotated[bool, Field(description="whether linears have biases")] = True

    @property
    def image_height_and_width(self) -> tuple[int, int]:
        """Size of the images, in pixels."""
        return self.img_size if isinstance(self.img_size, tuple) else (self.img_size, self.img_size)

    @property
    def num_tokens(self) -> int:
        """Patches of an image, and the class token if there is one."""
        rows, columns = ((size - self.patch_size) // self.patch_stride + 1 for size in self.image_height_and_width)
        return rows * columns + self.add_cls_token

    @model_validator(mode="after")
    def _check(self) -> Self:
        raise_at_keys(self, [*_faults_of_heads("n_head", self.n_embd, self.n_head), *self._faults_of_patches()])
        return self

    def _faults_of_patches(self) -> Iterator[tuple[str, str]]:
        if are_known(*self.image_height_and_width, self.patch_size):
            smaller = min(self.image_height_and_width)
            if self.patch_size > smaller:
                yield "patch_size", f"{self.patch_size} is larger than the image ({smaller})"


class TextDecoderConfig(ComponentConfig):
    """Fields of the decoder: `n_layer_text` layers of text alone, then those that also look at the image."""

    sample_key: Annotated[str, Field(description="key of the token ids in a batch's samples")]
    prediction_key: Annotated[str, Field(description="no effect within CoCa, which has keys of its own")]
    block_size: Annotated[_Size, Field(description="most tokens of a text")]
    vocab_size: Annotated[_Size, Field(description="rows of the embedding")]
    n_layer_text: Annotated[_Size, Field(description="layers that see the text alone")]
    n_layer_multimodal_text: Annotated[_Size, Field(description="layers after them, that also look at the image")]
    n_head: _NumHeads
    n_embd: _Width
    ffn_hidden: Annotated[
        _Size, Field(description="width of the GELU network; SwiGLU takes two thirds, in multiples of 256")
    ]
    dropout: _Dropout
    bias: Annotated[bool, Field(description="whether linears and norms have biases")]
    attention_config: _Attention = None
    activation: Annotated[ActivationType, Field(description="of the feed-forward network")]
    epsilon: _Epsilon

    @model_validator(mode="after")
    def _check(self) -> Self:
        raise_at_keys(self, _faults_of_heads("n_head", self.n_embd, self.n_head))
        return self


_EXAMPLE_OF_VISION = {"sample_key": "images", "prediction_key": "vision_embeddings", "n_classes": None, "n_embd": 768}
_EXAMPLE_OF_TEXT = {
    "sample_key": "input_ids",
    "prediction_key": "text_embeddings",
    "block_size": 256,
    "vocab_size": 50_304,
    "n_layer_text": 6,
    "n_layer_multimodal_text": 6,
    "n_head": 12,
    "n_embd": 768,
    "ffn_hidden": 3072,
    "dropout": 0.0,
    "bias": True,
    "activation": "swiglu",
    "epsilon": 1e-5,
}


class CoCaConfig(ComponentConfig):
    """Fields of CoCa."""

    prediction_key: Annotated[str, Field(description="key of the logits in the predictions")] = "logits"
    vision_embd_prediction_key: Annotated[
        str, Field(description="key of the image's tokens, inside of the model", examples=["vision_embeddings"])
    ]
    text_embd_prediction_key: Annotated[
        str, Field(description="key of the text's embeddings, inside of the model", examples=["text_embeddings"])
    ]
    vision_cls_prediction_key: Annotated[
        str, Field(description="key of the image's embedding in the predictions", examples=["vision_cls"])
    ]
    text_cls_prediction_key: Annotated[
        str, Field(description="key of the text's embedding in the predictions", examples=["text_cls"])
    ]
    vision_encoder_config: Annotated[
        VisionTransformerConfig, Field(examples=[_EXAMPLE_OF_VISION], description="without n_classes")
    ]
    text_decoder_config: Annotated[
        TextDecoderConfig, Field(examples=[_EXAMPLE_OF_TEXT], description="of the same width n_embd")
    ]
    n_pool_head: Annotated[_Size, Field(examples=[12], description="heads of the pooling attention")]
    n_vision_queries: Annotated[_Size, Field(examples=[256], description="image tokens that the decoder sees")]
    bias_attn_pool: Annotated[bool, Field(description="whether the norms of the pooling attention have biases")]
    epsilon_attn_pool: _Epsilon
    seed: Annotated[
        int | None, Field(ge=0, lt=2**63, description="decides the initial weights; null is 0; not in Modalities")
    ] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        n_embd = self.vision_encoder_config.n_embd
        raise_at_keys(
            self,
            [
                *self._faults_of_parts(),
                *_faults_of_heads("n_pool_head", n_embd, self.n_pool_head),
                *self._faults_of_keys(),
            ],
        )
        return self

    def _faults_of_parts(self) -> Iterator[tuple[str, str]]:
        vision, text = self.vision_encoder_config, self.text_decoder_config
        if are_known(vision.n_embd, text.n_embd) and vision.n_embd != text.n_embd:
            yield "vision_encoder_config", f"has n_embd {vision.n_embd}, but the text decoder's is {text.n_embd}"
        if are_known(vision.n_classes) and vision.n_classes is not None:
            message = f"has n_classes {vision.n_classes}, but CoCa needs all tokens of the image: n_classes: null"
            yield "vision_encoder_config", message

    def _faults_of_keys(self) -> Iterator[tuple[str, str]]:
        taken = {self.prediction_key: "prediction_key"}
        for field in ("vision_cls_prediction_key", "text_cls_prediction_key"):
            key = getattr(self, field)
            if are_known(key) and key in taken:
                yield field, f"'{key}' is {taken[key]} already; predictions need names of their own"
            taken[key] = field
        vision_key, text_key = self.vision_encoder_config.sample_key, self.text_decoder_config.sample_key
        if are_known(vision_key, text_key) and vision_key == text_key:
            yield "text_decoder_config", f"has sample_key '{text_key}', where the images are"


def _faults_of_heads(field: str, n_embd: int, num_heads: int) -> Iterator[tuple[str, str]]:
    if are_known(n_embd, num_heads) and n_embd % num_heads:
        yield field, f"n_embd ({n_embd}) is not divisible by it ({num_heads})"
