"""Tensor parallelism of gpt2 models: matrices and heads are split over ranks, activations between them over T.

See https://arxiv.org/abs/1909.08053 and, for the activations, https://arxiv.org/abs/2205.05198.
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from modalities_pipeline.config.model_parts import for_each_part
from modalities_pipeline.distributed.configs import ParallelismDegrees
from modalities_pipeline.distributed.mesh import get_mesh_for_parallelism_method, has_parallelism_method
from modalities_pipeline.exceptions import ConfigError, UserError

Plan = dict[str, ParallelStyle]

_SEQUENCE = 1  # dimension of hidden states of shape (batch, T, n_embd)
_HEADS = 1  # dimension of queries and keys of shape (batch, heads, T, head_dim)
_BLOCK = {"attention_norm", "attn", "ffn_norm", "mlp"}
_GELU_MLP, _SWIGLU_MLP = {"c_fc", "c_proj"}, {"W", "V", "W_2"}


@for_each_part("model")
def get_gpt2_tensor_parallelized_model(model: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
    """Split a gpt2 model, or a stage of one, in place over the tensor parallel ranks of a mesh, and return it.

    Every rank gives the model the same token ids, whose length T is a multiple of the number of ranks, and gets the
    same whole logits; other ids are refused in the forward pass. This comes before any other wrapper; a model on the
    meta device gets its weights afterwards.

    Raises:
        ConfigError: the model is no gpt2 model, is wrapped already or has a fused loss; its heads or hidden features
            cannot be split evenly; the mesh has no dimension tp, or has dp_replicate.
    """
    if has_parallelism_method(device_mesh, ParallelismDegrees.DP_REPLICATE):
        raise ConfigError("gpt2_tp: the device mesh has a dimension dp_replicate. Use data_parallel_shard_degree.")
    mesh = get_mesh_for_parallelism_method(device_mesh, ParallelismDegrees.TP)
    transformer = _gpt2_transformer(model)
    blocks = dict(transformer["h"].named_children())
    faults = [fault for name, block in blocks.items() for fault in _faults(name, block, mesh.size())]
    if faults:
        raise ConfigError(f"gpt2_tp: {'; '.join(faults)}.")
    weights = [transformer[name].weight for name in ("wte", "lm_head") if name in transformer]
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    for block in blocks.values():
        for field in ("n_head_q", "n_head_kv"):
            setattr(block.attn, field, getattr(block.attn, field) // mesh.size())
        parallelize_module(block, mesh, _block_plan(block))
    parallelize_module(transformer, mesh, _ends_plan(transformer))
    if len(weights) == 2 and weights[0] is weights[1]:  # as both are split by tokens, they can go on to be one
        transformer["wte"].weight = transformer["lm_head"].weight
    for name in frozen:  # torch forgets it of norms
        model.get_parameter(name).requires_grad_(False)
    if "wte" in transformer:
        transformer["wte"].register_forward_pre_hook(_TokenCheck(mesh), prepend=True)
    return model


def _gpt2_transformer(model: nn.Module) -> nn.ModuleDict:
    """The dict of a model's layers."""
    if getattr(model, "fused_loss_target_key", None) is not None:
        raise ConfigError(
            "gpt2_tp: the model has a fused loss, which needs whole matrices. Set its fused_loss to null."
        )
    if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        raise ConfigError("gpt2_tp: the model is sharded already. Put gpt2_tp before fsdp2_wrapped.")
    transformer = dict(model.named_children()).get("transformer")
    layers = transformer["h"] if isinstance(transformer, nn.ModuleDict) and "h" in transformer else None
    if not isinstance(transformer, nn.ModuleDict) or not isinstance(layers, nn.ModuleDict):
        raise ConfigError(
            f"gpt2_tp: {type(model).__name__} has no layers transformer.h. Give it a gpt2 model as it was built."
        )
    return transformer


def _faults(name: str, block: nn.Module, degree: int) -> Iterator[str]:
    """Why a layer cannot be split over `degree` ranks."""
    if not _children(block) >= _BLOCK:
        yield f"layer {name} is wrapped already; put gpt2_tp before activation checkpointing and compilation"
        return
    attention, mlp = block.get_submodule("attn"), block.get_submodule("mlp")
    for field in ("n_head_q", "n_head_kv"):
        num_heads = getattr(attention, field)
        if num_heads % degree:
            yield f"{field} {num_heads} of layer {name} is not a multiple of the {degree} ranks"
    if not (_children(mlp) >= _GELU_MLP or _children(mlp) >= _SWIGLU_MLP):
        yield f"the MLP of layer {name}, {type(mlp).__name__}, is neither GELU nor SwiGLU"
        return
    hidden_dim = mlp.get_parameter("W.weight" if "W" in _children(mlp) else "c_fc.weight").shape[0]
    if hidden_dim % degree:
        yield f"the hidden dimension of the MLP of layer {name}, {hidden_dim}, is not a multiple of the {degree} ranks"


def _children(module: nn.Module) -> set[str]:
    return {name for name, _ in module.named_children()}


def _block_plan(block: nn.Module) -> Plan:
    gathered = PrepareModuleInput(input_layouts=Shard(_SEQUENCE), desired_input_layouts=Replicate())
    plan: Plan = {
        "attention_norm": SequenceParallel(),
        "ffn_norm": SequenceParallel(),
        "attn": gathered,
        "mlp": gathered,
        "attn.q_attn": ColwiseParallel(),
        "attn.k_attn": ColwiseParallel(),
        "attn.v_attn": ColwiseParallel(),
        "attn.c_proj": RowwiseParallel(output_layouts=Shard(_SEQUENCE)),
    }
    if "q_norm" in _children(block.get_submodule("attn")):
        # Each rank normalises its heads, so that the gradient of the gain is the sum over all ranks.
        norm = SequenceParallel(sequence_dim=_HEADS, use_local_output=True)
        plan |= {"attn.q_norm": norm, "attn.k_norm": norm}
    first, last = (("W", "V"), "W_2") if "W" in _children(block.get_submodule("mlp")) else (("c_fc",), "c_proj")
    plan |= {f"mlp.{name}": ColwiseParallel() for name in first}
    return {**plan, f"mlp.{last}": RowwiseParallel(output_layouts=Shard(_SEQUENCE))}


def _ends_plan(transformer: nn.ModuleDict) -> Plan:
    """Of what comes before and after the layers, as far as a stage has it."""
    plan: Plan = {
        "wte": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(_SEQUENCE)),
        "wpe": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0)),
        "lm_head_norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(_SEQUENCE), output_layouts=Replicate()),
    }
    return {name: style for name, style in plan.items() if name in transformer and list(transformer[name].parameters())}


class _TokenCheck:
    """Looks at token ids before the embedding: their length, and, in the first batch of each mode, if all ranks agree.

    Ranks with different samples would mix them up in each sum, and nothing would show it but a bad loss.
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh
        self._checked_modes: set[bool] = set()

    def __call__(self, embedding: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        token_ids = inputs[0]
        length, degree = token_ids.shape[-1], self._mesh.size()
        if length % degree:
            raise UserError(
                f"The model got {length} tokens per sample, not a multiple of its {degree} ranks (gpt2_tp)."
            )
        if embedding.training not in self._checked_modes:
            self._checked_modes.add(embedding.training)
            self._refuse_different(token_ids)

    def _refuse_different(self, token_ids: torch.Tensor) -> None:
        lowest, highest, group = token_ids.clone(), token_ids.clone(), self._mesh.get_group()
        dist.all_reduce(lowest, dist.ReduceOp.MIN, group)
        dist.all_reduce(highest, dist.ReduceOp.MAX, group)
        if not torch.equal(lowest, highest):
            raise ConfigError(
                "gpt2_tp: the tensor parallel ranks got different samples. Use the sampler "
                "resumable_distributed_multi_dim_sampler with the device mesh, for evaluation, too."
            )
