"""Config of the model gpt2. Imports no torch."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AliasChoices, Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, are_known, raise_at_keys
from modalities_pipeline.models.attention_configs import (
    AttentionConfig,
    AttentionImplementation,
    RotaryTransformEntry,
)
from modalities_pipeline.models.norm_configs import LayerNormWrapperConfig, NormField, StrictDimension

# Tensor cores and FSDP shards like widths that are multiples of it; Modalities demands it.
_WIDTH_MULTIPLE = 128


class PositionTypes(StrEnum):
    """Learned absolute positions, or none in the embedding (rotary ones are a qkv transform)."""

    ABSOLUTE = "ABSOLUTE"
    NOPE = "NOPE"


class ActivationType(StrEnum):
    """Which feed-forward network a block has."""

    GELU = "gelu"
    SWIGLU = "swiglu"


class FusedLossConfig(ComponentConfig):
    """How the head and the cross entropy are computed together, without the logits of a whole batch in memory."""

    target_key: Annotated[
        str, Field(examples=["target_ids"], description="key of the token ids to be predicted, as the loss has it")
    ]
    num_tokens_per_chunk: Annotated[
        StrictDimension, Field(description="so many tokens' logits are in memory at a time")
    ] = 1024


_EXAMPLE_OF_ATTENTION = {
    "qkv_transforms": [
        {
            "type_hint": "RotaryTransform",
            "config": {"n_embd": 768, "n_head": 12, "seq_length_dim": -2, "base_freq": 10_000},
        }
    ]
}


def _norm(*names: str) -> Any:
    example = {"norm_type": "pytorch_rms_norm", "config": {"normalized_shape": 768}}
    return Field(validation_alias=AliasChoices(*names), examples=[example], description="of size n_embd")


class GPT2LLMConfig(ComponentConfig):
    """Fields of the model. `ffn_hidden` is the width of the GELU network; SwiGLU takes two thirds of it.

    Norms may also be given as components `layer_norm/...`, under names without `_config`, as in Modalities' first
    releases.
    """

    sample_key: Annotated[str, Field(examples=["input_ids"], description="key of the token ids in a batch's samples")]
    prediction_key: Annotated[str, Field(examples=["logits"], description="key of the logits in the predictions")]
    use_meta_device: Annotated[
        bool | None, Field(description="whether to build shapes only; `model_initialized` gives memory and weights")
    ] = False
    poe_type: Annotated[PositionTypes, Field(examples=["NOPE"], description="NOPE goes with a RotaryTransform")]
    sequence_length: Annotated[StrictDimension, Field(examples=[2048], description="most tokens of a sample")]
    vocab_size: Annotated[
        StrictDimension, Field(examples=[50_304], description="rows of the embedding, a multiple of 128")
    ]
    n_layer: Annotated[StrictDimension, Field(examples=[12], description="number of blocks")]
    n_head_q: Annotated[StrictDimension, Field(examples=[12], description="query heads")]
    n_head_kv: Annotated[
        StrictDimension, Field(examples=[4], description="heads of keys and values; fewer than query heads: GQA")
    ]
    n_embd: Annotated[StrictDimension, Field(examples=[768], description="width of the model, a multiple of 128")]
    ffn_hidden: Annotated[
        StrictDimension, Field(examples=[3072], description="width of the feed-forward network, a multiple of 128")
    ]
    dropout: Annotated[
        float,
        Field(strict=True, ge=0.0, lt=1.0, examples=[0.0], description="part of the activations set to 0 in training"),
    ]
    bias: Annotated[bool, Field(description="whether the linears of attention and feed-forward network have biases")]
    attention_config: Annotated[AttentionConfig, Field(examples=[_EXAMPLE_OF_ATTENTION])]
    attention_implementation: Annotated[
        AttentionImplementation,
        Field(examples=["pytorch_flash"], description="dao_flash needs the package flash-attn; manual is the slowest"),
    ]
    activation_type: Annotated[ActivationType, Field(examples=["swiglu"], description="of the feed-forward network")]
    attention_norm_config: NormField = _norm("attention_norm_config", "attention_norm")
    ffn_norm_config: NormField = _norm("ffn_norm_config", "ffn_norm")
    lm_head_norm_config: NormField = _norm("lm_head_norm_config", "lm_head_norm")
    use_weight_tying: Annotated[
        # Configs without it are older than the choice, when the weights were always shared.
        bool, Field(description="whether the head shares its weights with the token embedding")
    ] = True
    seed: Annotated[int | None, Field(description="decides the initial weights; null is 0")] = None
    enforce_swiglu_hidden_dim_multiple_of: Annotated[
        int, Field(ge=1, description="the width of SwiGLU is rounded up to a multiple of it")
    ] = 256
    attention_dropout_in_evaluation: Annotated[
        bool, Field(description="whether the dropout of attention weights stays on in evaluations, as in Modalities")
    ] = False
    fused_loss: Annotated[
        FusedLossConfig | None,
        Field(
            description="computes the summed cross entropy in the model, in chunks, instead of the logits, when there "
            "are targets: less memory, and `clm_cross_entropy_loss` has the same value; not for pipelines and tensor "
            "parallelism"
        ),
    ] = None

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.n_embd // self.n_head_q

    @model_validator(mode="after")
    def _check_shapes(self) -> Self:
        raise_at_keys(self, [*self._faults_of_divisibility(), *self._faults_of_positions(), *self._faults_of_norms()])
        return self

    def _faults_of_divisibility(self) -> Iterator[tuple[str, str]]:
        for name, divisor_name in (("n_head_q", "n_head_kv"), ("n_embd", "n_head_q")):
            value, divisor = getattr(self, name), getattr(self, divisor_name)
            if are_known(value, divisor) and value % divisor:
                yield name, f"{value} is not divisible by {divisor_name} ({divisor})"
        for name in ("ffn_hidden", "vocab_size", "n_embd"):
            value = getattr(self, name)
            if are_known(value) and value % _WIDTH_MULTIPLE:
                yield name, f"{value} is not divisible by {_WIDTH_MULTIPLE}"

    def _faults_of_positions(self) -> Iterator[tuple[str, str]]:
        for entry in self.attention_config.qkv_transforms:
            if not isinstance(entry, RotaryTransformEntry):
                continue
            if self.poe_type is not PositionTypes.NOPE:
                yield "poe_type", f"has to be NOPE with a RotaryTransform, not {self.poe_type.value}"
            given, wanted = (entry.config.n_embd, entry.config.n_head), (self.n_embd, self.n_head_q)
            if not are_known(*given, *wanted):
                continue
            if 0 in given or given[0] // given[1] != self.head_dim:  # only the size of a head counts
                yield (
                    "attention_config",
                    f"RotaryTransform has n_embd {given[0]} and n_head {given[1]}; they must be the model's n_embd "
                    f"({wanted[0]}) and n_head_q ({wanted[1]})",
                )
            elif self.head_dim % 2:
                yield "attention_config", f"RotaryTransform needs heads of even size, but theirs is {self.head_dim}"

    def _faults_of_norms(self) -> Iterator[tuple[str, str]]:
        for name in ("attention_norm_config", "ffn_norm_config", "lm_head_norm_config"):
            size = _size_of_norm(getattr(self, name))
            if size is not None and are_known(self.n_embd) and size != self.n_embd:
                yield name, f"the norm is of size {size}; it must be n_embd ({self.n_embd})"
        size = _size_of_norm(self.attention_config.qk_norm_config)
        if size is not None and are_known(self.n_embd, self.n_head_q) and size != self.head_dim:
            yield "attention_config", f"qk_norm_config is of size {size}; it must be one head's ({self.head_dim})"


def swiglu_hidden_dim(ffn_hidden: int, multiple_of: int) -> int:
    """Hidden width of SwiGLU: two thirds of `ffn_hidden`, as it has three matrices, rounded up to `multiple_of`."""
    return -(int(2 * ffn_hidden / 3) // -multiple_of) * multiple_of


def _size_of_norm(norm: Any) -> int | None:
    """The dimension of a norm that is there, valid, and known before anything is built."""
    if not isinstance(norm, LayerNormWrapperConfig) or not are_known(norm.dimension):
        return None
    return norm.dimension
