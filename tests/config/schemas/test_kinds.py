"""A config file's kind is told by its content, even if some of it is missing or misspelt."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.config.check import check_config
from modalities_pipeline.config.registry import import_target
from modalities_pipeline.config.schemas.kinds import KINDS, kind_of

CONFIGS = Path(__file__).parents[3] / "configs"
RUN_SETTINGS = {"settings": {"step_profile": {}, "intervals": {}, "training_target": {}}}
CUDA_SETTINGS = {"settings": {"cuda_env": {"world_size": 1}, "referencing_keys": {}, "paths": {}}}
PACK_SETTINGS = {"settings": {"src_path": "a.jsonl", "dst_path": "a.pbin"}}
PARTS_OF_TRAINING = ("app_state", "loss_fn", "train_dataset", "train_dataloader", "eval_dataloaders", "optimizer")
REPORTS = ("progress_subscriber", "evaluation_subscriber", "checkpoint_saving", "gradient_clipper")
TRAINING: dict[str, Any] = {**RUN_SETTINGS, **dict.fromkeys((*PARTS_OF_TRAINING, *REPORTS, "model_raw"))}


def file_of(*names: str, **more: Any) -> dict[str, Any]:
    return {**more, **dict.fromkeys(names)}


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (file_of("optimizer", "loss_fn", "app_state", **RUN_SETTINGS), "training"),
        (file_of("optimizer", "gradient_clipper", "app_state", settings={"stepprofile": {}}), "training"),
        ({**TRAINING, "tokenizer": None, "profiler": None}, "training"),
        ({**TRAINING, "checkpointed_model": None}, "training"),
        (file_of("train_dataloader", "progress_subscriber", "evaluation_subscriber"), "training"),
        ({**TRAINING, "steppable_component": None}, "profiling"),
        (file_of("steppable_component", "profiler", "loss_fn", "optimizer", **CUDA_SETTINGS), "profiling"),
        ({**TRAINING, "text_inference_component": None}, "text_generation"),
        (file_of("text_inference_component", "tokenizer", "model", settings={"model_path": "x"}), "text_generation"),
        (file_of("checkpointed_model", "loss_fn", "optimizer", **CUDA_SETTINGS), "model"),
        (file_of("checkpointed_model", "model"), "model"),
        (file_of("tokenizer", **PACK_SETTINGS), "packing"),
        (file_of("tokenizer", settings={"jq_pattern": ".text"}), "packing"),
        (file_of("instruction_data_transformation", "jinja2_chat_template", **PACK_SETTINGS), "instruction_data"),
        (file_of("corpora", "tokenizer", "experiments"), "pipeline"),
    ],
)
def test_kinds_are_told_apart(data, kind):
    assert kind_of(data) == kind


@pytest.mark.parametrize(
    "data",
    [
        file_of("train_dataset", "train_dataloader", **CUDA_SETTINGS),
        file_of("train_dataset", "train_dataloader", "collate_fn", **CUDA_SETTINGS),
        file_of("train_dataset", "train_dataloader", "eval_dataloaders", "collate_fn", "tokenizer", **CUDA_SETTINGS),
        file_of("optimizer", "app_state", **CUDA_SETTINGS),
        file_of("optimizer", "app_state", "loss_fn", **CUDA_SETTINGS),
        file_of("optimizer", "loss_fn", **CUDA_SETTINGS),
        file_of("optimizer", "loss_fn", "gradient_clipper", "model", **CUDA_SETTINGS),
        file_of("optimizer", "app_state", "loss_fn", "train_dataset", "train_dataloader", **CUDA_SETTINGS),
        file_of("optimizer", "app_state", **RUN_SETTINGS),
        file_of("tokenizer", **CUDA_SETTINGS),
        file_of("tokenizer", "settings"),
        file_of("model", "device_mesh"),
        file_of("app_state_raw", "model_raw", "optimizer"),
        {},
    ],
)
def test_files_that_only_hold_parts_of_a_training_are_parts(data):
    assert kind_of(data) == "parts"


@pytest.mark.parametrize("missing", list(itertools.combinations(TRAINING, 2)))
def test_a_training_without_one_or_two_of_its_sections_stays_a_training(missing):
    assert kind_of({name: value for name, value in TRAINING.items() if name not in missing}) == "training"


@pytest.mark.parametrize("misspelt", list(itertools.combinations(TRAINING, 2)))
def test_a_training_with_one_or_two_of_its_sections_misspelt_stays_a_training(misspelt):
    def spelt(name: str) -> str:
        return f"{name[:2]}{name[3:]}" if name in misspelt else name

    assert kind_of({spelt(name): value for name, value in TRAINING.items()}) == "training"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_model(kind):
    assert import_target(KINDS[kind]).model_fields


@pytest.mark.parametrize("kind", ["packing", "text_generation"])
def test_a_config_of_another_kind_is_told_in_one_line(kind, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    report = check_config(CONFIGS / "train_gpu.yaml", kind=kind)
    words = f"is a config of the kind training, not {kind}; `modalities-pipeline run` takes it"
    assert [fault.message for fault in report.faults] == [words]
    assert not report.notes
