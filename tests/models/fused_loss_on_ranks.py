"""A sharded model with fused loss against a whole one without; run by torchrun, raises where they differ."""

import json
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from modalities_pipeline.batch import DatasetBatch
from modalities_pipeline.distributed.env import DistributedEnv, get_rank, get_world_size
from modalities_pipeline.distributed.gradients import set_gradient_synchronisation
from modalities_pipeline.loss_functions import IGNORE_INDEX, CLMCrossEntropyLoss
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.model import model_predict_batch

NUM_MICRO_BATCHES = 2
LOSS = CLMCrossEntropyLoss(target_key="target_ids", prediction_key="logits")


def make_samples() -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and targets of one sample for each micro batch and rank; different numbers of targets count."""
    shape = (2, NUM_MICRO_BATCHES * get_world_size(), 9)
    ids, targets = torch.randint(128, shape, generator=torch.Generator().manual_seed(0))
    targets[1, 5:] = IGNORE_INDEX
    targets[2, :] = IGNORE_INDEX
    return ids, targets


def compare(config: dict) -> None:
    """Loss and gradients of a step."""
    fused_loss = {"target_key": "target_ids", "num_tokens_per_chunk": 4}
    whole, fused = build_gpt2(**config), build_gpt2(**config, fused_loss=fused_loss)
    for block in fused.transformer["h"].children():
        fully_shard(block)
    fully_shard(fused)
    ids, targets = make_samples()
    expected, count = LOSS.sum_and_count(
        model_predict_batch(whole, DatasetBatch({"input_ids": ids}, {"target_ids": targets}))
    )
    (expected / count).backward()
    actual = torch.zeros(())
    for micro_batch in range(NUM_MICRO_BATCHES):
        set_gradient_synchronisation(fused, is_last_micro_batch=micro_batch == NUM_MICRO_BATCHES - 1)
        mine = slice(micro_batch * get_world_size() + get_rank(), None, NUM_MICRO_BATCHES * get_world_size())
        batch = DatasetBatch({"input_ids": ids[mine]}, {"target_ids": targets[mine]})
        loss_sum, _ = LOSS.sum_and_count(model_predict_batch(fused, batch))
        (loss_sum * get_world_size() / count).backward()  # gradients are averaged over ranks
        actual += loss_sum.detach()
    dist.all_reduce(actual)
    torch.testing.assert_close(actual, expected.detach(), rtol=1e-6, atol=0)
    for (name, parameter), wanted in zip(fused.named_parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(
            parameter.grad.full_tensor(),
            wanted.grad,
            rtol=1e-4,
            atol=1e-6,
            msg=lambda text, name=name: f"{name}: {text}",
        )


if __name__ == "__main__":
    with DistributedEnv():
        for tied in (False, True):
            compare({**json.loads(sys.argv[1]), "use_weight_tying": tied})
