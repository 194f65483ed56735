"""Whole training runs, started as a user starts them."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
import yaml
from whole_runs import (
    NUM_STEPS,
    REPOSITORY,
    STEP_PROFILES,
    command_of,
    environment_of_runs,
    train,
    write_data,
    write_small_config,
)

from modalities_pipeline.checkpointing.folders import find_checkpoints, find_latest_checkpoint
from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.data.pbin import PackedFileWriter
from modalities_pipeline.reporting.to_disc import read_results

pytestmark = [
    pytest.mark.multi_process,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),  # checkpoints are read without a process group
]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory) -> Path:
    """Folder with train.pbin and validation.pbin."""
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def write_config(tmp_path_factory, data_dir) -> Callable[..., Path]:
    """Function overrides -> the shipped config, made small."""
    return lambda **changed: write_small_config(tmp_path_factory.mktemp("config"), data_dir, **changed)


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]


def _weights(checkpoint: Path | None) -> dict[str, torch.Tensor]:
    metadata = dcp.FileSystemReader(checkpoint).read_metadata().state_dict_metadata
    state = {key: torch.empty(item.size) for key, item in metadata.items() if key.startswith("app.model.")}
    dcp.load(state, checkpoint_id=checkpoint, no_dist=True)
    return state


@pytest.fixture(scope="module")
def uninterrupted(write_config, tmp_path_factory) -> dict[int, Path]:
    """Number of ranks -> experiment folder of a run with as many, at the same number of samples a step."""
    folders = {}
    for num_ranks in (1, 2):
        root = tmp_path_factory.mktemp(f"ranks_{num_ranks}")
        completed = train(write_config(**STEP_PROFILES[num_ranks]), root, num_ranks)
        assert completed.returncode == 0, completed.stderr
        folders[num_ranks] = root / "x"
    return folders


def test_one_and_two_ranks_train_the_same_model(uninterrupted):
    """B048, B051, B052, B058: same samples a step, so the same losses, norms, weights; B062: the last step is saved."""
    results = [read_results(folder / "metrics.jsonl") for folder in uninterrupted.values()]
    assert len(results[0]) == len(results[1]) == NUM_STEPS + 3
    for one, two in zip(*results, strict=True):
        assert (one["dataloader_tag"], one["num_train_steps_done"]) == (
            two["dataloader_tag"],
            two["num_train_steps_done"],
        )
        for losses in (one["losses"], two["losses"]):
            losses.pop("train loss last", None)  # of one micro batch, which is another one here
        assert one["losses"] == pytest.approx(two["losses"], abs=1e-4)
        assert one["metrics"] == pytest.approx(two["metrics"], rel=1e-3)
    checkpoints = [find_latest_checkpoint(folder / "checkpoints") for folder in uninterrupted.values()]
    weights = [_weights(checkpoint) for checkpoint in checkpoints]
    assert all(torch.allclose(tensor, weights[1][key], atol=1e-4) for key, tensor in weights[0].items())


def test_experiment_folder_tells_what_was_trained(uninterrupted):
    folder = uninterrupted[2]
    metrics = read_results(folder / "metrics.jsonl")
    result = json.loads((folder / "result.json").read_text("utf-8"))
    assert result.pop("duration_in_s") > 0
    assert result == {
        "checkpoint_folder_path": str(find_latest_checkpoint(folder / "checkpoints")),
        "num_steps": NUM_STEPS,
        "num_tokens": NUM_STEPS * 64,
        "num_parameters": 128 * 128 + 3 * 128 + 128 * (128 + 64 + 64 + 128) + 3 * 128 * 128,
        "train_loss": metrics[-2]["losses"]["train loss avg"],
        "evaluation_losses": {"val": metrics[-1]["losses"]["CLMCrossEntropyLoss"]},
        "world_size": 2,
        "device": "cpu",
    }
    assert result["train_loss"] < 3.5 < metrics[0]["losses"]["train loss avg"]
    assert [progress.num_seen_steps_total for _, progress in find_checkpoints(folder / "checkpoints")] == [
        10,
        20,
        30,
        40,
    ]
    resolved = yaml.safe_load((folder / "config.yaml.resolved").read_text("utf-8"))
    assert resolved["settings"]["experiment_id"] == "x"
    assert (folder / "config.yaml").exists()


def test_a_killed_run_continues_and_ends_with_the_same_weights(write_config, tmp_path, uninterrupted):
    """B031, B046, B060: SIGKILL after the first checkpoint, then --resume: bit-equal weights, no step told twice."""
    config = write_config(**STEP_PROFILES[2])
    folder = tmp_path / "root" / "x"
    process = subprocess.Popen(
        command_of(config, folder.parent, 2),
        env=environment_of_runs(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while find_latest_checkpoint(folder / "checkpoints") is None and time.monotonic() < deadline:
        time.sleep(0.005)
    for pid in [*_children(process.pid), process.pid]:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert find_latest_checkpoint(folder / "checkpoints") is not None
    assert not (folder / "result.json").exists()
    resumed = train(config, folder.parent, 2, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "Continuing from" in resumed.stdout
    expected = _weights(find_latest_checkpoint(uninterrupted[2] / "checkpoints"))
    actual = _weights(find_latest_checkpoint(folder / "checkpoints"))
    assert all(torch.equal(tensor, actual[key]) for key, tensor in expected.items())
    steps = [
        item["num_train_steps_done"]
        for item in read_results(folder / "metrics.jsonl")
        if item["dataloader_tag"] == "train"
    ]
    assert steps == list(range(1, NUM_STEPS + 1))


def test_resuming_a_finished_run_succeeds_without_a_step(write_config, tmp_path, uninterrupted):
    """And on another number of ranks than saved it (B036)."""
    folder = tmp_path / "root" / "x"
    shutil.copytree(uninterrupted[2], folder)
    before = json.loads((folder / "result.json").read_text("utf-8"))
    checkpoints = find_checkpoints(folder / "checkpoints")
    completed = train(write_config(**STEP_PROFILES[1]), folder.parent, 1, "--resume")
    assert completed.returncode == 0, completed.stderr
    after = json.loads((folder / "result.json").read_text("utf-8"))
    for key in ("train_loss", "evaluation_losses", "num_steps", "num_parameters"):
        assert after[key] == before[key]
    assert after["world_size"] == 1
    assert len(find_checkpoints(folder / "checkpoints")) == len(checkpoints)


def test_faults_in_a_config_end_the_run_with_one_clear_message(write_config, tmp_path):
    """B077, B078, B085: exit code 1, every fault with its line, no traceback, nothing left behind."""
    config = write_config(
        settings__intervals__training_log_intervall=1,
        settings__intervals__evaluation_interval_in_steps=0,
        optimizer__config__lr="high",
    )
    completed = train(config, tmp_path / "root", 1)
    assert completed.returncode == 1
    assert "Traceback" not in completed.stderr
    assert f"Error: {config}:" in completed.stderr
    faults = {line.rpartition(f"{config}:")[2].partition(": ")[2] for line in completed.stderr.splitlines()}
    assert faults >= {
        "settings.intervals.training_log_intervall: unknown key; did you mean 'training_log_interval_in_steps'?",
        "settings.intervals.evaluation_interval_in_steps: has to be at least 1 (given: 0)",
        "optimizer.config.lr: has to be a number (given: 'high')",
    }
    assert not (tmp_path / "root").exists()


def test_several_ranks_report_the_faults_of_a_config_once(write_config, tmp_path):
    config = write_config(optimizer__config__lr="high")
    completed = train(config, tmp_path / "root", 2)
    assert completed.returncode == 1
    assert completed.stderr.count("optimizer.config.lr: has to be a number (given: 'high')") == 1


def test_a_target_beyond_the_data_is_refused_before_training(write_config, tmp_path):
    """B010, B078"""
    too_many = {"num_target_steps": NUM_STEPS + 1, "num_target_tokens": (NUM_STEPS + 1) * 64}
    completed = train(write_config(settings__training_target=too_many, **STEP_PROFILES[1]), tmp_path / "root", 1)
    assert completed.returncode == 1
    assert "the training dataset has 2560 tokens (160 samples of 16), num_target_tokens is 2624" in completed.stderr


def test_validation_data_too_small_for_a_batch_are_refused_before_training(write_config, tmp_path):
    """Not at the first evaluation, when the work since the last checkpoint would be lost."""
    config = write_config(
        settings__step_profile__local_train_micro_batch_size=16,
        settings__training_target={"num_target_steps": 10, "num_target_tokens": 2560},
        lr_scheduler__config__warmup_steps=1,
    )
    completed = train(config, tmp_path / "root", 1)
    assert completed.returncode == 1
    assert (
        "the evaluation data loader 'val' has no batch: its dataset has 8 samples, a batch on all ranks needs 16 "
        "(1 ranks x 16)" in completed.stderr
    )
    assert not (tmp_path / "root").exists()


def test_training_data_too_short_for_a_step_are_named(write_config, tmp_path, data_dir):
    target = load_config(REPOSITORY / "configs" / "train_tiny_cpu.yaml").data["settings"]["training_target"]
    config = write_config(settings__training_target=target, settings__step_profile__local_train_micro_batch_size=200)
    completed = train(config, tmp_path / "root", 1)
    assert completed.returncode == 1
    assert f"{data_dir / 'train.pbin'} is too short for one step: its 2561 tokens make 160 samples" in completed.stderr
    assert "warmup_steps" not in completed.stderr


def test_token_ids_that_the_model_does_not_know_are_refused_before_training(write_config, tmp_path):
    """B021: on a GPU the step itself would end in a device-side assertion."""
    with PackedFileWriter(tmp_path / "other.pbin", 2) as writer:
        writer.write_document([*range(200)] * 20)
    config = write_config(
        model_raw__config__vocab_size=128,
        settings__paths__train_dataset_path=str(tmp_path / "other.pbin"),
        **STEP_PROFILES[2],
    )
    completed = train(config, tmp_path / "root", 2)
    assert completed.returncode != 0
    assert f"{tmp_path / 'other.pbin'} holds token id 199, but the model knows only the ids below" in completed.stderr
    assert not (tmp_path / "root").exists()
