"""One training step of each model of `configs/training`; run by torchrun it does all of them, sharded."""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from building import CONFIGS, build_everything, load
from torch import nn
from torch.distributed.tensor import DTensor

from modalities_pipeline.batch import DatasetBatch
from modalities_pipeline.distributed.env import DistributedEnv, get_rank, get_world_size
from modalities_pipeline.models.model import model_predict_batch

# File in configs/training -> classes of the model's modules that become units of sharding.
BLOCK_NAMES = {
    "gpt2_llama_style": ["GPT2Block"],
    "gpt2_original_style": ["GPT2Block"],
    "gpt2_qk_norm": ["GPT2Block"],
    "gpt2_fused_loss": ["GPT2Block"],
    "huggingface": ["LlamaDecoderLayer"],
    "coca": ["VisionTransformerBlock", "TransformerBlock"],
}
GLOBAL_BATCH_SIZE = 4
NUM_CLASSES = 3


def build_step(name: str, data: Path) -> Any:
    """`app_model`, `loss_fn` and `optimizer` of a file, in one process."""
    components, _ = build_everything(load(CONFIGS / "training" / f"{name}.yaml", data))
    return components


def build_sharded_step(name: str, param_dtype: str, data: Path, folder: Path) -> Any:
    """The same with a sharded model."""
    file = folder / f"{name}_{get_rank()}.yaml"
    layers = [str(CONFIGS / "training" / f"{layer}.yaml") for layer in (name, "sharded")]
    file.write_text(f"extends: {layers}\n", encoding="utf-8")
    settings = {"block_names": BLOCK_NAMES[name], "mixed_precision_settings.param_dtype": param_dtype}
    overrides = {f"app_model.config.{key}": value for key, value in settings.items()}
    components, _ = build_everything(load(file, data, overrides))
    return components


def train_one_step(components: Any, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Forward, backward and optimizer step of this rank's part of a fixed batch; fails if a parameter stands still.

    Returns:
        loss: mean loss of the batch of all ranks. weights: name -> whole parameter after the step.
    """
    model: nn.Module = components.app_model
    before = {name: _whole(parameter) for name, parameter in model.named_parameters()}
    loss_sum, count = components.loss_fn.sum_and_count(model_predict_batch(model, _batch(dtype)))
    totals = torch.stack([loss_sum.detach().double(), count.double()])
    if dist.is_initialized():
        dist.all_reduce(totals)
    (loss_sum * get_world_size() / totals[1]).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
    components.optimizer.step()
    weights = {name: _whole(parameter) for name, parameter in model.named_parameters()}
    still = [name for name, weight in weights.items() if torch.equal(weight, before[name])]
    assert not still, f"the step did not change {still}"
    return {"loss": (totals[0] / totals[1]).item(), "weights": weights}


def _batch(dtype: torch.dtype) -> DatasetBatch:
    """Every model finds what it takes in it: token ids, their successors, and images with their classes."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(128, (GLOBAL_BATCH_SIZE, 13), generator=generator)
    images = torch.randn(GLOBAL_BATCH_SIZE, 3, 8, 8, generator=generator).to(dtype)
    own = slice(get_rank(), None, get_world_size())
    samples = {"input_ids": tokens[own, :-1], "images": images[own]}
    return DatasetBatch(samples, {"target_ids": tokens[own, 1:], "classes": tokens[own, 0] % NUM_CLASSES})


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
    return whole.detach().clone()


if __name__ == "__main__":
    data_folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    with DistributedEnv():
        results = {
            (model_name, precision): train_one_step(build_sharded_step(model_name, precision, data_folder, output))
            for model_name in BLOCK_NAMES
            for precision in ("FP_32", "BF_16")
        }
        torch.save(results, output / f"rank_{get_rank()}.pt")
