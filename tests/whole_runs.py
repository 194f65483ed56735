"""Whole training runs on small data, for the tests: the shipped config made small, and how it is started."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from modalities_pipeline.config.overlays import Override, load_config
from modalities_pipeline.data.manifest import BuildResult, StageIdentity, record
from modalities_pipeline.data.pbin import PackedFileWriter

REPOSITORY = Path(__file__).parents[1]
NUM_STEPS = 40
SMALL = {
    "settings.intervals.training_log_interval_in_steps": 1,
    "settings.intervals.evaluation_interval_in_steps": 15,
    "settings.intervals.checkpointing_interval_in_steps": 10,
    "settings.step_profile.sequence_length": 16,
    "settings.training_target.num_target_steps": NUM_STEPS,
    "settings.training_target.num_target_tokens": NUM_STEPS * 64,
    "model_raw.config.n_layer": 1,
    "model_raw.config.ffn_hidden": 128,
    "model_raw.config.use_weight_tying": True,
    "checkpoint_saving.config.checkpoint_saving_strategy.config.k": -1,
}
# number of ranks -> settings with which a step sees the same four samples
STEP_PROFILES = {
    1: {"settings__step_profile__local_train_micro_batch_size": 4},
    2: {
        "settings__step_profile__local_train_micro_batch_size": 1,
        "settings__step_profile__gradient_accumulation_steps": 2,
    },
}


def write_data(folder: Path) -> None:
    """Write train.pbin (a text that repeats itself) and validation.pbin."""
    for name, num_tokens in (("train", NUM_STEPS * 64 + 1), ("validation", 129)):
        path = folder / f"{name}.pbin"
        with PackedFileWriter(path, 2) as writer:
            writer.write_document(np.arange(num_tokens) ** 2 % 101)
        record(StageIdentity("merged_pbin", "1", {}, {}), path, BuildResult(details={"num_token_ids": 101}), 0.0)


def write_small_config(folder: Path, data_dir: Path, **changed: Any) -> Path:
    """Write the shipped config, made small and changed as section__key=value says, for the data of a folder."""
    paths = {f"settings.paths.{name}_dataset_path": str(data_dir / f"{name}.pbin") for name in ("train", "validation")}
    changes = SMALL | paths | {key.replace("__", "."): value for key, value in changed.items()}
    overrides = [Override(key, value) for key, value in changes.items()]
    content = load_config(REPOSITORY / "configs" / "train_tiny_cpu.yaml", overrides).data
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def command_of(config: Path, root: Path, num_processes: int, *options: str) -> list[str]:
    """The command that trains a config as experiment "x" below a folder."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]
    run = ["-m", "modalities_pipeline", "run", "--config_file_path", str(config), "--experiments_root_path", str(root)]
    return [sys.executable, *(launcher if num_processes > 1 else []), *run, "--experiment_id", "x", *options]


def environment_of_runs(**more: str) -> dict[str, str]:
    """Environment variables of such a command."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY), **more}


def train(config: Path, root: Path, num_processes: int, *options: str, **more: str) -> subprocess.CompletedProcess:
    """Run such a command with more environment variables, and wait for its end."""
    command = command_of(config, root, num_processes, *options)
    return subprocess.run(command, env=environment_of_runs(**more), capture_output=True, text=True, timeout=300)
