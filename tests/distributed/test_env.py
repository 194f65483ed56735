"""The process finds its place in the run, or says what is missing."""

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from modalities_pipeline.distributed.env import (
    DistributedEnv,
    current_device,
    default_device_type,
    get_rank,
    get_world_size,
)
from modalities_pipeline.exceptions import RunningEnvError


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MODALITIES_PIPELINE_DEVICE"):
        monkeypatch.delenv(name, raising=False)


def test_a_process_without_launcher_is_a_run_of_one():
    with DistributedEnv() as env:
        assert (env.global_rank, env.local_rank, env.world_size) == (0, 0, 1)
        assert (dist.get_world_size(), get_rank(), get_world_size()) == (1, 0, 1)
        total = torch.ones(2, device=env.device)
        dist.all_reduce(total)
        assert total.tolist() == [1.0, 1.0]
    assert not dist.is_initialized()
    assert (get_rank(), get_world_size()) == (0, 1)


def test_the_current_device_is_that_of_the_run(monkeypatch):
    with DistributedEnv() as env:
        assert current_device() == env.device
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 3)
    assert current_device() == torch.device("cuda", 3)


def test_a_variable_that_the_launcher_did_not_set_is_named(monkeypatch):
    """B043"""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RunningEnvError, match=r"not set: LOCAL_RANK\. Start training with torchrun"):
        DistributedEnv()


def test_device_is_the_gpu_if_there_is_one_and_can_be_chosen(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert default_device_type() == "cuda"
    monkeypatch.setenv("MODALITIES_PIPELINE_DEVICE", "cpu")
    assert default_device_type() == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("MODALITIES_PIPELINE_DEVICE", "cuda")
    with pytest.raises(RunningEnvError, match="torch sees no GPU"):
        default_device_type()
    monkeypatch.setenv("MODALITIES_PIPELINE_DEVICE", "gpu")
    with pytest.raises(RunningEnvError, match=r"'gpu' is unknown\. Use one of: cuda, cpu"):
        default_device_type()


def test_more_processes_than_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name, value in {"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RunningEnvError, match="LOCAL_RANK is 2, but there are only 2 GPUs"):
        DistributedEnv()


def test_an_error_in_a_single_process_leaves_no_process_group() -> None:
    with pytest.raises(KeyError), DistributedEnv():
        raise KeyError
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"RANK": "a"}, "have to be numbers, but are RANK=a"), ({}, "MASTER_ADDR or MASTER_PORT is not set")],
)
def test_an_environment_that_no_launcher_makes_is_refused(monkeypatch, changes, words):
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", **changes}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(RunningEnvError, match=words), DistributedEnv():
        pass


def test_no_thread_of_the_group_is_left_whatever_was_imported_meanwhile():
    """A thread that lets go of a tensor while Python ends would abort the process."""
    code = """
import os
from modalities_pipeline.distributed.env import DistributedEnv

with DistributedEnv():
    import modalities_pipeline.main
    import torch.distributed.optim
    import torch.distributed.pipelining
names = [open(f"/proc/self/task/{thread}/comm").read() for thread in os.listdir("/proc/self/task")]
print([name for name in names if "gloo" in name])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
