"""Files that the configs of this folder name by `${data:...}`."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from building import CONFIGS, build_everything, load

from modalities_pipeline.api import create_raw_data_index
from modalities_pipeline.data.manifest import BuildResult, StageIdentity, record
from modalities_pipeline.data.pbin import PackedFileWriter


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory, tiny_wordlevel_dir: Path, tiny_sp_file: Path) -> Path:
    """A folder of tokenizers, data files, a Hugging Face model, and checkpoints of the model of `gpt2.yaml`."""
    folder = tmp_path_factory.mktemp("data")
    shutil.copytree(tiny_wordlevel_dir, folder / "tiny_wordlevel")
    shutil.copy(tiny_sp_file, folder)
    _write_documents(folder)
    _save_hf_model(folder / "hf_model")
    _save_checkpoints(folder)
    return folder


def _write_documents(folder: Path) -> None:
    lines = '{"text": "hello world"}\n{"text": "the cat"}\n'
    (folder / "documents.jsonl").write_text(lines, encoding="utf-8")
    create_raw_data_index(folder / "documents.jsonl", folder / "documents.idx")
    pack = folder / "tokens.pbin"
    with PackedFileWriter(pack, 2) as writer:
        for _ in range(8):
            writer.write_document(np.arange(5))
    record(StageIdentity("merged_pbin", "1", {}, {}), pack, BuildResult(details={"num_token_ids": 20}), 0.0)


def _save_hf_model(folder: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=128)).save_pretrained(folder)


def _save_checkpoints(folder: Path) -> None:
    from modalities_pipeline.checkpointing.strategies import CheckpointingInstruction
    from modalities_pipeline.progress.training_progress import TrainingProgress

    config = load(CONFIGS / "checkpointing.yaml", folder)
    names = ("model_raw", "optimizer", "app_state", "dcp_saving", "fsdp1_saving")
    components, _ = build_everything({name: config[name] for name in names})
    progress = TrainingProgress(1, 16, 2, 32)
    savings: list[Any] = [components.dcp_saving, components.fsdp1_saving]
    for saving in savings:
        saving.run_checkpoint_instruction(CheckpointingInstruction(save_current=True), progress, components.app_state)
    components.dcp_saving.folder_path(progress).rename(folder / "dcp_checkpoint")
    for path, name in zip(components.fsdp1_saving.file_paths(progress), ("model.bin", "optimizer.bin"), strict=True):
        path.rename(folder / name)
