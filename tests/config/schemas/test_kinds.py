"""A config file's kind is told by its top-level keys, even if some are missing or misspelt."""

import pytest

from modalities_pipeline.config.registry import import_target
from modalities_pipeline.config.schemas.kinds import KINDS, kind_of

TRAINING = ("settings", "app_state", "loss_fn", "train_dataset", "train_dataloader", "eval_dataloaders", "model_raw")


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        (TRAINING, "training"),
        (("setings", *TRAINING[1:]), "training"),
        (("settings", "optimizer", "gradient_clipper"), "training"),
        ((*TRAINING, "tokenizer", "profiler"), "training"),
        ((*TRAINING, "checkpointed_model"), "training"),
        (("settings", "tokenizer"), "packing"),
        (("settings", "text_inference_component", "tokenizer", "model"), "text_generation"),
        (("settings", "instruction_data_transformation", "jinja2_chat_template"), "instruction_data"),
        (("settings", "steppable_component", "profiler"), "profiling"),
        (("checkpointed_model", "model"), "model"),
        (("corpora", "tokenizer", "experiments"), "pipeline"),
        (("model", "device_mesh"), "parts"),
        (("app_state_raw", "model_raw", "optimizer"), "parts"),
        ((), "parts"),
    ],
)
def test_kinds_are_told_apart(keys, kind):
    assert kind_of(dict.fromkeys(keys)) == kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_model(kind):
    assert import_target(KINDS[kind]).model_fields
