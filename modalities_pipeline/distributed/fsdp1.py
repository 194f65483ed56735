"""Fully sharded data parallelism with torch's older FullyShardedDataParallel (FSDP1)."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp import ShardingStrategy as TorchShardingStrategy
from torch.distributed.fsdp.wrap import CustomPolicy

from modalities_pipeline.distributed.blocks import find_blocks
from modalities_pipeline.distributed.configs import MixedPrecisionSettings, ShardingStrategy
from modalities_pipeline.distributed.env import current_device
from modalities_pipeline.exceptions import ConfigError, ModelStateError, RunningEnvError

_FP_16, _BF_16, _FP_32 = torch.float16, torch.bfloat16, torch.float32

_MIXED_PRECISIONS: dict[MixedPrecisionSettings, MixedPrecision | None] = {
    MixedPrecisionSettings.FP_16: MixedPrecision(_FP_16, _FP_16, _FP_16),
    MixedPrecisionSettings.BF_16: MixedPrecision(_BF_16, _BF_16, _BF_16),
    MixedPrecisionSettings.BF_16_WORKING: MixedPrecision(_FP_32, _BF_16, _BF_16),
    MixedPrecisionSettings.FP_32: MixedPrecision(_FP_32, _FP_32, _FP_32),
    MixedPrecisionSettings.MIXED_PRECISION_MEGATRON: MixedPrecision(_BF_16, _FP_32),
    MixedPrecisionSettings.NO_MIXED_PRECISION: None,
}
_HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy.HYBRID_SHARD_ZERO2)


def get_fsdp1_wrapped_model(
    model: nn.Module,
    sync_module_states: bool,
    mixed_precision_settings: MixedPrecisionSettings,
    sharding_strategy: ShardingStrategy,
    block_names: list[str],
) -> FullyShardedDataParallel:
    """A model whose parameters are split over all ranks, each module of a class in `block_names` being one unit.

    Optimizers see the model's own parameters (`use_orig_params`). On CUDA the hybrid strategies split parameters over
    the GPUs of a machine and copy them to the other machines.

    Args:
        model: with memory; it is changed in place.
        sync_module_states: whether all ranks take over the parameters and buffers of rank 0.
        mixed_precision_settings: dtypes of (parameters in a forward pass, reduced gradients, buffers); the parameters
            that are trained keep their dtype.
        sharding_strategy: see torch's `ShardingStrategy`.
        block_names: class names, as `GPT2Block`.

    Raises:
        ConfigError: a class of `block_names` is not in the model, or a hybrid strategy is asked for on the CPU.
        ModelStateError: the model is on the meta device.
        RunningEnvError: there is no process group.
    """
    if not dist.is_initialized():
        raise RunningEnvError("fsdp1_wrapped needs a process group. Build it inside distributed.env.DistributedEnv.")
    tensors = list(itertools.chain(model.parameters(), model.buffers()))
    if any(tensor.is_meta for tensor in tensors):
        raise ModelStateError(
            "fsdp1_wrapped: the model is on the meta device. Build it with use_meta_device: false, or give it weights "
            "with model_initialized first; fsdp2_wrapped takes such models."
        )
    units = set(find_blocks(model, block_names, "fsdp1_wrapped").values())
    device = current_device()
    is_on_cpu = device.type == "cpu"
    if is_on_cpu and sharding_strategy in _HYBRID:
        raise ConfigError(
            f"fsdp1_wrapped: sharding_strategy {sharding_strategy.name} is one of GPUs, and there are none here. "
            "Use FULL_SHARD, or fsdp2_wrapped with a data_parallel_replicate_degree."
        )
    if is_on_cpu and sync_module_states:  # torch refuses to do that on the CPU
        for tensor in tensors:
            dist.broadcast(tensor.detach(), src=0)
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=CustomPolicy(lambda module: module in units),
        device_id=device,
        use_orig_params=True,
        sync_module_states=sync_module_states and not is_on_cpu,
        mixed_precision=_MIXED_PRECISIONS[mixed_precision_settings],
        sharding_strategy=TorchShardingStrategy[sharding_strategy.value],
    )
