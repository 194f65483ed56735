"""How much memory a training will need on each rank, estimated from its config."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from modalities_pipeline.config.model_parts import models_inside
from modalities_pipeline.config.schemas.sections import Sections, base_model_of, look, number
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.distributed.configs import static_parallel_degree
from modalities_pipeline.progress.gpt2_size import GPT2Size, gpt2_size

_FP32_IN_BYTES = 4
_HALF_IN_BYTES = 2
_NUM_MOMENTS = 2  # of Adam and AdamW, the optimizers that there are
_NUM_LOGIT_COPIES_IN_FP32 = 2  # the loss computes in float32, and its gradient is of that size, too


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on one rank, at the most needed moment of a step. Buffers of the libraries and fragmentation come on top.

    Attributes:
        parameters: this rank's shard, in float32, whatever the model computes in (mixed precision of FSDP2 keeps it).
        gradients: of the same size.
        optimizer_states: Adam's two moments, in float32.
        gathered_parameters: what FSDP2 gathers for computing, in the compute dtype: the whole model if
            `reshard_after_forward` is false, else embeddings and head, and two blocks (the next is fetched early).
        activations: what the backward pass needs of one micro batch (see `gpt2_size`), and the logits. With activation
            checkpointing, of each block but the one at work only its input. With a fused loss, instead of all logits
            those of a chunk, and the gradients of the head in float32, which it makes in the forward pass.
    """

    parameters: int
    gradients: int
    optimizer_states: int
    gathered_parameters: int
    activations: int

    @property
    def total(self) -> int:
        """Sum of all."""
        return sum(dataclasses.astuple(self))


def estimate_memory(sections: Sections) -> MemoryEstimate | None:
    """The estimate for the model `gpt2`; None for other models, and if a number is not known.

    The static part is 16 bytes a parameter (4 for itself, 4 for its gradient, 8 for the moments of Adam), divided by
    the shards: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
    section 3.1, for a float32 master copy that is the only one. Activations are counted as by Korthikanti et al. 2022,
    "Reducing Activation Recomputation in Large Transformer Models", section 4.1, without dropout masks, and for the
    parts that our blocks have.
    """
    model, wrappers = base_model_of(sections), list(_wrappers_of(sections))
    size = gpt2_size(model.config) if isinstance(model, Unbuilt) and model.variant_key == "gpt2" else None
    batch_size = number(sections, "settings", "step_profile", "local_train_micro_batch_size")
    length = number(sections, "settings", "step_profile", "sequence_length")
    if size is None or batch_size is None or length is None:
        return None
    wrapper = next((wrapper for wrapper in wrappers if wrapper.variant_key == "fsdp2_wrapped"), None)
    bytes_per_value = _compute_bytes(wrappers)
    shard = -(-size.num_parameters // _num_shards(sections, wrappers))
    return MemoryEstimate(
        parameters=shard * _FP32_IN_BYTES,
        gradients=shard * _FP32_IN_BYTES,
        optimizer_states=shard * _FP32_IN_BYTES * _NUM_MOMENTS,
        gathered_parameters=_num_gathered(size, wrapper) * bytes_per_value,
        activations=batch_size * length * _activation_bytes_per_token(size, wrappers, bytes_per_value)
        + _logit_bytes(size, batch_size * length, look(model, "fused_loss", "num_tokens_per_chunk"), bytes_per_value),
    )


def _wrappers_of(sections: Sections) -> Iterator[Unbuilt]:
    """The wrappers of the model that is trained, from the outermost inwards."""
    app_state = sections.get("app_state")
    return models_inside(look(app_state, "model") or look(app_state, "raw_app_state", "model"))


def _num_shards(sections: Sections, wrappers: list[Unbuilt]) -> int:
    if not any("fsdp" in str(wrapper.variant_key) for wrapper in wrappers):
        return 1
    num_shards = static_parallel_degree(sections.get("device_mesh"), ["dp_shard", "tp", "pp"])
    return num_shards or number(sections, "settings", "cuda_env", "world_size") or 1


def _compute_bytes(wrappers: list[Unbuilt]) -> int:
    """Bytes of a value in the dtype that blocks compute in."""
    for wrapper in wrappers:
        precision = look(wrapper, "mixed_precision_settings")
        precision = look(precision, "param_dtype") or precision
        if precision is not None:
            name = str(getattr(precision, "name", precision))
            return _HALF_IN_BYTES if name.startswith(("BF_16", "FP_16", "MIXED")) else _FP32_IN_BYTES
    return _FP32_IN_BYTES


def _num_gathered(size: GPT2Size, wrapper: Unbuilt | None) -> int:
    if wrapper is None:
        return 0
    if look(wrapper, "reshard_after_forward") is False:
        return size.num_parameters
    outside = size.num_parameters - size.num_layers * size.num_block_parameters
    return outside + min(2 * (number(wrapper, "layers_per_fsdp_unit") or 1), size.num_layers) * (
        size.num_block_parameters
    )


def _activation_bytes_per_token(size: GPT2Size, wrappers: list[Unbuilt], bytes_per_value: int) -> int:
    num_full_blocks, num_inputs = size.num_layers, 0
    if any("activation_checkpointed" in str(wrapper.variant_key) for wrapper in wrappers):
        num_full_blocks, num_inputs = 1, size.num_layers
    width = size.num_kept_per_token_outside // 2
    kept = num_full_blocks * size.num_kept_per_token_and_block + num_inputs * width + size.num_kept_per_token_outside
    return kept * bytes_per_value


def _logit_bytes(size: GPT2Size, num_tokens: int, num_tokens_per_chunk: Any, bytes_per_value: int) -> int:
    """Bytes of the logits and of what the loss makes of them; `num_tokens_per_chunk` is that of a fused loss."""
    if not isinstance(num_tokens_per_chunk, int):
        return num_tokens * size.vocab_size * (bytes_per_value + _NUM_LOGIT_COPIES_IN_FP32 * _FP32_IN_BYTES)
    num_rows, width = min(num_tokens, num_tokens_per_chunk), size.num_kept_per_token_outside // 2
    return size.vocab_size * (num_rows * (bytes_per_value + _FP32_IN_BYTES) + width * _FP32_IN_BYTES)
