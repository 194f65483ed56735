"""CoCa trains: contrastive and captioning, with what trains any other model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from coca_helpers import coca_config

from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.folders import find_latest_checkpoint
from modalities_pipeline.config.schemas.training import TrainingComponentsInstantiationModel
from modalities_pipeline.dataloading.collators import CoCaCollatorFn
from modalities_pipeline.loss_functions import CLMCrossEntropyLoss, NCELoss, WeightedSumLoss
from modalities_pipeline.main import Main
from modalities_pipeline.models.coca import build_coca
from modalities_pipeline.models.initialization import get_composed_model_initializer, get_initialized_model
from modalities_pipeline.models.model import model_predict_batch
from modalities_pipeline.optim.gradient_clipping import FSDPGradientClipper, GradientClippingMode
from modalities_pipeline.optim.optimizers import get_adam_w
from modalities_pipeline.reporting.to_disc import read_results
from modalities_pipeline.trainer import Trainer

CONFIG = Path(__file__).parent / "configs" / "coca_training.yaml"
NUM_STEPS, BATCH_SIZE, NUM_TOKENS = 40, 8, 12


class _Batches(list[Any]):
    dataloader_tag = "train"


def _samples() -> list[dict[str, Any]]:
    """Captions of 13 tokens, each with an image of its own."""
    generator = torch.Generator().manual_seed(1)
    return [
        {
            "images": torch.randn(3, 8, 8, generator=generator).numpy(),
            "captions": torch.randint(64, (NUM_TOKENS + 1,), generator=generator).numpy(),
        }
        for _ in range(BATCH_SIZE)
    ]


def test_both_losses_fall_when_coca_is_trained_on_pairs(publisher, recorder):
    """W21: NCE was not usable with the embeddings of CoCa, (batch, 1, width)."""
    collate = CoCaCollatorFn(["images", "captions"], [], "captions", "target_ids")
    batch = collate(_samples())
    model = build_coca(**coca_config(text={"sample_key": "captions"}))
    get_initialized_model(model, get_composed_model_initializer("coca", "scaled", 0.0, 0.1, num_layers=2))
    captioning = CLMCrossEntropyLoss("target_ids", "logits")
    contrastive = NCELoss("vision_cls", "text_cls", is_asymmetric=False, temperature=4.0)
    losses = [captioning, contrastive]

    def values() -> list[float]:
        with torch.no_grad():
            return [loss(model_predict_batch(model, batch)).item() for loss in losses]

    before = values()
    optimizer = get_adam_w(3e-3, model, (0.9, 0.95), 1e-8, 0.1, ["embedding", "layernorm"])
    num_tokens = BATCH_SIZE * NUM_TOKENS
    trainer = Trainer(
        global_rank=0,
        progress_publisher=publisher,
        evaluation_result_publisher=publisher,
        gradient_acc_steps=1,
        global_num_tokens_per_train_step=num_tokens,
        device_mesh=None,
        num_seen_train_steps=0,
        global_num_seen_tokens=0,
        num_target_steps=NUM_STEPS,
        num_target_tokens=NUM_STEPS * num_tokens,
        gradient_clipper=FSDPGradientClipper(model, GradientClippingMode.P2_NORM, 1.0),
    )
    trainer.train(
        AppState(model, optimizer),
        _Batches([batch] * NUM_STEPS),
        WeightedSumLoss(losses, [1.0, 0.5]),
        NUM_STEPS,
        lambda num_train_steps_done: None,
        lambda training_progress: None,
    )
    after = values()
    assert after[0] < 0.8 * before[0]
    assert after[1] < 0.5 * before[1]
    assert recorder.events[-1].losses["train loss last"].value.item() == pytest.approx(after[0] + after[1] / 2, rel=0.2)


@pytest.mark.slow
def test_a_config_trains_coca_in_one_process(process_group, tmp_path):
    """Sharded by the class names of its blocks, from the meta device, with a checkpoint at the end."""
    main = Main(CONFIG, experiments_root_path=tmp_path, experiment_id="coca")
    main.run(main.build_components(TrainingComponentsInstantiationModel))
    results = read_results(tmp_path / "coca" / "metrics.jsonl")
    losses = [result["losses"]["train loss avg"] for result in results if result["dataloader_tag"] == "train"]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert find_latest_checkpoint(tmp_path / "coca" / "checkpoints").name.endswith("target_tokens_384")
