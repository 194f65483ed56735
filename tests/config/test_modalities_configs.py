"""Every combination of components in Modalities' own YAML files resolves and is valid, also in older spellings."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from modalities_files import generation, packing, parts, profiling
from modalities_models import fsdp2, mesh
from modalities_nodes import Node, loader, multi_dim, node, ref
from modalities_settings import settings, target_from_data
from modalities_special_trainings import (
    before_the_app_state,
    coca_training,
    einsum_transformer,
    getting_started,
    instruction_tuning,
    library_usage,
)
from modalities_trainings import (
    SEEN,
    STEP_PROFILE,
    TOKENIZER,
    fsdp1_training,
    fsdp1_warmstart,
    fsdp2_training,
    fsdp2_warmstart,
    pipeline_training,
)

from modalities_pipeline.config.check import check_config
from modalities_pipeline.config.registry import Registry

SP_TOKENIZER = node(
    "tokenizer/pretrained_sp_tokenizer", tokenizer_model_file="tokenizer.model", padding=False, truncation=False
)
CONFIGS: dict[str, tuple[Node, int]] = {  # name -> content, number of processes
    "fsdp2": (fsdp2_training(), 1),
    "fsdp2 on 8": (fsdp2_training(), 8),
    "fsdp2 tensor parallel": (
        fsdp2_training(
            settings=settings(
                step_profile=STEP_PROFILE | {"dp_degree": ref("dp_degree")},
                training_target=target_from_data(ref("dp_degree")),
            ),
            device_mesh=mesh(tensor=2),
            tp_model=node("model/gpt2_tp", model=ref("model_raw"), device_mesh=ref("device_mesh")),
            fsdp_model=fsdp2("tp_model"),
            train_dataloader=loader("train", "train_dataset", multi_dim("train_dataset")),
            val_dataloader=loader("val", "test_dataset", multi_dim("test_dataset")),
        ),
        4,
    ),
    "fsdp1": (fsdp1_training(), 1),
    "fsdp1 warm start": (fsdp1_warmstart(), 1),
    "fsdp1 warm start, first names": (fsdp1_warmstart("", "fsdp"), 1),
    "fsdp2 warm start": (fsdp2_warmstart(), 1),
    "fsdp2 warm start without mesh of the clipper": (
        fsdp2_warmstart(
            gradient_clipper=node(
                "gradient_clipper/fsdp2", wrapped_model=ref("app_model"), norm_type="P2_NORM", max_norm=1.0
            )
        ),
        1,
    ),
    "pipeline parallel": (pipeline_training(False), 2),
    "pipeline parallel, debugged": (pipeline_training(False, hooks=True), 2),
    "pipeline and tensor parallel": (pipeline_training(True), 4),
    "coca": (coca_training(), 1),
    "instruction tuning": (instruction_tuning(), 1),
    "getting started": (getting_started(), 1),
    "einsum transformer": (einsum_transformer(), 1),
    "before the app state": (before_the_app_state(), 1),
    "library usage": (library_usage(), 1),
    "profiling": (profiling(), 1),
    "generation": (generation(False), 1),
    "generation, norms as components": (generation(True), 1),
    "packing": (packing(TOKENIZER), 1),
    "packing with SentencePiece": (packing(SP_TOKENIZER), 1),
    "conversion": ({k: v for k, v in generation(False).items() if k != "text_inference_component"}, 1),
    "parts": (parts(), 1),
}
PLUGINS = {
    "einsum_transformer.py": "class EinsumTransformer:\n"
    "    def __init__(self, n_layer: int, n_embd: int, sample_key: str, prediction_key: str): ...\n",
    "custom_collator.py": "class CustomCollator:\n    def __init__(self, sample_key: str, target_key: str): ...\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Working directory with the files that have to exist, as far as a config names inputs."""
    monkeypatch.chdir(tmp_path)
    for name in ("raw.jsonl", "raw.idx", "model.bin", "tokenizer.model"):
        (tmp_path / name).touch()
    for name, source in PLUGINS.items():
        (tmp_path / name).write_text(source)
    paths = {
        "checkpoint_folder_path": f"{tmp_path}/{SEEN}",
        "model_checkpoint_path": f"{tmp_path}/{SEEN.replace('-seen_steps', '-model-seen_steps')}.bin",
        "optimizer_checkpoint_path": f"{tmp_path}/{SEEN.replace('-seen_steps', '-optimizer-seen_steps')}.bin",
    }
    dcp = "checkpoint_folder_path"
    (tmp_path / "fsdp2.json").write_text(json.dumps({dcp: paths[dcp]}))
    (tmp_path / "fsdp1.json").write_text(json.dumps({key: path for key, path in paths.items() if key != dcp}))
    return tmp_path


@pytest.mark.parametrize("name", CONFIGS)
def test_it_is_valid(name: str, folder: Path) -> None:
    content, world_size = CONFIGS[name]
    path = folder / "config.yaml"
    path.write_text(
        yaml.safe_dump({key: value for key, value in content.items() if value is not None}, sort_keys=False)
    )
    info = folder / ("fsdp1.json" if "fsdp1" in name else "fsdp2.json") if "warm start" in name else None
    report = check_config(path, world_size=world_size, last_checkpoint_info_file_path=info)
    refused = [("scheduled_pipeline",)] if name.startswith("pipeline") else []  # valid, but not trained yet
    assert [fault.key_path for fault in report.faults] == refused, report.text()


def test_together_they_use_every_component() -> None:
    used = {name for content, _ in CONFIGS.values() for name in _components(content)}
    registered = {(entity.component_key, entity.variant_key) for entity in Registry().entities()}
    ours = {
        ("number_conversion", "vocab_size_from_packed_dataset"),
        ("loss", "nce_loss"),
        ("loss", "weighted_sum"),
        ("gradient_clipper", "dummy"),
    }
    assert registered - used == ours


def _components(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        if "component_key" in value and "config" in value:
            yield value["component_key"], value["variant_key"]
        for item in value.values():
            yield from _components(item)
    elif isinstance(value, list):
        for item in value:
            yield from _components(item)
