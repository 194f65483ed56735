"""A training of a few lines of numbers, without files."""

from typing import Any

import torch
from torch import nn

from modalities_pipeline.batch import DatasetBatch
from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.loss_functions import CLMCrossEntropyLoss
from modalities_pipeline.optim.gradient_clipping import FSDPGradientClipper, GradientClipperIF, GradientClippingMode
from modalities_pipeline.trainer import Trainer

LOSS = CLMCrossEntropyLoss(target_key="target_ids", prediction_key="logits")


class TinyModel(nn.Module):
    """One logit vector per token; has no randomness."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, 128)
        with torch.no_grad():
            self.embedding.weight.copy_(torch.linspace(-1, 1, 128 * 128).reshape(128, 128).sin())

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"logits": self.embedding(inputs["input_ids"])}


def make_batches(batch_size: int, mask_up_to: int, count: int = 8) -> list[DatasetBatch]:
    """`count` samples in batches; the first `mask_up_to` targets of every odd sample do not count."""
    tokens = (torch.arange(count * 17).reshape(count, 17) ** 2 * 7 + 11) % 128
    targets = tokens[:, 1:].clone()
    targets[1::2, :mask_up_to] = -100
    return [
        DatasetBatch(
            {"input_ids": tokens[start : start + batch_size, :-1]}, {"target_ids": targets[start : start + batch_size]}
        )
        for start in range(0, count, batch_size)
    ]


class ListLoader(list):
    dataloader_tag = "train"


def train_tiny(
    publisher,
    batches: list,
    gradient_acc_steps: int,
    log_interval: int = 1,
    model: nn.Module | None = None,
    num_steps: int | None = None,
    max_norm: float = 1e9,
    gradient_clipper: GradientClipperIF | None = None,
    **options: Any,
) -> AppState:
    model = model or TinyModel()
    app_state = AppState(model, torch.optim.SGD(model.parameters(), lr=1.0))
    num_steps = num_steps or len(batches) // gradient_acc_steps
    trainer = Trainer(
        global_rank=0,
        progress_publisher=publisher,
        evaluation_result_publisher=publisher,
        gradient_acc_steps=gradient_acc_steps,
        global_num_tokens_per_train_step=8 * 16,
        device_mesh=None,
        num_seen_train_steps=0,
        global_num_seen_tokens=0,
        num_target_steps=num_steps,
        num_target_tokens=num_steps * 8 * 16,
        gradient_clipper=gradient_clipper or FSDPGradientClipper(model, GradientClippingMode.P2_NORM, max_norm),
        **options,
    )
    trainer.train(
        app_state,
        ListLoader(batches),
        LOSS,
        log_interval,
        lambda num_train_steps_done: None,
        lambda training_progress: None,
    )
    return app_state
